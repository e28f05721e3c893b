package model_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
)

// TestAmbiguousSelectorKeepsServiceInUse adds the labels of a backend's selector to a second Service: the
// first one stays in use while it has them, and the ambiguity is reported.
func TestAmbiguousSelectorKeepsServiceInUse(t *testing.T) {
	service := func(name string) *objects.Service {
		return &objects.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: name, Labels: map[string]string{"app": "web"}},
			Spec:       objects.ServiceSpec{Ports: []objects.ServicePort{{Name: "https", Port: 443}}},
		}
	}
	proxy := &v1alpha1.ProxyServer{ObjectMeta: metav1.ObjectMeta{Namespace: "p", Name: "p"}}
	proxy.Spec.NetworkConfig.ServerIP = "192.0.2.3"
	proxy.Spec.Backends = []v1alpha1.ProxyBackend{{
		Name: "web", Hostname: "web.example.com", Port: 443, TargetPort: intstr.FromString("https"), TargetNamespace: "apps",
		TargetSelector: &v1alpha1.ServiceSelector{MatchLabels: map[string]string{"app": "web"}, OnMultiple: v1alpha1.OnMultipleFail},
	}}
	b, z := service("b"), service("z")
	var last map[string]string // as stored in the snapshot file; the previous snapshot itself is not needed
	for _, step := range []struct {
		name     string
		services []*objects.Service
		want     string
		reason   model.Reason
	}{
		{"two at first", []*objects.Service{b, z}, "", model.ReasonMultipleMatches},
		{"one", []*objects.Service{b}, "apps/b", ""},
		{"two more", []*objects.Service{b, z, service("a")}, "apps/b", model.ReasonMultipleMatches},
		{"the first is deleted", []*objects.Service{z, service("a")}, "", model.ReasonMultipleMatches},
		{"one again", []*objects.Service{z}, "apps/z", ""},
		{"none", nil, "", model.ReasonServiceNotFound},
	} {
		s := model.Build(&model.Objects{Services: step.services, ProxyServers: []*v1alpha1.ProxyServer{proxy}, LastServices: last}, model.Options{Proxies: true})
		last = s.LastServices()
		upstream := s.ProxyServers[0].Upstreams[0]
		var reason model.Reason
		for _, p := range s.Problems {
			reason = p.Reason
		}
		if upstream.Service != step.want || reason != step.reason || len(s.Problems) > 1 {
			t.Errorf("%s: connects to %q, %v; want %q and %q", step.name, upstream.Service, s.Problems, step.want, step.reason)
		}
		if (upstream.Missing == "") != (step.want != "") || !strings.HasPrefix(upstream.Name, "proxy/p/p/") {
			t.Errorf("%s: %+v", step.name, upstream)
		}
	}
}
