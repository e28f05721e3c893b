package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/lab"
)

func TestMain(m *testing.M) {
	if err := dnsserver.SetDirectives(directives(dnsserver.Directives)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	dnsserver.Quiet = true
	os.Exit(m.Run())
}

func TestOurPluginsAreBetweenACLAndCache(t *testing.T) {
	order := dnsserver.Directives
	for _, plugin := range oooiPlugins {
		at := slices.Index(order, plugin)
		if at < slices.Index(order, "acl") || at > slices.Index(order, "cache") {
			t.Errorf("%s has position %d in %v", plugin, at, order)
		}
	}
}

func TestPluginsAreRegistered(t *testing.T) {
	known := caddy.ListPlugins()["others"]
	for _, plugin := range append([]string{"acl", "cache", "forward", "ready", "multisocket", "reload", "prometheus"}, oooiPlugins...) {
		if !slices.Contains(known, "dns."+plugin) {
			t.Errorf("%s is not in the build: %v", plugin, known)
		}
	}
}

// manifests returns a directory with two hosted clusters, each with its own VLAN on loopback.
func manifests(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for i, cluster := range []string{"blue", "green"} {
		content := fmt.Sprintf(`
apiVersion: hypershift.openshift.io/v1beta1
kind: HostedCluster
metadata: {name: %[1]s, namespace: clusters}
spec: {dns: {baseDomain: example.com}}
---
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: %[1]s, namespace: clusters}
spec:
  hostedClusterRef: {name: %[1]s}
  networkConfig: {cidr: 127.%[2]d.0.0/24, gateway: 127.%[2]d.0.1, networkAttachmentDefinition: vlan%[2]d}
  infraComponents: {proxy: {serverIP: 127.%[2]d.0.3}}
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s-proxy, namespace: clusters}
spec: {clusterIP: 10.96.0.%[2]d}
`, cluster, 50+i)
		lab.WriteFile(t, content, dir, cluster+".yaml")
	}
	return dir
}

// Clients of the manifests.
const (
	blueVM  = "127.50.0.10"
	greenVM = "127.51.0.10"
	pod     = "127.0.0.1"
)

// start runs CoreDNS with a Corefile until the end of the test.
func start(t *testing.T, corefile string) *caddy.Instance {
	t.Helper()
	instance, err := caddy.Start(input(corefile))
	if err != nil {
		t.Fatalf("starting with %s: %v", corefile, err)
	}
	t.Cleanup(func() { stop(t, instance) })
	return instance
}

func stop(t *testing.T, instance *caddy.Instance) {
	t.Helper()
	instance.ShutdownCallbacks()
	lab.Report(t, instance.Stop())
}

func input(corefile string) caddy.CaddyfileInput {
	return caddy.CaddyfileInput{Contents: []byte(corefile), Filepath: "Corefile", ServerTypeName: "dns"}
}

// address returns the UDP address of the n-th server of an instance.
func address(t *testing.T, instance *caddy.Instance, n int) string {
	t.Helper()
	return instance.Servers()[n].LocalAddr().String()
}

// exchange sends a query to a server from a source address and returns the reply.
func exchange(t *testing.T, server, source string, m *dns.Msg) *dns.Msg {
	t.Helper()
	client := dns.Client{Timeout: 5 * time.Second, Dialer: &net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(source)}}}
	reply, _, err := client.ExchangeContext(t.Context(), m, server)
	if err != nil {
		t.Fatalf("%s from %s: %v", m.Question[0].Name, source, err)
	}
	return reply
}

// resolve sends a query from a source address and returns the addresses of the answer, or the rcode without one.
func resolve(t *testing.T, server, source, name string) string {
	t.Helper()
	reply := exchange(t, server, source, new(dns.Msg).SetQuestion(name, dns.TypeA))
	if len(reply.Answer) == 0 {
		return dns.RcodeToString[reply.Rcode]
	}
	var words []string
	for _, rr := range reply.Answer {
		words = append(words, dns.Field(rr, 1))
	}
	return strings.Join(words, " ")
}

func expect(t *testing.T, server, source, name, want string) {
	t.Helper()
	if got := resolve(t, server, source, name); got != want {
		t.Errorf("%s from %s is %s, want %s", name, source, got, want)
	}
}

// upstream starts a server that answers all queries with one address.
func upstream(t *testing.T) string {
	t.Helper()
	return address(t, start(t, `.:0 {
		bind 127.0.0.1
		template IN A . {
			answer "{{ .Name }} 60 IN A 203.0.113.99"
		}
	}`), 0)
}

