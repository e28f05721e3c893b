package proxy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/lab"
)

func TestBrokenObjectsStopNobodysUpdates(t *testing.T) {
	s := newSite(t)
	s.controlPlane(t)
	s.withoutValidation(t)
	in := func(label string) string { return label + "." + s.domain }
	good := s.ca.TLSBackend(t, s.at(21, 443), "good", in("good"), in("better"), in("other"), in("twin"))
	bad := s.ca.TLSBackend(t, s.at(22, 443), "bad", in("good"), in("oauth"), in("twin"))
	s.update(t, service("apps-"+s.name, "good", 443, good.Addr())+service("apps-"+s.name, "bad", 443, bad.Addr())+
		s.proxyServer(s.backend("good", in("good"), "good", "")))
	s.start(t)
	s.await(t, 443, hello{sni: in("good")}, "good")
	quiet := s.tick(t, 443, hello{sni: in("good")}, "good")

	poison := []struct {
		what, backend string
		reason        model.Reason
		says          string // part of the problem
	}{
		{"a hostname twice", s.backend("dup", in("good"), "bad", ""), model.ReasonNameConflict, "spec.backends[1] dup: " + in("good")},
		{"a hostname twice, in upper case", s.backend("case", strings.ToUpper(in("good")), "bad", ""), model.ReasonNameConflict, "spec.backends[2] case: " + in("good")},
		{"a hostname of the control plane", s.backend("kidnap", in("oauth"), "bad", ""), model.ReasonNameConflict, "spec.backends[3] kidnap: " + in("oauth")},
		{"a port that is none", strings.Replace(s.backend("port", in("port"), "bad", ""), "port: 443", "port: 70000", 1), model.ReasonInvalidAddress, "70000"},
		{"a wildcard inside of a name", s.backend("wild", "a.*."+s.domain, "bad", ""), model.ReasonInvalidName, "spec.backends[5] wild"},
		{"a wildcard alone", s.backend("star", "*", "bad", ""), model.ReasonInvalidName, "spec.backends[6] star"},
		{"a name with a space", s.backend("space", "a b."+s.domain, "bad", ""), model.ReasonInvalidName, "spec.backends[7] space"},
		{"a Service that is missing", s.backend("gone", in("gone"), "gone", ""), model.ReasonServiceNotFound, "spec.backends[8] gone"},
		{"a Service's port that is missing", strings.Replace(s.backend("no-port", in("no-port"), "bad", ""), "targetPort: 443", "targetPort: 444", 1), model.ReasonServiceNotFound, "spec.backends[9] no-port"},
		{"the port of the applications' HTTP", strings.Replace(s.backend("http", in("http"), "bad", ""), "port: 443", "port: 80", 1), model.ReasonNameConflict, "spec.backends[10] http"},
		{"a name for two backends", s.backend("good", in("twin"), "bad", ""), model.ReasonNameConflict, "spec.backends[11] good"},
	}
	backends := []string{s.backend("good", in("good"), "good", "")}
	for _, p := range poison {
		backends = append(backends, p.backend)
	}
	s.poison(t, s.proxyServer(append(backends, s.backend("better", in("better"), "good", ""))...))

	// What came with it is served, and what was there stays.
	s.await(t, 443, hello{sni: in("better")}, "good")
	for _, h := range []hello{{sni: in("good")}, {sni: in("GOOD")}} {
		s.await(t, 443, h, "good")
	}
	s.check(t)
	state, text := s.xdsd.state(t)
	for _, p := range poison {
		found := 0
		for _, problem := range state.Problems {
			if problem.Object.Kind == "ProxyServer" && problem.Reason == p.reason && strings.Contains(problem.Message, p.says) {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%s: %d problems %s with %q in the state: %v", p.what, found, p.reason, p.says, state.Problems)
		}
	}
	if len(state.Served) != 1 || len(state.Served[0].Envoys) != 1 || state.Served[0].Envoys[0].Nack != nil {
		t.Errorf("Envoy refused something: %.2000s", text)
	}

	// So is what comes afterwards, from this object and from others.
	for round := range 5 {
		late := in(fmt.Sprintf("late%d", round))
		s.ca.TLSBackend(t, s.at(30+round, 443), fmt.Sprint("late", round), late, s.routeHost(fmt.Sprint("late", round)))
		s.update(t, service(s.namespace(), fmt.Sprint("late", round), 443, addrPort(s.at(30+round, 443)))+
			s.route(fmt.Sprint("late", round), fmt.Sprint("late", round)))
		s.await(t, 443, hello{sni: s.routeHost(fmt.Sprint("late", round))}, fmt.Sprint("late", round))
		s.poison(t, s.proxyServer(append(backends, s.backend("other", in("other"), "good", fmt.Sprintf(", timeoutSeconds: %d", round+1)))...))
		s.await(t, 443, hello{sni: in("other")}, "good")
	}
	for _, p := range poison {
		if n := len(s.xdsd.Log.Lines("level=WARN", string(p.reason), p.says)); n != 1 {
			t.Errorf("%s is logged %d times", p.what, n)
		}
	}
	quiet.end(t)
}

// poison applies what only an API server without validation takes, which may need a
// moment to be one.
func (s *site) poison(t *testing.T, yaml string) {
	t.Helper()
	var last error
	lab.Poll(t, "the API server to take anything", func() bool {
		err := s.cp.ApplyYAML(t.Context(), []byte(yaml))
		if err != nil && (last == nil || err.Error() != last.Error()) {
			t.Log(err)
		}
		last = err
		return err == nil
	})
}

// withoutValidation has the API server take any ProxyServer for as long as the test
// runs, as that of an older release did: what is stored stays.
func (s *site) withoutValidation(t *testing.T) {
	t.Helper()
	all, err := lab.CRDs(t.Context(), lab.Oooi)
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range all {
		if crd.GetName() != "proxyservers.hostedcluster.densityops.com" {
			continue
		}
		relax(crd.Object["spec"])
		if err := s.cp.Apply(t.Context(), crd); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), lab.Patience)
		defer cancel()
		object := &unstructured.Unstructured{}
		object.SetAPIVersion("hostedcluster.densityops.com/v1alpha1")
		object.SetKind("ProxyServer")
		object.SetNamespace("clusters")
		object.SetName(s.name)
		if err := s.cp.Delete(ctx, object); err != nil { // it would not be one afterwards
			t.Error(err)
		}
		if err := s.cp.InstallCRDs(ctx, lab.Oooi); err != nil {
			t.Error(err)
		}
	})
}

// relax removes from a schema what is more than types.
func relax(value any) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			relax(element)
		}
	case map[string]any:
		for _, rule := range []string{"pattern", "minimum", "maximum", "x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"} {
			if _, property := value[rule].(map[string]any); !property {
				delete(value, rule)
			}
		}
		for _, element := range value {
			relax(element)
		}
	}
}
