package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/lab"
)

// Where the clients of the demo stand.
const (
	demoVM  = "127.50.0.10"
	otherVM = "127.60.0.10"
	pod     = "127.0.0.1"
)

// transcript asks, prints, and counts.
type transcript struct {
	io.Writer
	server *server
	asked  int
	wrong  int
}

func (t *transcript) printf(format string, args ...any) { fmt.Fprintf(t, format, args...) }

// want says what is right: the status, and what the answers hold in their data.
type want struct {
	status string
	data   func(rdata string) bool // nil: there is to be no answer
}

func only(address string) want {
	return want{"NOERROR", func(rdata string) bool { return rdata == address }}
}

// in wants an address of a network, for ClusterIPs, which the API server chooses.
func in(network string) want {
	prefix := netip.MustParsePrefix(network)
	return want{"NOERROR", func(rdata string) bool {
		a, err := netip.ParseAddr(rdata)
		return err == nil && prefix.Contains(a)
	}}
}

var (
	noData   = want{status: "NOERROR"}
	nxDomain = want{status: "NXDOMAIN"}
	passed   = only(upstream) // the site's resolvers answered
)

func (t *transcript) show(ctx context.Context, c *clusters) error {
	clusterIPv4, clusterIPv6 := in("127.96.0.0/16"), in("fd00:96::/108")
	pool := in("192.168.50.200/29")
	steps := []struct {
		heading string
		source  string
		name    string
		qtype   string
		want    want
	}{
		{"A virtual machine of cluster demo, on its VLAN: everything leads to the proxy there", demoVM, "api.demo.lab.example.com", "A", only("127.50.0.3")},
		{"", demoVM, "api-int.demo.lab.example.com", "A", only("127.50.0.3")},
		{"", demoVM, "oauth.demo.lab.example.com", "A", only("127.50.0.3")},
		{"", demoVM, "ignition.demo.lab.example.com", "A", only("127.50.0.3")},
		{"", demoVM, "konnectivity.demo.lab.example.com", "A", only("127.50.0.3")},
		{"", demoVM, "api.demo.lab.example.com", "AAAA", noData},
		{"", demoVM, "api.demo.lab.example.com", "HTTPS", noData},
		{"", demoVM, "typo.demo.lab.example.com", "A", nxDomain},
		{"The same names from a pod: the proxy's Service, in both families", pod, "api.demo.lab.example.com", "A", clusterIPv4},
		{"", pod, "api.demo.lab.example.com", "AAAA", clusterIPv6},
		{"", pod, "api-int.demo.lab.example.com", "A", clusterIPv4},
		{"", pod, "oauth.demo.lab.example.com", "A", clusterIPv4},
		{"", pod, "ignition.demo.lab.example.com", "A", clusterIPv4},
		{"", pod, "konnectivity.demo.lab.example.com", "A", clusterIPv4},
		{"", pod, "api.demo.lab.example.com", "HTTPS", noData},
		{"", pod, "typo.demo.lab.example.com", "A", nxDomain},
		{"Another cluster's names: answered on its own VLAN, unknown on any other, so passed on to the site's resolvers", otherVM, "api.other.lab.example.com", "A", only("127.60.0.3")},
		{"", demoVM, "api.other.lab.example.com", "A", passed},
		{"", otherVM, "api.demo.lab.example.com", "A", passed},
		{"", demoVM, "www.example.com", "A", passed},
		{"Applications, on the VLAN: the address that MetalLB gave their Service inside the hosted cluster", demoVM, "console-openshift-console.apps.demo.lab.example.com", "A", pool},
		{"", demoVM, "a.b.apps.demo.lab.example.com", "A", pool},
		{"", demoVM, "oauth-openshift.apps.demo.lab.example.com", "A", only("127.50.0.3")},
		{"Applications, from a pod: the proxy's Service, which carries them as well", pod, "console-openshift-console.apps.demo.lab.example.com", "A", clusterIPv4},
		{"", pod, "a.b.apps.demo.lab.example.com", "A", clusterIPv4},
		{"A pod sees all clusters", pod, "api.other.lab.example.com", "A", clusterIPv4},
	}
	for _, s := range steps {
		if s.heading != "" {
			t.printf("\n# %s.\n", s.heading)
		}
		if err := t.step(ctx, s.source, s.name, s.qtype, s.want); err != nil {
			return err
		}
	}
	return t.showChanges(ctx, c)
}

// step asks one question and prints it with its answer.
func (t *transcript) step(ctx context.Context, source, name, qtype string, w want) error {
	_, err := t.query(ctx, source, name, qtype, w)
	return err
}

// query is step, and returns the answers.
func (t *transcript) query(ctx context.Context, source, name, qtype string, w want) ([]string, error) {
	t.printf("$ dig -b %s %s %s\n", source, name, qtype)
	return t.answer(ctx, t.server.dig(source, name, qtype), w)
}