func TestCacheNeverMixesViews(t *testing.T) {
	server := address(t, start(t, fmt.Sprintf(`.:0 {
		bind 127.0.0.1
		cache 3600
		hcpviews {
			manifests %s
		}
		forward . %s
	}`, manifests(t), upstream(t))), 0)
	for range 3 { // the first pass fills the cache
		expect(t, server, blueVM, "api.blue.example.com.", "127.50.0.3")
		expect(t, server, pod, "api.blue.example.com.", "10.96.0.50")
		expect(t, server, greenVM, "api.blue.example.com.", "203.0.113.99")
		expect(t, server, greenVM, "api.green.example.com.", "127.51.0.3")
		expect(t, server, blueVM, "api.green.example.com.", "203.0.113.99")
		expect(t, server, blueVM, "www.example.org.", "203.0.113.99")
		expect(t, server, blueVM, "shop.apps.blue.example.com.", "203.0.113.99")
		expect(t, server, blueVM, "typo.blue.example.com.", "NXDOMAIN")
	}
}

func TestOneBlockPerView(t *testing.T) {
	dir := manifests(t)
	instance := start(t, fmt.Sprintf(`.:0 {
		bind 127.0.0.2
		cache
		hcpviews example.com {
			manifests %[1]s
			infra clusters/blue
			view vlan
		}
	}
	.:0 {
		bind 127.0.0.1
		cache
		hcpviews example.com {
			manifests %[1]s
			infra clusters/blue
			view pod
		}
	}`, dir))
	servers := map[string]string{}
	for _, s := range instance.Servers() {
		host, _, err := net.SplitHostPort(s.LocalAddr().String())
		lab.Must(t, err)
		servers[host] = s.LocalAddr().String()
	}
	expect(t, servers["127.0.0.2"], blueVM, "api.blue.example.com.", "127.50.0.3")
	expect(t, servers["127.0.0.2"], pod, "api.blue.example.com.", "REFUSED")
	expect(t, servers["127.0.0.1"], pod, "api.blue.example.com.", "10.96.0.50")
	expect(t, servers["127.0.0.1"], blueVM, "api.blue.example.com.", "10.96.0.50")
}

func TestReloads(t *testing.T) {
	corefile := func(dir, more string) string {
		return fmt.Sprintf(".:0 {\n bind 127.0.0.1\n hcpviews {\n manifests %s\n %s\n }\n}", dir, more)
	}
	dir := manifests(t)
	instance, err := caddy.Start(input(corefile(dir, "")))
	lab.Must(t, err)
	expect(t, address(t, instance, 0), blueVM, "api.blue.example.com.", "127.50.0.3")

	reload := func(corefile string) error {
		next, err := instance.Restart(input(corefile))
		if err == nil {
			instance = next
		}
		return err
	}
	lab.Must(t, reload(corefile(dir, "ttl 10")))
	before := stableGoroutines()
	for i := range 30 {
		lab.Must(t, reload(corefile(dir, fmt.Sprint("ttl ", i))))
		expect(t, address(t, instance, 0), blueVM, "api.blue.example.com.", "127.50.0.3")
	}
	failing := corefile(manifests(t), "") + "\n.:0 {\n bind 127.0.0.2\n hcpviews {\n kubeconfig /nonexistent\n }\n}"
	for name, broken := range map[string]struct{ corefile, wantErr string }{
		"an unknown property":                          {corefile(dir, "no-such-word"), "unknown property 'no-such-word'"},
		"a block that fails after another has started": {failing, "/nonexistent"},
	} {
		if err := reload(broken.corefile); err == nil || !strings.Contains(err.Error(), broken.wantErr) {
			t.Errorf("%s: error %v, want one with %q", name, err, broken.wantErr)
		}
		expect(t, address(t, instance, 0), blueVM, "api.blue.example.com.", "127.50.0.3")
	}
	if after := stableGoroutines(); after > before+15 { // a leak is at least one for each reload; some end late
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines before 32 reloads, %d after\n%s", before, after, buf[:runtime.Stack(buf, true)])
	}
	stop(t, instance)
}

// stableGoroutines returns the number of goroutines once it has not changed for 200 ms.
func stableGoroutines() int {
	n, same := runtime.NumGoroutine(), 0
	for deadline := time.Now().Add(20 * time.Second); same < 20 && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if now := runtime.NumGoroutine(); now == n {
			same++
		} else {
			n, same = now, 0
		}
	}
	return n
}

