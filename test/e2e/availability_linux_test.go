//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// A fault is something that happens to what setup has made.
type fault struct {
	name string
	// happen makes it happen, and returns when Kubernetes says that everything is as it should
	// be again.
	happen func(*testing.T)
	// cuts tells whether it ends connections by the proxy.
	cuts bool
	// extra: only in make test-long.
	extra bool
}

// TestTimeWithoutService has machines on the VLAN ask all the time while Pods and their
// containers end, and setup replaces them. Whatever happens, service comes back, and nobody is told
// what is not so. How long it takes is in docs/reference/measurements.md.
func TestTimeWithoutService(t *testing.T) {
	s := newSite(t)
	vlanServer(t, s.ca, "shop.apps."+domain)
	s.setup(t, infra)
	v := s.visit(t)

	const otherImage = "localhost/oooi:e2e-2"
	if err := node.TagImage(t.Context(), oooiImage, otherImage); err != nil {
		t.Fatal(err)
	}
	moreLeases := strings.Replace(infra, "rangeEnd: 198.18.50.159", "rangeEnd: 198.18.50.169", 1)
	otherProxy := strings.Replace(moreLeases, "proxy: {serverIP: 198.18.50.7}", "proxy: {serverIP: 198.18.50.8}", 1)

	for _, f := range []fault{
		{name: "container envoy killed", happen: s.kill("proxy", "envoy"), cuts: true},
		{name: "container xdsd killed", extra: true, happen: s.kill("proxy", "xdsd")},
		{name: "container coredns killed", extra: true, happen: s.kill("dns", "coredns")},
		{name: "container coredhcp killed", extra: true, happen: s.kill("dhcp", "coredhcp")},
		{name: "both containers control killed", extra: true, happen: s.kill("control", "control")},
		{name: "pod of the proxy deleted", happen: s.remove("proxy"), cuts: true},
		{name: "pod of DNS deleted", extra: true, happen: s.remove("dns")},
		{name: "pod of DHCP deleted", happen: s.remove("dhcp")},
		{name: "both pods of control deleted", extra: true, happen: s.remove("control")},
		{name: "setup with another range", extra: true, happen: func(t *testing.T) { s.setup(t, moreLeases) }},
		{name: "setup with another address of the proxy", cuts: true, happen: func(t *testing.T) {
			v.proxy.set("198.18.50.7", "198.18.50.8")
			s.setup(t, otherProxy)
		}},
		{name: "setup with another image", cuts: true, happen: func(t *testing.T) {
			v.proxy.set("198.18.50.8")
			s.setup(t, otherProxy, "--image", otherImage)
		}},
		{name: "node without power for a moment", happen: s.reboot, cuts: true},
	} {
		if f.extra && !lab.Long() {
			continue
		}
		t.Run(f.name, func(t *testing.T) { v.endure(t, f) })
	}
	for _, p := range v.probes {
		for _, err := range p.wrong() {
			t.Error(err)
		}
	}
	t.Logf("seconds without service:\n%s", v.table())
}

// A visit is that of two machines to the VLAN, which ask for service all the time.
type visit struct {
	proxy  *expectation
	probes []*probe
	dial   func(context.Context) (*stream, error)
	rows   []string
}

func (s *site) visit(t *testing.T) *visit {
	t.Helper()
	one, two := s.boot(t, "worker-1", "02:00:00:00:50:71"), s.boot(t, "worker-2", "02:00:00:00:50:72")
	proxy := &expectation{}
	proxy.set("198.18.50.7")
	v := &visit{
		proxy: proxy,
		probes: []*probe{
			{name: "names", ask: one.resolve(proxy)},
			{name: "connections", ask: one.connect(s.ca, proxy)},
			{name: "leases renewed", ask: one.lessee(t).renew},
			{name: "addresses offered", ask: two.lessee(t).discover},
		},
		dial: func(ctx context.Context) (*stream, error) { return one.stream(ctx, s.ca, proxy) },
	}
	v.begin(t)
	return v
}

