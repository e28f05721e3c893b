//go:build e2e

package e2eingress_test

import (
	"net/http"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestContourServesIt goes the whole way, from a VirtualIngress whose Service is known by labels to
// a request that Contour's Envoy takes there, with the certificate that cert-manager issued, before
// and after the Service comes back under another name.
func TestContourServesIt(t *testing.T) {
	network.Need(t)
	cp := cluster.Get(t)
	startAll(t, cp)
	for _, c := range []struct {
		mode, host    string
		before, after string // addresses of the backends
		same          bool   // what the Ingress names
	}{
		{mode: "Direct", host: "direct.example.com", before: "198.18.1.1", after: "198.18.1.2"},
		{mode: "Alias", host: "alias.example.com", before: "198.18.2.1", after: "198.18.2.1", same: true},
	} {
		t.Run(c.mode, func(t *testing.T) {
			startServer(t, c.before, "at "+c.before)
			if c.after != c.before {
				startServer(t, c.after, "at "+c.after)
			}
			s := newSite(t, cp)
			s.virtualIngress(c.host, c.mode)
			s.mirror("a-first", c.before)
			alias := s.awaitService("a-first").Alias
			secret := s.awaitSecret()
			s.isIssuedForTheIngress()
			b := newBrowser(t, c.host, secret.Data["ca.crt"])
			await(t, "Contour to serve the Ingress", func() error { return b.serves(t.Context(), "at "+c.before) })
			await(t, "Contour to serve its WebSocket", func() error { return b.echoes(t.Context(), "at "+c.before) })
			contourKeepsToTheAnnotations(t, b)

			generation := s.ingress().Generation
			var clusterIP string
			var endpoints []string
			if c.same {
				clusterIP, endpoints = s.service(alias).Spec.ClusterIP, s.endpoints(alias)
			}
			stop := b.watch(t)
			s.unmirror("a-first")
			s.mirror("a-second", c.after)
			again := s.awaitService("a-second").Alias
			await(t, "Contour to follow the Service", func() error { return b.serves(t.Context(), "at "+c.after) })
			t.Logf("the longest time without service: %s", stop())
			await(t, "its WebSocket to work", func() error { return b.echoes(t.Context(), "at "+c.after) })

			if again != alias {
				t.Errorf("the alias is %q now, and was %q", again, alias)
			}
			if now := s.ingress().Generation; (now == generation) != c.same {
				t.Errorf("the Ingress's generation is %d, and was %d", now, generation)
			}
			if !c.same {
				return
			}
			if now := s.service(alias).Spec.ClusterIP; now != clusterIP || now == "" {
				t.Errorf("the alias has the address %q now, and had %q", now, clusterIP)
			}
			if now := s.endpoints(alias); !slices.Equal(now, endpoints) || len(now) != 1 {
				t.Errorf("the alias has the endpoints %q now, and had %q", now, endpoints)
			}
		})
	}
}

// isIssuedForTheIngress checks that the certificate is there on account of the generated Ingress's
// annotation.
func (s *site) isIssuedForTheIngress() {
	s.t.Helper()
	certificate := &unstructured.Unstructured{}
	certificate.SetAPIVersion("cert-manager.io/v1")
	certificate.SetKind("Certificate")
	if err := s.get("web-tls", certificate); err != nil {
		s.t.Fatal(err)
	}
	owners := certificate.GetOwnerReferences()
	if len(owners) != 1 || owners[0].Kind != "Ingress" || owners[0].UID != s.ingress().UID {
		s.t.Errorf("the certificate is owned by %+v", owners)
	}
}

// contourKeepsToTheAnnotations tries what would be another way without the kept annotations.
func contourKeepsToTheAnnotations(t *testing.T, b *browser) {
	t.Helper()
	got, err := b.get(t.Context(), "http")
	if err != nil {
		t.Fatal(err)
	}
	if got.status != http.StatusMovedPermanently || got.location != "https://"+b.host+"/" {
		t.Errorf("without TLS: %+v", got)
	}
	if conn, err := b.webSocket(t.Context(), "/"); err == nil {
		_ = conn.Close()
		t.Error("there is a WebSocket where the annotation names none")
	}
}