func TestBothPluginsShareTheBlocksSource(t *testing.T) {
	dir := manifests(t)
	appsIngress := "\n  appsIngress: {enabled: true, source: Static, addresses: [198.51.100.50]}\n---"
	path := filepath.Join(dir, "blue.yaml")
	content, err := os.ReadFile(path)
	lab.Must(t, err)
	lab.Must(t, os.WriteFile(path, []byte(strings.Replace(string(content), "\n---\napiVersion: v1\nkind: Service", appsIngress+"\napiVersion: v1\nkind: Service", 1)), 0o600))
	server := address(t, start(t, fmt.Sprintf(`.:0 {
		bind 127.0.0.1
		hcpviews {
			manifests %s
		}
		hcpapps
		cache
		forward . %s
	}`, dir, upstream(t))), 0)
	for range 2 {
		expect(t, server, blueVM, "api.blue.example.com.", "127.50.0.3")
		expect(t, server, blueVM, "shop.apps.blue.example.com.", "198.51.100.50")
		expect(t, server, blueVM, "oauth-openshift.apps.blue.example.com.", "127.50.0.3")
		expect(t, server, blueVM, "typo.blue.example.com.", "NXDOMAIN")
		expect(t, server, pod, "shop.apps.blue.example.com.", "10.96.0.50")
		expect(t, server, greenVM, "shop.apps.blue.example.com.", "203.0.113.99")
	}
}

func TestCheckCorefile(t *testing.T) {
	for _, tc := range []struct{ name, plugin, wantErr string }{
		{"a valid Corefile", "view vlan", ""},
		{"a property without its value", "view", "view: must have arguments NAME"},
		{"an unknown property", "vue vlan", "vue"},
	} {
		file := filepath.Join(t.TempDir(), "Corefile")
		lab.Must(t, os.WriteFile(file, []byte(".:53 {\n  bind lo\n  hcpviews example.com {\n    "+tc.plugin+"\n  }\n  forward . 203.0.113.53\n}\n"), 0o600))
		lab.Must(t, flag.Set("conf", file))
		var out strings.Builder
		err := checkCorefile(&out)
		switch {
		case tc.wantErr == "" && (err != nil || !strings.HasSuffix(out.String(), "Corefile is valid\n")):
			t.Errorf("%s: %v, %s", tc.name, err, &out)
		case tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)):
			t.Errorf("%s: error %v, want one with %q", tc.name, err, tc.wantErr)
		}
	}
}

// TestPassedNamesAreCached queries a name in the plugin's zones that belongs to no hosted cluster.
func TestPassedNamesAreCached(t *testing.T) {
	var queries atomic.Int32
	upstream := lab.ServeDNS(t, "127.0.0.1:0", func(w dns.ResponseWriter, r *dns.Msg) {
		queries.Add(1)
		lab.Report(t, w.WriteMsg(lab.DNSReply(r, "203.0.113.99")))
	})
	address := address(t, start(t, fmt.Sprintf(".:0 {\n bind 127.0.0.1\n cache\n hcpviews example.com {\n manifests %s\n }\n hcpapps example.com\n forward . %s\n}",
		manifests(t), upstream)), 0)
	for range 3 {
		expect(t, address, blueVM, "www.example.com.", "203.0.113.99")
	}
	if n := queries.Load(); n != 1 {
		t.Errorf("the upstream received %d queries, want 1", n)
	}
}

// TestServerWithoutAPIServerAnswersAtOnce starts CoreDNS without an API server. Clients must get SERVFAIL with an
// extended error soon, without the wait of a reload.
func TestServerWithoutAPIServerAnswersAtOnce(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	lab.Must(t, os.WriteFile(kubeconfig, []byte(`
apiVersion: v1
kind: Config
clusters: [{name: away, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: away, context: {cluster: away, user: away}}]
users: [{name: away, user: {token: none}}]
current-context: away
`), 0o600))
	before := time.Now()
	instance := start(t, fmt.Sprintf(".:0 {\n bind 127.0.0.1\n hcpviews {\n kubeconfig %s\n guard example.com\n }\n hcpapps\n template IN A {\n rcode NXDOMAIN\n }\n}", kubeconfig))
	if took := time.Since(before); took > 2*time.Second {
		t.Errorf("the server listened after %s", took)
	}
	for _, name := range []string{"api.blue.example.com.", "shop.apps.blue.example.com."} {
		m := new(dns.Msg).SetQuestion(name, dns.TypeA)
		m.SetEdns0(1232, false)
		reply := exchange(t, address(t, instance, 0), pod, m)
		opt := reply.IsEdns0()
		if reply.Rcode != dns.RcodeServerFailure || opt == nil || len(opt.Option) != 1 {
			t.Fatalf("%s: %s", name, reply)
		}
		if ede, ok := opt.Option[0].(*dns.EDNS0_EDE); !ok || ede.InfoCode != dns.ExtendedErrorCodeNotReady {
			t.Errorf("%s: the extended error is %v", name, opt.Option[0])
		}
	}
	expect(t, address(t, instance, 0), pod, "www.example.net.", "NXDOMAIN") // outside of the guarded zones
}