// begin has all probes ask until the test ends.
func (v *visit) begin(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for _, p := range v.probes {
		asking.Go(func() { p.run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		asking.Wait()
	})
}

// row is for how long each probe was without service since something happened.
func (v *visit) row(what string, since time.Time) string {
	for _, p := range v.probes {
		what += fmt.Sprintf("\t%.1f", p.outage(since).Seconds())
	}
	return what
}

// add writes a row down.
func (v *visit) add(t *testing.T, row string) {
	t.Helper()
	t.Log(row)
	v.rows = append(v.rows, row)
}

// endure goes through a fault, and writes down for how long there was no service.
func (v *visit) endure(t *testing.T, f fault) {
	t.Helper()
	v.awaitService(t, "service before: "+f.name, time.Now())
	var open *stream
	await(t, "a connection", func() string {
		var err error
		if open, err = v.dial(t.Context()); err != nil {
			return err.Error()
		}
		return ""
	})
	defer open.close()

	began := time.Now()
	f.happen(t)
	v.awaitService(t, "service after: "+f.name, time.Now())

	row := v.row(f.name, began)
	switch err := open.broken(); {
	case err != nil && !f.cuts:
		t.Errorf("%s: a connection ended: %v", f.name, err)
		fallthrough
	case err != nil:
		row += "\tended"
	default:
		row += "\tstayed"
	}
	v.add(t, row)
}

// awaitService waits until every probe is answered for some time.
func (v *visit) awaitService(t *testing.T, what string, from time.Time) {
	t.Helper()
	for _, p := range v.probes {
		await(t, what, func() string { return p.amiss(from) })
	}
}

func (v *visit) table() string {
	var header []string
	for _, p := range v.probes {
		header = append(header, p.name)
	}
	return table(append(header, "an open connection"), v.rows)
}

// table is text with a header, whose first column has no name, and rows whose fields are between
// tabs.
func table(header, rows []string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "\t%s\n%s\n", strings.Join(header, "\t"), strings.Join(rows, "\n")) // a builder takes everything
	_ = w.Flush()
	return b.String()
}

// pods are those of a component, ours and control's.
func (s *site) pods(t *testing.T, component string) []corev1.Pod {
	t.Helper()
	label := "app.kubernetes.io/part-of=oooi"
	if component != "" {
		label += "," + v1alpha1.LabelComponent + "=" + component
	}
	list, err := kube(t, s.cp).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{LabelSelector: label})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// kill kills the containers of a name in the Pods of a component.
func (s *site) kill(component, container string) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		before := s.pods(t, component)
		for _, pod := range before {
			for _, c := range pod.Status.ContainerStatuses {
				if c.Name != container {
					continue
				}
				if err := node.KillContainer(t.Context(), c.ContainerID); err != nil {
					t.Fatal(err)
				}
			}
		}
		s.awaitOthers(t, component, before, container)
	}
}

// remove deletes the Pods of a component, as somebody does who drains a node.
func (s *site) remove(component string) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		before := s.pods(t, component)
		for _, pod := range before {
			if err := kube(t, s.cp).CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		s.awaitOthers(t, component, before, "")
	}
}

// reboot cuts the node's power.
func (s *site) reboot(t *testing.T) {
	t.Helper()
	before := s.pods(t, "")
	if err := node.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.awaitOthers(t, "", before, "")
}

// awaitOthers waits until as many Pods as before are ready, with other containers of a name, or
// none that there was before.
func (s *site) awaitOthers(t *testing.T, component string, before []corev1.Pod, name string) {
	t.Helper()
	if len(before) == 0 {
		t.Fatalf("there is no Pod of component %q", component)
	}
	old := map[string]bool{}
	for _, pod := range before {
		for _, c := range pod.Status.ContainerStatuses {
			old[c.ContainerID] = name == "" || c.Name == name
		}
	}
	await(t, "Pods to be ready, with other containers", func() string {
		now := s.pods(t, component)
		if len(now) != len(before) {
			return fmt.Sprintf("there are %d of %d", len(now), len(before))
		}
		for i := range now {
			if !ready(&now[i]) {
				return state(&now[i])
			}
			for _, c := range now[i].Status.ContainerStatuses {
				if old[c.ContainerID] {
					return state(&now[i])
				}
			}
		}
		return ""
	})
}
