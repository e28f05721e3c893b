package control_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// Clients of the chain, and what they ask. The VLAN is 192.0.2.0/24.
const (
	vm        = "192.0.2.50"
	pod       = "198.18.0.9"
	dnsServer = "192.0.2.2"
	proxy     = "192.0.2.3"
	// serviceIP is the proxy's for pods, which reach the VLAN through it. There is no kube-proxy,
	// so Envoy listens on it itself.
	serviceIP = "127.96.0.90"
)

// chain is everything between a hosted cluster's applications and who uses them: CoreDNS, and
// xdsd serve with its Envoy, as users who may not read the administrator's kubeconfig.
type chain struct {
	*tenant

	ca      *lab.CA
	coredns *lab.Daemon
	serve   *lab.Daemon
	envoy   *lab.Envoy
}

// rights are those of the daemons that answer and route.
const rights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: oooi-read}
rules:
- {apiGroups: [hypershift.openshift.io], resources: [hostedclusters], verbs: [get, list, watch]}
- {apiGroups: [hostedcluster.densityops.com], resources: [infras, proxyservers], verbs: [get, list, watch]}
- {apiGroups: [route.openshift.io], resources: [routes], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [services], verbs: [get, list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: oooi-read}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: oooi-read}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: reader}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: oooi-read, namespace: %[1]s}
rules: [{apiGroups: [""], resources: [secrets], resourceNames: [demo-apps-reader], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: oooi-read, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: oooi-read}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: reader}]
---
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: demo, namespace: %[1]s}
spec:
  infraRef: {name: demo}
  networkConfig: {serverIP: 192.0.2.3}
  backends: []
