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

func TestBrokenBackendsDoNotBlockUpdates(t *testing.T) {
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
	stream := s.startStream(t, 443, hello{sni: in("good")}, "good")

	broken := []struct {
		what, backend string
		reason        model.Reason
		message       string // part of the problem's message
	}{
		{"a hostname twice", s.backend("dup", in("good"), "bad", ""), model.ReasonNameConflict, "spec.backends[1] dup: " + in("good")},
		{"a hostname twice, in upper case", s.backend("case", strings.ToUpper(in("good")), "bad", ""), model.ReasonNameConflict, "spec.backends[2] case: " + in("good")},
		{"a hostname of the control plane", s.backend("stolen", in("oauth"), "bad", ""), model.ReasonNameConflict, "spec.backends[3] stolen: " + in("oauth")},
		{"an invalid port", strings.Replace(s.backend("port", in("port"), "bad", ""), "port: 443", "port: 70000", 1), model.ReasonInvalidAddress, "70000"},
		{"a wildcard inside a name", s.backend("wild", "a.*."+s.domain, "bad", ""), model.ReasonInvalidName, "spec.backends[5] wild"},
		{"a wildcard alone", s.backend("star", "*", "bad", ""), model.ReasonInvalidName, "spec.backends[6] star"},
		{"a name with a space", s.backend("space", "a b."+s.domain, "bad", ""), model.ReasonInvalidName, "spec.backends[7] space"},
		{"a missing Service", s.backend("missing", in("missing"), "missing", ""), model.ReasonServiceNotFound, "spec.backends[8] missing"},
		{"a missing port of a Service", strings.Replace(s.backend("no-port", in("no-port"), "bad", ""), "targetPort: 443", "targetPort: 444", 1), model.ReasonServiceNotFound, "spec.backends[9] no-port"},
		{"the HTTP port of the apps", strings.Replace(s.backend("http", in("http"), "bad", ""), "port: 443", "port: 80", 1), model.ReasonNameConflict, "spec.backends[10] http"},
		{"a name of two backends", s.backend("good", in("twin"), "bad", ""), model.ReasonNameConflict, "spec.backends[11] good"},
	}
	backends := []string{s.backend("good", in("good"), "good", "")}
	for _, p := range broken {
		backends = append(backends, p.backend)
	}
	s.applyUnvalidated(t, s.proxyServer(append(backends, s.backend("better", in("better"), "good", ""))...))

	// Valid backends of the same object are served, and existing ones are kept.
	s.await(t, 443, hello{sni: in("better")}, "good")
	for _, h := range []hello{{sni: in("good")}, {sni: in("GOOD")}} {
		s.await(t, 443, h, "good")
	}
	s.check(t)
	state, text := s.xdsd.state(t)
	for _, p := range broken {
		found := 0
		for _, problem := range state.Problems {
			if problem.Object.Kind == "ProxyServer" && problem.Reason == p.reason && strings.Contains(problem.Message, p.message) {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%s: %d problems %s with %q in the state, want 1: %v", p.what, found, p.reason, p.message, state.Problems)
		}
	}
	if len(state.Served) != 1 || len(state.Served[0].Envoys) != 1 || state.Served[0].Envoys[0].Nack != nil {
		t.Errorf("Envoy sent a NACK: %.2000s", text)
	}

	// Later changes of this object and of others are served as well.
	for round := range 5 {
		late := in(fmt.Sprintf("late%d", round))
		s.ca.TLSBackend(t, s.at(30+round, 443), fmt.Sprint("late", round), late, s.routeHost(fmt.Sprint("late", round)))
		s.update(t, service(s.namespace(), fmt.Sprint("late", round), 443, addrPort(s.at(30+round, 443)))+
			s.route(fmt.Sprint("late", round), fmt.Sprint("late", round)))
		s.await(t, 443, hello{sni: s.routeHost(fmt.Sprint("late", round))}, fmt.Sprint("late", round))
		s.applyUnvalidated(t, s.proxyServer(append(backends, s.backend("other", in("other"), "good", fmt.Sprintf(", timeoutSeconds: %d", round+1)))...))
		s.await(t, 443, hello{sni: in("other")}, "good")
	}
	for _, p := range broken {
		if n := len(s.xdsd.Log.Lines("level=WARN", string(p.reason), p.message)); n != 1 {
			t.Errorf("%s is logged %d times, want once", p.what, n)
		}
	}
	stream.end(t)
}

// applyUnvalidated applies objects that the real CRD rejects. It retries until the API server uses the CRD of
// withoutValidation.
func (s *site) applyUnvalidated(t *testing.T, yaml string) {
	t.Helper()
	var last error
	lab.Poll(t, "the API server to accept invalid objects", func() bool {
		err := s.cp.ApplyYAML(t.Context(), []byte(yaml))
		if err != nil && (last == nil || err.Error() != last.Error()) {
			t.Log(err)
		}
		last = err
		return err == nil
	})
}

// withoutValidation makes the API server accept any ProxyServer until the end of the test. This stands for
// objects that were stored under the CRD of an earlier release.
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
		removeValidation(crd.Object["spec"])
		if err := s.cp.Apply(t.Context(), crd); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), lab.WaitTimeout)
		defer cancel()
		object := &unstructured.Unstructured{}
		object.SetAPIVersion("hostedcluster.densityops.com/v1alpha1")
		object.SetKind("ProxyServer")
		object.SetNamespace("clusters")
		object.SetName(s.name)
		if err := s.cp.Delete(ctx, object); err != nil { // with the real CRD the object would be invalid
			t.Error(err)
		}
		if err := s.cp.InstallCRDs(ctx, lab.Oooi); err != nil {
			t.Error(err)
		}
	})
}

// removeValidation removes everything but types from a schema.
func removeValidation(value any) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			removeValidation(element)
		}
	case map[string]any:
		for _, rule := range []string{"pattern", "minimum", "maximum", "x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"} {
			if _, property := value[rule].(map[string]any); !property {
				delete(value, rule)
			}
		}
		for _, element := range value {
			removeValidation(element)
		}
	}
}
