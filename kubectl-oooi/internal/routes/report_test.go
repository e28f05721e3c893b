package routes_test

import (
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/routes"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// TestTable prints the proxies in the test data of the model.
func TestTable(t *testing.T) {
	options := model.Options{Apps: &model.AppsOptions{}, Proxies: true}
	for _, name := range []string{"proxy-infra", "proxy-backends", "proxy-nodeport", "proxy-http", "proxy-egress"} {
		objects, err := watch.ReadManifests("../../../internal/model/testdata/"+name, options)
		lab.Must(t, err)
		var list []*routes.Report
		for _, p := range model.Build(objects, options).ProxyServers {
			list = append(list, routes.NewReport(p, objects))
		}
		var b strings.Builder
		lab.Must(t, output.NewTable(routes.Columns(true), routes.Rows(list), true).Write(&b))
		golden.Check(t, "testdata/"+name+".golden", b.String())
	}
}

func TestFindPrefersTheLongestName(t *testing.T) {
	l := routes.Listener{}
	for _, host := range []string{"*.example.com", "*.apps.example.com", "api.apps.example.com", "example.org"} {
		l.Routes = append(l.Routes, routes.Route{Host: host, Target: routes.Target{Service: host}})
	}
	for name, want := range map[string]string{
		"api.apps.example.com": "api.apps.example.com", "www.apps.example.com": "*.apps.example.com", "a.b.apps.example.com": "*.apps.example.com",
		"apps.example.com": "*.example.com", "example.com": "", "example.org": "example.org", "www.example.org": "", "notexample.com": "",
	} {
		got := l.Find(name)
		if got == nil != (want == "") || got != nil && got.Service != want {
			t.Errorf("Find(%q) = %v, want %q", name, got, want)
		}
	}
}
