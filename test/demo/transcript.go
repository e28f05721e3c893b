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

// Addresses of the clients, which select their views.
const (
	demoVM  = "127.50.0.10"
	otherVM = "127.60.0.10"
	pod     = "127.0.0.1"
)

// A transcript runs commands, prints them with their output, and counts correct and wrong answers.
type transcript struct {
	io.Writer
	server *server
	total  int
	wrong  int
}

func (t *transcript) printf(format string, args ...any) { fmt.Fprintf(t, format, args...) }

// A want is an expected DNS answer: the status, and a condition for the data of each record.
type want struct {
	status string
	data   func(rdata string) bool // nil for no records
}

// only expects answers with this address.
func only(address string) want {
	return want{"NOERROR", func(rdata string) bool { return rdata == address }}
}

// inNetwork expects addresses of a network, for cluster IPs, which the API server chooses.
func inNetwork(network string) want {
	prefix := netip.MustParsePrefix(network)
	return want{"NOERROR", func(rdata string) bool {
		a, err := netip.ParseAddr(rdata)
		return err == nil && prefix.Contains(a)
	}}
}

var (
	noData    = want{status: "NOERROR"}
	nxDomain  = want{status: "NXDOMAIN"}
	forwarded = only(upstream) // the upstream resolver answered
)

