//go:build e2e

package e2eingress_test

import (
	"net/http"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/test/ingresstest"
	"github.com/densityops/oooi/test/lab"
)

// TestContourServesTheIngress sends requests through Contour's Envoy, with the certificate that cert-manager
// issued, to the Service that a VirtualIngress selects by labels, before and after the Service is recreated
// under another name.
func TestContourServesTheIngress(t *testing.T) {
	network.Need(t)
	cp := cluster.Get(t)
	startAll(t, cp)
	for _, c := range []struct {
		mode, host    string
		before, after string // addresses of the backends
		same          bool   // the Ingress does not change
	}{
		{mode: "Direct", host: "direct.example.com", before: "198.18.1.1", after: "198.18.1.2"},
		{mode: "Alias", host: "alias.example.com", before: "198.18.2.1", after: "198.18.2.1", same: true},
	} {
		t.Run(c.mode, func(t *testing.T) {
			startServer(t, c.before, "at "+c.before)
			if c.after != c.before {
				startServer(t, c.after, "at "+c.after)
			}
			s := &site{ingresstest.New(t, cp)}
			s.virtualIngress(c.host, c.mode)
			s.Mirrored("a-first", tenantLabels, c.before)
			alias := s.awaitService("a-first").Alias
			secret := s.awaitSecret()
			s.checkCertificateOwner()
			b := newBrowser(t, c.host, secret.Data["ca.crt"])
			await(t, "Contour to serve the Ingress", func() error { return b.checkServes(t.Context(), "at "+c.before) })
			await(t, "Contour to serve the WebSocket", func() error { return b.checkEchoes(t.Context(), "at "+c.before) })
			checkAnnotations(t, b)

			generation := s.Ingress("web-generated").Generation
			var clusterIP string
			var endpoints []string
			if c.same {
				clusterIP, endpoints = s.GetService(alias).Spec.ClusterIP, s.Endpoints(alias)
			}
			s.RemoveMirrored("a-first")
			s.Mirrored("a-second", tenantLabels, c.after)
			current := s.awaitService("a-second").Alias
			await(t, "Contour to serve the new Service", func() error { return b.checkServes(t.Context(), "at "+c.after) })
			await(t, "Contour to serve the WebSocket of the new Service", func() error { return b.checkEchoes(t.Context(), "at "+c.after) })

			if current != alias {
				t.Errorf("alias is %q, was %q", current, alias)
			}
			if now := s.Ingress("web-generated").Generation; (now == generation) != c.same {
				t.Errorf("generation of the Ingress is %d, was %d", now, generation)
			}
			if !c.same {
				return
			}
			if now := s.GetService(alias).Spec.ClusterIP; now != clusterIP || now == "" {
				t.Errorf("ClusterIP of the alias is %q, was %q", now, clusterIP)
			}
			if now := s.Endpoints(alias); !slices.Equal(now, endpoints) || len(now) != 1 {
				t.Errorf("endpoints of the alias are %q, were %q", now, endpoints)
			}
		})
	}
}

// checkCertificateOwner checks that cert-manager created the certificate for the annotation of the generated
// Ingress.
func (s *site) checkCertificateOwner() {
	s.Helper()
	certificate := &unstructured.Unstructured{}
	certificate.SetAPIVersion("cert-manager.io/v1")
	certificate.SetKind("Certificate")
	if !s.Get(certificate, "web-tls") {
		s.Fatal("no Certificate")
	}
	owners := certificate.GetOwnerReferences()
	if len(owners) != 1 || owners[0].Kind != "Ingress" || owners[0].UID != s.Ingress("web-generated").UID {
		s.Errorf("owners of the certificate: %+v", owners)
	}
}

// checkAnnotations checks behaviour that depends on annotations that the generated Ingress keeps.
func checkAnnotations(t *testing.T, b *browser) {
	t.Helper()
	got, err := b.get(t.Context(), "http")
	lab.Must(t, err)
	if got.status != http.StatusMovedPermanently || got.location != "https://"+b.host+"/" {
		t.Errorf("without TLS: %+v", got)
	}
	if conn, err := b.webSocket(t.Context(), "/"); err == nil {
		_ = conn.Close()
		t.Error("a WebSocket opens at a path that the annotation does not name")
	}
}
