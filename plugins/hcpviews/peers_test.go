package hcpviews

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	_ "github.com/coredns/coredns/plugin/file"
	_ "github.com/coredns/coredns/plugin/template"

	"github.com/miekg/dns"
)

// labels are the control-plane names of each cluster, relative to its domain.
var labels = []string{
	"api", "api-int", "oauth", "ignition", "ignition-server", "konnectivity", "konnectivity-server", "oauth-openshift.apps",
}

// A fleet is a number of hosted clusters with their names and proxy Services.
type fleet struct {
	names     []string // shuffled
	manifests string   // folder of manifests
	zone      string   // zone file for the file plugin
}

func newFleet(b *testing.B, n int) *fleet {
	b.Helper()
	dir := b.TempDir()
	f := &fleet{manifests: filepath.Join(dir, "manifests"), zone: filepath.Join(dir, "zone")}
	var objects, zone strings.Builder
	zone.WriteString("@ 30 IN SOA ns hostmaster 1 7200 1800 86400 5\n@ 30 IN NS ns\nns 30 IN A 192.0.2.1\n")
	for i := range n {
		cluster, address := fmt.Sprintf("c%05d", i), fmt.Sprintf("10.%d.%d.%d", 96+i>>16, i>>8&255, i&255)
		fmt.Fprintf(&objects, `
{"apiVersion": "hypershift.openshift.io/v1beta1", "kind": "HostedCluster", "metadata": {"namespace": "clusters", "name": %[1]q}, "spec": {"dns": {"baseDomain": "bench.example.com"}}}
{"apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "Infra", "metadata": {"namespace": "clusters", "name": %[1]q}, "spec": {
 "hostedClusterRef": {"name": %[1]q}, "networkConfig": {"cidr": "127.%[3]d.%[4]d.0/24", "gateway": "127.%[3]d.%[4]d.1", "networkAttachmentDefinition": %[1]q},
 "infraComponents": {"proxy": {"serverIP": "127.%[3]d.%[4]d.3", "internalProxyService": %[2]q}}}}
`, cluster, address, 64+i>>8, i&255)
		for _, label := range labels {
			name := label + "." + cluster + ".bench.example.com"
			f.names = append(f.names, name+".")
			fmt.Fprintf(&zone, "%s. 30 IN A %s\n", name, address)
		}
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(f.names), func(i, j int) { f.names[i], f.names[j] = f.names[j], f.names[i] })
	if err := os.Mkdir(f.manifests, 0o700); err != nil {
		b.Fatal(err)
	}
	for path, text := range map[string]*strings.Builder{
		filepath.Join(f.manifests, "all.json"): &objects, f.zone: &zone,
	} {
		if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	return f
}

// stock sets up a plugin of CoreDNS and returns its handler.
func stock(b *testing.B, name, corefile string) plugin.Handler {
	b.Helper()
	action, err := caddy.DirectiveAction("dns", name)
	if err != nil {
		b.Fatal(err)
	}
	c := caddy.NewTestController("dns", corefile)
	c.ServerBlockKeys = []string{"bench.example.com."}
	if err := action(c); err != nil {
		b.Fatal(err)
	}
	return dnsserver.GetConfig(c).Plugin[0](upstream())
}

// BenchmarkPeers queries all names of some clusters in turn, as a pod, with hcpviews, with the cheapest possible
// handler, and with stock plugins that have the same names. "make bench" measures hosts, which reads its file only
// in a running server, and kubernetes and k8s_external, which derive names from other objects.
func BenchmarkPeers(b *testing.B) {
	for _, n := range []int{1, 100, 1000, 10000} {
		f := newFleet(b, n)
		for _, peer := range []struct {
			name string
			make func(b *testing.B) plugin.Handler
		}{
			{"noop", func(*testing.B) plugin.Handler { return floor() }},
			{"hcpviews", func(b *testing.B) plugin.Handler {
				return start(b, fmt.Sprintf("hcpviews bench.example.com {\n manifests %s\n}", f.manifests))
			}},
			{"file", func(b *testing.B) plugin.Handler { return stock(b, "file", "file "+f.zone+" bench.example.com") }},
			{"template", func(b *testing.B) plugin.Handler {
				return stock(b, "template", "template IN A bench.example.com {\n match ^[a-z-]+([.]apps)?[.]c[0-9]+[.]\n answer \"{{ .Name }} 30 IN A 192.0.2.3\"\n}")
			}},
		} {
			b.Run(fmt.Sprintf("%s/clusters=%d", peer.name, n), func(b *testing.B) {
				h := peer.make(b)
				ctx, w := b.Context(), newFixedClient(podClient)
				r := new(dns.Msg).SetQuestion(f.names[0], dns.TypeA)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					r.Question[0].Name = f.names[i%len(f.names)]
					if code, err := h.ServeDNS(ctx, w, r); err != nil || code != dns.RcodeSuccess {
						b.Fatal(code, err)
					}
				}
			})
		}
	}
}