// show queries DNS from each view, before and after changes.
func (t *transcript) show(ctx context.Context, c *clusters) error {
	clusterIPv4, clusterIPv6 := inNetwork("127.96.0.0/16"), inNetwork("fd00:96::/108")
	pool := inNetwork("192.168.50.200/29")
	steps := []struct {
		heading string
		source  string
		name    string
		qtype   string
		want    want
	}{
		{"A VM of cluster demo on its VLAN: all names resolve to the proxy's VLAN address", demoVM, "api.demo.lab.example.com", "A", only("127.50.0.3")},
		{"", demoVM, "api-int.demo.lab.example.com", "A", only("127.50.0.3")},
		{"", demoVM, "oauth.demo.lab.example.com", "A", only("127.50.0.3")},
		{"", demoVM, "ignition.demo.lab.example.com", "A", only("127.50.0.3")},
		{"", demoVM, "konnectivity.demo.lab.example.com", "A", only("127.50.0.3")},
		{"", demoVM, "api.demo.lab.example.com", "AAAA", noData},
		{"", demoVM, "api.demo.lab.example.com", "HTTPS", noData},
		{"", demoVM, "typo.demo.lab.example.com", "A", nxDomain},
		{"The same names from a pod: the proxy's Service, IPv4 and IPv6", pod, "api.demo.lab.example.com", "A", clusterIPv4},
		{"", pod, "api.demo.lab.example.com", "AAAA", clusterIPv6},
		{"", pod, "api-int.demo.lab.example.com", "A", clusterIPv4},
		{"", pod, "oauth.demo.lab.example.com", "A", clusterIPv4},
		{"", pod, "ignition.demo.lab.example.com", "A", clusterIPv4},
		{"", pod, "konnectivity.demo.lab.example.com", "A", clusterIPv4},
		{"", pod, "api.demo.lab.example.com", "HTTPS", noData},
		{"", pod, "typo.demo.lab.example.com", "A", nxDomain},
		{"Names of another cluster: answered on its own VLAN, forwarded to the upstream resolver on any other", otherVM, "api.other.lab.example.com", "A", only("127.60.0.3")},
		{"", demoVM, "api.other.lab.example.com", "A", forwarded},
		{"", otherVM, "api.demo.lab.example.com", "A", forwarded},
		{"", demoVM, "www.example.com", "A", forwarded},
		{"Apps names on the VLAN: the address that MetalLB assigned to the apps Service in the hosted cluster", demoVM, "console-openshift-console.apps.demo.lab.example.com", "A", pool},
		{"", demoVM, "a.b.apps.demo.lab.example.com", "A", pool},
		{"", demoVM, "oauth-openshift.apps.demo.lab.example.com", "A", only("127.50.0.3")},
		{"Apps names from a pod: the proxy's Service", pod, "console-openshift-console.apps.demo.lab.example.com", "A", clusterIPv4},
		{"", pod, "a.b.apps.demo.lab.example.com", "A", clusterIPv4},
		{"A pod resolves the names of all clusters", pod, "api.other.lab.example.com", "A", clusterIPv4},
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

// step is query, without returning the answer section.
func (t *transcript) step(ctx context.Context, source, name, qtype string, w want) error {
	_, err := t.query(ctx, source, name, qtype, w)
	return err
}

// query queries a name from a source address with dig, and prints the command and the answer. It returns the answer
// section.
func (t *transcript) query(ctx context.Context, source, name, qtype string, w want) ([]string, error) {
	t.printf("$ dig -b %s %s %s\n", source, name, qtype)
	return t.answer(ctx, t.server.dig(source, name, qtype), w)
}

// answer runs a dig command, prints the answer and counts it. It returns the answer section.
func (t *transcript) answer(ctx context.Context, command []string, w want) ([]string, error) {
	status, answers, err := dig(ctx, command)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	text := strings.Join(answers, ", ")
	if text == "" {
		text = "(no answer)"
	}
	t.verdict(fmt.Sprintf("%-8s %s", status, text), w.matches(status, answers))
	return answers, nil
}

// verdict prints a line of output with ok or WRONG, and counts it.
func (t *transcript) verdict(line string, right bool) {
	verdict := "ok"
	if !right {
		verdict = "WRONG"
		t.wrong++
	}
	t.total++
	t.printf("  %-69s %s\n", line, verdict)
}

// sum prints that all answers were correct, or returns an error.
func (t *transcript) sum() error {
	if t.wrong > 0 {
		return fmt.Errorf("%d of %d answers were wrong", t.wrong, t.total)
	}
	t.printf("\nAll %d answers were correct.\n", t.total)
	return nil
}

// matches reports whether an answer is the expected one.
func (w want) matches(status string, answers []string) bool {
	if status != w.status || w.data == nil {
		return status == w.status && len(answers) == 0
	}
	return len(answers) > 0 && !slices.ContainsFunc(answers, func(line string) bool {
		return !w.data(rdata(line))
	})
}

// rdata returns the data of a record as dig prints it.
func rdata(line string) string { return line[strings.LastIndexByte(line, ' ')+1:] }

// showChanges changes objects, and prints how long it takes until the answers are those of the new objects.
func (t *transcript) showChanges(ctx context.Context, clusters *clusters) error {
	for _, c := range []struct {
		heading, name string
		change        string
		want          string
	}{
		{
			"The Infra gets another VLAN address for the proxy", "api.demo.lab.example.com",
			infraOf("127.50.0.4", ""), "127.50.0.4",
		},
		{
			"HyperShift creates a Route with a generated hostname", "ignition-clusters-demo.lab.example.com",
			ignitionRoute("ignition-clusters-demo.lab.example.com"), "127.50.0.4",
		},
		{
			"The Route's hostname changes", "ignition-demo-4f2a.lab.example.com",
			ignitionRoute("ignition-demo-4f2a.lab.example.com"), "127.50.0.4",
		},
		{
			"The Infra requests another apps address from MetalLB", "console-openshift-console.apps.demo.lab.example.com",
			infraOf("127.50.0.4", ", service: {annotations: {metallb.io/loadBalancerIPs: 192.168.50.205}}"), "192.168.50.205",
		},
	} {
		t.printf("\n# %s.\n$ kubectl apply -f - <<EOF\n%s\nEOF\n", c.heading, strings.TrimSpace(c.change))
		took, err := follow(ctx, clusters.management, c.change, c.name+" becoming "+c.want, t.answers(c.name, c.want))
		if err != nil {
			return err
		}
		t.printf("  correct answer %s after the API server accepted the change\n", milliseconds(took))
		if err := t.step(ctx, demoVM, c.name, "A", only(c.want)); err != nil {
			return err
		}
	}
	return t.step(ctx, demoVM, "ignition-clusters-demo.lab.example.com", "A", forwarded)
}

// followDeadline limits the wait for the effect of a change.
const followDeadline = 10 * time.Second

// answers returns a function that reports whether DNS answers a VM's query for a name with an address.
func (t *transcript) answers(name, address string) func(context.Context) bool {
	return func(ctx context.Context) bool {
		reply, err := t.server.ask(ctx, demoVM, name, dns.TypeA)
		return err == nil && slices.ContainsFunc(reply.Answer, func(rr dns.RR) bool {
			a, ok := rr.(*dns.A)
			return ok && a.A.String() == address
		})
	}
}

// follow applies a change and calls right until it returns true. It returns the time since the reply of the API
// server, or 0 if right was true before the reply.
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

// milliseconds formats a duration in milliseconds, as "1.2 ms".
func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

// infraOf returns the Infra of cluster demo with an address of the proxy. apps is appended to spec.appsIngress.
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