// answer runs dig, and prints the answer.
func (t *transcript) answer(ctx context.Context, command []string, w want) ([]string, error) {
	status, answers, err := dig(ctx, command)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	said := strings.Join(answers, ", ")
	if said == "" {
		said = "(no answer)"
	}
	t.verdict(fmt.Sprintf("%-8s %s", status, said), w.fits(status, answers))
	return answers, nil
}

// verdict prints what was said, and counts it.
func (t *transcript) verdict(said string, right bool) {
	verdict := "ok"
	if !right {
		verdict = "WRONG"
		t.wrong++
	}
	t.asked++
	t.printf("  %-69s %s\n", said, verdict)
}

// sum says that all answers were right, or is an error.
func (t *transcript) sum() error {
	if t.wrong > 0 {
		return fmt.Errorf("%d of %d answers were wrong", t.wrong, t.asked)
	}
	t.printf("\nAll %d answers were right.\n", t.asked)
	return nil
}

func (w want) fits(status string, answers []string) bool {
	if status != w.status || w.data == nil {
		return status == w.status && len(answers) == 0
	}
	return len(answers) > 0 && !slices.ContainsFunc(answers, func(line string) bool {
		return !w.data(rdata(line))
	})
}

// rdata is the data of an answer as dig prints it.
func rdata(line string) string { return line[strings.LastIndexByte(line, ' ')+1:] }

// showChanges changes objects and tells how soon the answers follow.
func (t *transcript) showChanges(ctx context.Context, clusters *clusters) error {
	for _, c := range []struct {
		heading, name string
		change        string
		want          string
	}{
		{
			"The proxy moves to another VLAN address", "api.demo.lab.example.com",
			infraOf("127.50.0.4", ""), "127.50.0.4",
		},
		{
			"HyperShift makes a Route, with a hostname that nobody could have guessed", "ignition-clusters-demo.lab.example.com",
			ignitionRoute("ignition-clusters-demo.lab.example.com"), "127.50.0.4",
		},
		{
			"The Route's hostname changes", "ignition-demo-4f2a.lab.example.com",
			ignitionRoute("ignition-demo-4f2a.lab.example.com"), "127.50.0.4",
		},
		{
			"The applications' Service asks MetalLB for another address", "console-openshift-console.apps.demo.lab.example.com",
			infraOf("127.50.0.4", ", service: {annotations: {metallb.io/loadBalancerIPs: 192.168.50.205}}"), "192.168.50.205",
		},
	} {
		t.printf("\n# %s.\n$ kubectl apply -f - <<EOF\n%s\nEOF\n", c.heading, strings.TrimSpace(c.change))
		took, err := follow(ctx, clusters.management, c.change, c.name+" becoming "+c.want, t.answers(c.name, c.want))
		if err != nil {
			return err
		}
		t.printf("  answered rightly %s after the API server had taken the change\n", milliseconds(took))
		if err := t.step(ctx, demoVM, c.name, "A", only(c.want)); err != nil {
			return err
		}
	}
	return t.step(ctx, demoVM, "ignition-clusters-demo.lab.example.com", "A", passed)
}

// followDeadline bounds the wait for things to follow a change.
const followDeadline = 10 * time.Second

// answers returns what tells whether a virtual machine that asks for a name is told an
// address.
func (t *transcript) answers(name, address string) func(context.Context) bool {
	return func(ctx context.Context) bool {
		reply, err := t.server.ask(ctx, demoVM, name, dns.TypeA)
		return err == nil && slices.ContainsFunc(reply.Answer, func(rr dns.RR) bool {
			a, ok := rr.(*dns.A)
			return ok && a.A.String() == address
		})
	}
}

// follow applies a change and tries until things are right. It returns how long
// that took, counted from the API server's reply; nothing, if they were first.
func follow(ctx context.Context, cp *lab.ControlPlane, change, what string, right func(context.Context) bool) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, followDeadline)
	defer cancel()
	done := make(chan error, 1)
	var since time.Time
	go func() {
		for {
			if right(ctx) {
				since = time.Now()
				done <- nil
				return
			}
			if ctx.Err() != nil {
				done <- fmt.Errorf("waiting for %s: not within %s", what, followDeadline)
				return
			}
		}
	}()
	if err := cp.ApplyYAML(ctx, []byte(change)); err != nil {
		cancel()
		return 0, errors.Join(err, <-done)
	}
	taken := time.Now()
	if err := <-done; err != nil {
		return 0, err
	}
	return max(0, since.Sub(taken)), nil
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

func infraOf(proxy, apps string) string {
	return fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: demo, namespace: clusters}
spec:
  hostedClusterRef: {name: demo}
  networkConfig: {cidr: 127.50.0.0/24, gateway: 127.50.0.1, networkAttachmentDefinition: vlan50}
  infraComponents:
    dns: {serverIP: 127.50.0.2}
    proxy: {serverIP: %s}
  appsIngress: {enabled: true, metallb: {addressPoolName: vlan50, ipAddressPoolRange: 192.168.50.200-192.168.50.207, loadBalancerClass: metallb.io/vlan}%s}
`, proxy, apps)
}

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
