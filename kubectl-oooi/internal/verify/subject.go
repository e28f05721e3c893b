package verify

import (
	"context"
	"crypto/x509"
	"net"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// subject is a site with the data that scenarios use.
type subject struct {
	*site.Site

	// own is the snapshot of the Infra's DNS.
	own *model.Snapshot
	// authorities are the CAs by the name of their ConfigMap, without missing ones.
	authorities map[string]*x509.CertPool
	// client is the MAC address of the DHCP client, and hostname its expected host name.
	client   net.HardwareAddr
	hostname string
	// label is the first label of apps names that do not exist.
	label string
	// upstream is the name that the upstream resolvers must resolve; empty to accept any reply.
	upstream string
}

// newSubject returns the site of the Infra "namespace/name"; nil if the facts do not contain it, or it cannot be decoded.
func newSubject(facts *site.Facts, key string) *subject {
	s := site.New(facts, key, &model.AppsOptions{})
	if s == nil || s.Model == nil {
		return nil
	}
	return &subject{Site: s, own: s.OwnSnapshot(), authorities: map[string]*x509.CertPool{}}
}

// readAuthorities reads the CAs of the hosted cluster. A ConfigMap that does not exist is not an error.
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

// expectation is a name with its expected addresses.
type expectation struct {
	Name      string
	Addresses []netip.Addr
}

// view returns the DNS view of a client; nil if there is none. The DNS of an Infra reads no other Infras of its hosted cluster or VLAN.
func (s *subject) view(c Client) *model.View {
	if c == Pod {
		return s.own.Pod()
	}
	if len(s.own.VLANs) == 0 {
		return nil
	}
	return s.own.VLANs[0].View
}

// names returns the names of the hosted cluster that a client sees and that have IPv4 addresses. For each apps domain these
// are the console and an unused name, which DNS and the proxy must handle like an app's name.
func (s *subject) names(c Client) []expectation {
	view := s.view(c)
	if view == nil || s.Cluster == nil {
		return nil
	}
	var list []expectation
	add := func(name string, addresses []netip.Addr) {
		if v4 := ipv4(addresses); len(v4) > 0 {
			list = append(list, expectation{name, v4})
		}
	}
	for _, n := range view.Names {
		if n.Target != nil && n.Cluster == s.Cluster.Ref {
			add(n.Name, n.Addresses)
		}
	}
	for _, a := range view.Apps {
		if a.Subtree && a.Served && a.Cluster != nil && *a.Cluster == s.Cluster.Ref {
			add(consoleHost+"."+a.Name, a.Addresses)
		}
	}
	for _, n := range list {
		if s.isApp(n.Name) {
			_, domain, _ := strings.Cut(n.Name, ".")
			n.Name = s.label + "." + domain
			list = append(list, n)
		}
	}
	return list
}

// consoleHost is the host of an app that exists in every OpenShift cluster.
const consoleHost = "console-openshift-console"

// ports returns the ports at which clients connect to a name, for a role, or for all roles if role is empty. It excludes names that no
// object defines, since the server's certificate need not contain them.
func ports(h *model.Hostname, role model.Role) []uint16 {
	var list []uint16
	for _, e := range h.Endpoints {
		if (role == "" || e.Role == role) && e.Port > 0 && e.Port <= 1<<16-1 && e.Source != "convention" {
			list = append(list, uint16(e.Port))
		}
	}
	return list
}

// servers returns a client's DNS servers: oooi's DNS on the VLAN, or the cluster IPs of its Service.
func (s *subject) servers(c Client) []netip.Addr {
	list := s.Model.DNS
	if c == Pod {
		list = s.Snapshot.ServiceIPs(s.Key() + "-dns")
	}
	return ipv4(list)
}

// ipv4 returns the IPv4 addresses of a list.
func ipv4(list []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(list), func(a netip.Addr) bool { return !a.Is4() })
}

// listeners returns the TCP listeners of an Infra's proxy; none without a ProxyServer.
func (s *subject) listeners(i *model.Infra) []*model.Listener {
	var list []*model.Listener
	for _, p := range s.Snapshot.ProxyServers {
		if p.Infra != nil && *p.Infra == i.Ref {
			list = append(list, p.Listeners...)
		}
	}
	return slices.DeleteFunc(list, func(l *model.Listener) bool { return l.UDP })
}

// apps returns the expectations for apps names.
func (s *subject) apps(c Client) []expectation {
	return slices.DeleteFunc(s.names(c), func(n expectation) bool { return !s.isApp(n.Name) })
}

func (s *subject) isApp(name string) bool {
	return s.Cluster != nil && !slices.ContainsFunc(s.Cluster.Hostnames, func(h model.Hostname) bool { return h.Name == name }) &&
		slices.ContainsFunc(s.Cluster.AppsDomains, func(domain string) bool { return strings.HasSuffix(name, "."+domain) })
}

// hasNamedCertificate reports whether the HostedCluster defines a certificate of another CA for a name of the API server.
// A certificate without names may be for any name: its names are in a Secret.
func (s *subject) hasNamedCertificate(name string) bool {
	u := s.HostedCluster()
	if u == nil {
		return false
	}
	named, _, _ := unstructured.NestedSlice(u.Object, "spec", "configuration", "apiServer", "servingCerts", "namedCertificates")
	return slices.ContainsFunc(named, func(one any) bool {
		certificate, _ := one.(map[string]any)
		names, _, _ := unstructured.NestedStringSlice(certificate, "names")
		return len(names) == 0 || (&x509.Certificate{DNSNames: names}).VerifyHostname(name) == nil
	})
}
