package hcpapps

import (
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/plugins/internal/viewstest"
)

// FuzzCorefile checks the options of all blocks that parse accepts.
func FuzzCorefile(f *testing.F) {
	for _, seed := range []string{
		"hcpapps",
		"hcpapps example.com {\n source status\n}",
		"hcpapps {\n manifests m\n source hosted mirrored status\n allow 192.0.2.0/24 2001:db8::/64\n}",
		"hcpapps {\n hostedcluster a/b\n source mirrored\n service a/b\n allow 192.0.2.1\n}",
		"hcpapps {\n hostedcluster a/b\n source hosted\n selector app=router,tier=a\n credentials a/b\n allow 10.0.0.0/8\n}",
		"hcpapps {\n allow ::ffff:192.0.2.0/120\n}",
		"hcpapps {\n selector =,=\n}",
		"hcpapps {\n service a/b/c\n}",
		"hcpapps {\n source \"status\n\"\n}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, block string) {
		b, err := parse(viewstest.Controller(block))
		if err != nil {
			return
		}
		o := b.Config.Source.Apps
		for _, prefix := range o.Allow {
			if !prefix.IsValid() || prefix != prefix.Masked() || prefix.Addr().Is4In6() {
				t.Errorf("%s contains no address", prefix)
			}
		}
		for _, name := range []string{o.Service, o.Credentials} {
			if name != "" && strings.Count(name, "/") != 1 {
				t.Errorf("%q is not NAMESPACE/NAME", name)
			}
		}
		if o.Service != "" && len(o.Selector) > 0 {
			t.Error("both a Service and a selector are set")
		}
		for key, value := range o.Selector {
			if key == "" || value == "" {
				t.Errorf("selector %q=%q", key, value)
			}
		}
		// An empty cluster has no problems with any options.
		if s := model.Build(&model.Objects{}, model.Options{Scope: b.Config.Source.Scope, Apps: o}); len(s.Problems) != 0 {
			t.Errorf("an empty cluster has the problems %v", s.Problems)
		}
	})
}
