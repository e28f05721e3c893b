package verify

import (
	"context"
	"crypto/x509"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// ConfigMaps of a hosted control plane with its CAs. Source: hypershift,
// control-plane-operator/controllers/hostedcontrolplane/manifests/pki.go.
const (
	rootCA         = "root-ca"
	konnectivityCA = "konnectivity-ca-bundle"
	caKey          = "ca.crt"
)

// subject is what the scenarios know about a site.
type subject struct {
	*site.Site

	// authorities are the CAs by the name of their ConfigMap; missing ones are not in it.
	authorities map[string]*x509.CertPool
	// client is the MAC address of the DHCP client, and hostname its expected host name.
	client, hostname string
	// label is the first label of names of apps that do not exist.
	label string
	// upstream is the name that the upstream resolvers must resolve; empty if any reply will do.
	upstream string
}

// newSubject returns the site of the Infra "namespace/name"; nil if the facts do not contain it, or it cannot be decoded.
func newSubject(facts *site.Facts, key string) *subject {
	s := site.New(facts, key, &model.AppsOptions{})
	if s == nil || s.Model == nil {
		return nil
	}
	return &subject{Site: s, authorities: map[string]*x509.CertPool{}}
}

// readAuthorities reads the CAs of the hosted cluster. A ConfigMap that does not exist is no error.
func (s *subject) readAuthorities(ctx context.Context, c client.Client) error {
	if s.Cluster == nil || s.Cluster.ControlPlaneNamespace == "" {
		return nil
	}
	for _, name := range []string{rootCA, konnectivityCA} {
		m := &corev1.ConfigMap{}
		err := c.Get(ctx, client.ObjectKey{Namespace: s.Cluster.ControlPlaneNamespace, Name: name}, m)
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return err
		}
		if pool := x509.NewCertPool(); pool.AppendCertsFromPEM([]byte(m.Data[caKey])) {
			s.authorities[name] = pool
		}
	}
	return nil
}

// servers returns the DNS servers of a client: ours on the VLAN, or the cluster IPs of our Service.
func (s *subject) servers(c Client) []netip.Addr {
	list := s.Model.DNS
	if c == Pod {
		list = s.Snapshot.ServiceIPs(s.Key() + "-dns")
	}
	return slices.DeleteFunc(slices.Clone(list), func(a netip.Addr) bool { return !a.Is4() })
}

// apps returns the expectations that are about apps.
func (s *subject) apps(c Client) []expectation {
	return slices.DeleteFunc(s.names(c), func(n expectation) bool { return !s.isApp(n.Name) })
}

func (s *subject) isApp(name string) bool {
	return s.Cluster != nil && !slices.ContainsFunc(s.Cluster.Hostnames, func(h model.Hostname) bool { return h.Name == name }) &&
		slices.ContainsFunc(s.Cluster.AppsDomains, func(domain string) bool { return strings.HasSuffix(name, "."+domain) })
}

// others returns the Infras of other hosted clusters on other VLANs.
func (s *subject) others() []*model.Infra {
	return slices.DeleteFunc(slices.Clone(s.Snapshot.Infras), func(i *model.Infra) bool {
		return i.Cluster == nil || s.Cluster == nil || i.Cluster.Ref == s.Cluster.Ref || i.VLAN == s.Model.VLAN
	})
}