---
apiVersion: v1
kind: Service
metadata: {name: demo-proxy, namespace: %[1]s}
spec: {clusterIP: %[2]s, ports: [{port: 443}]}
`

const corefile = `
.:53 {
    bind ` + dnsServer + `
    errors
    hcpviews {
        kubeconfig %[1]s
        infra %[2]s/demo
        hostedcluster %[2]s/demo
        snapshot %[3]s
    }
    hcpapps
    template IN ANY . {
        rcode NXDOMAIN
    }
}
`

// newChain starts the daemons, and control.
func newChain(t *testing.T, pool string) *chain {
	t.Helper()
	network.Need(t)
	c := &chain{tenant: withMetalLB(t, pool), ca: lab.NewCA(t)}
	apply(t, c.management, fmt.Sprintf(rights, c.namespace, serviceIP))
	t.Cleanup(func() { // the address is wanted by the next test
		ctx, cancel := context.WithTimeout(context.Background(), lab.Patience)
		defer cancel()
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "demo-proxy"}}
		if err := c.client.Delete(ctx, service); err != nil {
			t.Error(err)
		}
	})
	kubeconfig, err := c.management.UserKubeconfig("reader")
	if err != nil {
		t.Fatal(err)
	}
	dir := lab.TempDir(t)
	path := filepath.Join(dir, "Corefile")
	text := fmt.Sprintf(corefile, kubeconfig, c.namespace, filepath.Join(dir, "dns.json"))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c.coredns = lab.NewDaemon(t, "coredns", func() *exec.Cmd { return exec.Command(network.Binary(t, "coredns"), "-conf", path) })
	xdsd, self := network.Binary(t, "xdsd"), c.namespace+"/demo"
	socket := filepath.Join(dir, "xds.sock")
	c.serve = lab.NewDaemon(t, "xdsd serve", func() *exec.Cmd {
		return exec.Command(xdsd, "serve", "--kubeconfig", kubeconfig, "--proxy-server", self, "--infra", self, "--hosted-cluster", self,
			"--namespace", c.namespace, "--socket", socket, "--bind", proxy+","+serviceIP, "--http", "127.0.9.1:9902", "--snapshot", filepath.Join(dir, "xds.json"))
	})
	newReplica(t, c.management, "control").Start(t)
	c.coredns.Start(t)
	c.serve.Start(t)
	flags := []string{"bootstrap", "--proxy-server", self, "--node-id", "demo", "--metrics-address", "127.0.9.1", "--socket", socket, "--admin-socket", filepath.Join(dir, "admin.sock")}
	c.envoy = lab.NewEnvoy(t, lab.EnvoyConfig{
		Bootstrap: output(t, xdsd, flags...), Logf: t.Logf,
		Args: strings.Fields(string(output(t, xdsd, append(flags, "--args")...))),
	})
	return c
}

func output(t *testing.T, command string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(command, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	return out
}

// name is a name of the applications.
func (c *chain) name(label string) string {
	return label + ".apps.demo." + c.namespace + ".example.com"
}

// dig asks DNS as a client would, and returns the addresses that it is told, or the rcode.
func (c *chain) dig(ctx context.Context, source string, qtype uint16) string {
	client := dns.Client{Timeout: 5 * time.Second, Dialer: &net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(source)}}}
	reply, _, err := client.ExchangeContext(ctx, new(dns.Msg).SetQuestion(c.name("console")+".", qtype), dnsServer+":53")
	if err != nil {
		return err.Error()
	}
	var list []string
	for _, rr := range reply.Answer {
		list = append(list, dns.Field(rr, 1))
	}
	slices.Sort(list)
	if len(list) == 0 {
		return dns.RcodeToString[reply.Rcode]
	}
	return strings.Join(list, " ")
}

// connect does a TLS handshake with the applications through an address of the proxy, and
// returns which backend that was.
func (c *chain) connect(ctx context.Context, through string) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, name, err := c.ca.DialTLS(ctx, net.JoinHostPort(through, "443"), c.name("console"))
	if err == nil {
		err = conn.Close()
	}
	if err != nil {
		return err.Error()
	}
	return name
}

// amiss says what of names and connections is not at an address: for machines it is the
// applications', and for pods the proxy's.
func (c *chain) amiss(ctx context.Context, v4, v6 string, right func(what string)) string {
	var amiss []string
	for _, q := range []struct{ what, is, want string }{
		{"A for machines", c.dig(ctx, vm, dns.TypeA), v4},
		{"AAAA for machines", c.dig(ctx, vm, dns.TypeAAAA), v6},
		{"A for pods", c.dig(ctx, pod, dns.TypeA), serviceIP},
		{"AAAA for pods", c.dig(ctx, pod, dns.TypeAAAA), "NOERROR"},
		{"TLS from machines", c.connect(ctx, proxy), v4},
		{"TLS from pods", c.connect(ctx, serviceIP), v4},
	} {
		if q.is != q.want {
			amiss = append(amiss, q.what+" is "+q.is)
		} else if right != nil {
			right(q.what)
		}
	}
	return strings.Join(amiss, ", ")
}

// follow waits until names and connections are at an address, and logs how long each took
// since a moment.
func (c *chain) follow(since time.Time, v4, v6 string) {
	c.Helper()
	took := make(map[string]time.Duration)
	await(c.T, "names and connections to follow to "+v4, func() string {
		return c.amiss(c.Context(), v4, v6, func(what string) {
			if _, ok := took[what]; !ok {
				took[what] = time.Since(since).Round(time.Millisecond)
			}
		})
	})
	c.Logf("at %s after: %v", v4, took)
}

// backend serves the applications at an address.
func (c *chain) backend(address string) {
	c.Helper()
	// The name that it says first is the address.
	c.ca.TLSBackend(c.T, net.JoinHostPort(address, "443"), address, c.name("*"))
}

// TestNamesAndConnectionsFollowTheAddress goes the whole way: Infra, control, the Service in the
// hosted cluster, MetalLB, the model, and from there both DNS and Envoy.
func TestNamesAndConnectionsFollowTheAddress(t *testing.T) {
	c := newChain(t, `192.0.2.200/32, "2001:db8::200/128"`)
	for _, address := range []string{"192.0.2.200", "192.0.2.210"} {
		c.backend(address)
	}
	start := time.Now()
	c.infra(usual(", service: {ipFamilyPolicy: RequireDualStack}"))
	c.await(ready, "", "", "192.0.2.200", "2001:db8::200")
	t.Logf("Ready after %s", time.Since(start).Round(time.Millisecond))
	c.follow(time.Now(), "192.0.2.200", "2001:db8::200")

	// Another address.
	start = time.Now()
	c.pool(`192.0.2.210/32, "2001:db8::210/128"`)
	c.follow(start, "192.0.2.210", "2001:db8::210")
	c.await(ready, "", "", "192.0.2.210", "2001:db8::210")

	// Withdrawn: the last one stays. Given back is another one.
	if err := c.hosted.KillMetalLB(); err != nil {
		t.Fatal(err)
	}
	c.assign()
	c.await(degraded, "AddressWithdrawn", "", "192.0.2.210", "2001:db8::210")
	c.follow(time.Now(), "192.0.2.210", "2001:db8::210")
	start = time.Now()
	c.assign("192.0.2.200")
	c.follow(start, "192.0.2.200", "NOERROR")
	c.await(ready, "", "", "192.0.2.200")
}

// away is how long the hosted cluster's API server is away. The long one exceeds the time that
// watches are kept and requests retried, and control's longest retry interval.
var away = lab.Length(5*time.Second, 2*time.Minute)

// TestTheLastAddressStaysWhileTheHostedClusterIsAway has every daemon restarted meanwhile.
func TestTheLastAddressStaysWhileTheHostedClusterIsAway(t *testing.T) {
	c := newChain(t, "192.0.2.200/32")
	for _, address := range []string{"192.0.2.200", "192.0.2.210"} {
		c.backend(address)
	}
	c.infra(usual(""))
	c.follow(time.Now(), "192.0.2.200", "NOERROR")
	c.await(ready, "", "", "192.0.2.200")
	if err := c.hosted.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	c.await(degraded, "HostedClusterUnreachable", "", "192.0.2.200")
	c.coredns.Kill(t)
	c.coredns.Start(t)
	c.serve.Kill(t)
	if err := c.envoy.Kill(); err != nil {
		t.Fatal(err)
	}
	c.serve.Start(t)
	if err := c.envoy.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.follow(time.Now(), "192.0.2.200", "NOERROR")

	asked := 0
	for ; time.Since(killed) < away; time.Sleep(100 * time.Millisecond) {
		asked++
		if amiss := c.amiss(t.Context(), "192.0.2.200", "NOERROR", nil); amiss != "" {
			t.Fatalf("%s into the outage %s", time.Since(killed).Round(time.Second), amiss)
		}
	}
	c.await(degraded, "HostedClusterUnreachable", "", "192.0.2.200")
	t.Logf("%d times everything was as before", asked)
	if err := c.hosted.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	c.await(ready, "", "", "192.0.2.200")
	t.Logf("Ready %s after the API server was", time.Since(back).Round(time.Millisecond))
	c.pool("192.0.2.210/32")
	await(t, "MetalLB, which has its own pauses, to give another address", func() string {
		if list := c.service().Status.LoadBalancer.Ingress; len(list) != 1 || list[0].IP != "192.0.2.210" {
			return fmt.Sprint(list)
		}
		return ""
	})
	c.follow(time.Now(), "192.0.2.210", "NOERROR")
}

// TestWhatIsTakenBackIsNotAnswered disables the applications, and deletes the Infra.
func TestWhatIsTakenBackIsNotAnswered(t *testing.T) {
	c := newChain(t, "192.0.2.200/32")
	c.backend("192.0.2.200")
	gone := func(how string) {
		t.Helper()
		await(t, "the applications' names to go", func() string {
			for what, is := range map[string]string{
				"machines": c.dig(t.Context(), vm, dns.TypeA), "pods": c.dig(t.Context(), pod, dns.TypeA),
			} {
				if is != "NXDOMAIN" {
					return "A for " + what + " is " + is
				}
			}
			if is := c.connect(t.Context(), proxy); !strings.Contains(is, how) {
				return "TLS is " + is
			}
			return ""
		})
	}
	c.infra(usual(""))
	c.follow(time.Now(), "192.0.2.200", "NOERROR")
	c.infra("{enabled: false}")
	gone("handshake") // as any other name of the cluster: it is the API server's, of which there is none
	c.infra(usual(""))
	c.follow(time.Now(), "192.0.2.200", "NOERROR")
	if err := c.client.Delete(t.Context(), &v1alpha1.Infra{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "demo"}}); err != nil {
		t.Fatal(err)
	}
	gone("refused") // nothing is routed without the Infra
}
