package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// Names of the hosted cluster: of two apps, one label and two labels below the apps domain, and of the OAuth server in both
// domains.
const (
	domain   = "demo.lab.example.com"
	shopName = "shop.apps." + domain
	cartName = "cart.shop.apps." + domain
)

var oauthNames = []string{"oauth." + domain, "oauth-openshift.apps." + domain}

// site is the hosted cluster of both modes, with its VLAN on a node.
var site = lab.Site{BaseDomain: "lab.example.com", VLAN: "198.18.50", Network: "vlan50"}

// certificate returns a certificate of a new CA, so that a client that trusts the CA verifies exactly this server. It
// writes the CA for curl as FILE.crt.
func (s *show) certificate(file string, names ...string) tls.Certificate {
	ca := lab.NewCA(s)
	s.write(file+".crt", string(ca.PEM()))
	return ca.Certificate(s, names...)
}

// named returns a handler that replies with its name, the host and, if from is set, the client's address.
func named(name string, from bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		line := name + ": request for " + r.Host
		if from {
			client, _, _ := net.SplitHostPort(r.RemoteAddr)
			line += " from " + client
		}
		fmt.Fprintln(w, line)
	})
}

// ticks streams a numbered line every five milliseconds until the client disconnects.
func ticks(w http.ResponseWriter, r *http.Request) {
	for tick := 1; r.Context().Err() == nil; tick++ {
		fmt.Fprintf(w, "tick %d\n", tick)
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// startResolver starts the upstream resolver, which answers queries for A records with one address, and queries in the domain
// invalid with NXDOMAIN.
func (s *show) startResolver(address string) {
	lab.ServeDNS(s, net.JoinHostPort(address, "53"), func(w dns.ResponseWriter, query *dns.Msg) {
		reply := lab.DNSReply(query, upstream)
		if dns.IsSubDomain("invalid.", query.Question[0].Name) {
			reply = new(dns.Msg).SetRcode(query, dns.RcodeNameError)
		}
		_ = w.WriteMsg(reply) // the client may have closed its socket
	})
}

// get reads an object.
func (s *show) get(cp *lab.ControlPlane, namespace, name string, object kube.Object) {
	s.check(cp.Client(s).Get(s.ctx, kube.ObjectKey{Namespace: namespace, Name: name}, object))
}

// showApps waits until the apps address is ready, and prints it.
func (s *show) showApps(management *lab.ControlPlane, want string) {
	const jsonpath = "{.status.appsIngress.phase} {.status.appsIngress.externalIPs}"
	var state string
	s.await("the apps address", func() (bool, string) {
		var infra v1alpha1.Infra
		s.get(management, "clusters", "demo", &infra)
		apps := infra.Status.AppsIngress
		if apps == nil || apps.Phase != v1alpha1.AppsIngressReady {
			return false, fmt.Sprintf("%+v", apps)
		}
		addresses, err := json.Marshal(apps.ExternalIPs)
		s.check(err)
		state = fmt.Sprintf("%s %s", apps.Phase, addresses)
		return true, ""
	})
	s.printf("$ kubectl -n clusters get infra demo -o jsonpath='%s'\n", jsonpath)
	s.verdict(state, strings.HasPrefix(state, want))
}

// ignitionRoute returns the Route of the ignition server with a hostname.
func ignitionRoute(host string) string {
	return fmt.Sprintf(`
apiVersion: route.openshift.io/v1
kind: Route
metadata: {name: ignition-server, namespace: clusters-demo}
spec:
  host: %s
  to: {kind: Service, name: ignition-server-proxy, weight: 100}
`, host)
}

// typeApply prints a change as it would be typed.
func (s *show) typeApply(change string) {
	s.printf("$ kubectl apply -f - <<EOF\n%s\nEOF\n", strings.TrimSpace(change))
}

// roots returns a pool with the CA of a file.
func (s *show) roots(file string) *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.read(file))
	return roots
}

// replies reports whether a new connection to an address, from a source address, gets a reply with a text for a host.
func replies(ctx context.Context, source netip.Addr, address netip.AddrPort, host, text string, roots *x509.CertPool) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	raw, err := (*lab.Namespace)(nil).Dial(ctx, source, address)
	if err != nil {
		return false
	}
	defer func() { _ = raw.Close() }() // read completely
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	conn := tls.Client(raw, &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12})
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.0\r\nHost: %s\r\n\r\n", host); err != nil {
		return false
	}
	reply, err := io.ReadAll(conn)
	return err == nil && strings.Contains(string(reply), text)
}
