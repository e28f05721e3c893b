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

// A fault is a failure or change of a component that setup has deployed.
type fault struct {
	name string
	// inject causes the fault, and returns when Kubernetes reports all Pods ready again.
	inject func(*testing.T)
	// closesConnections is set if open connections through the proxy end.
	closesConnections bool
	// extra faults are only tested at full length.
	extra bool
}

// TestTimeWithoutService measures for how long VMs have no service while containers and Pods end, and while
// setup replaces them. Service must return after each fault, and no answer may be wrong. Results are in
// docs/reference/measurements.md.
func TestTimeWithoutService(t *testing.T) {
	s := newSite(t)
	vlanServer(t, s.ca, "shop.apps."+domain)
	s.setup(t, infra)
	v := s.monitor(t)

	const otherImage = "localhost/oooi:e2e-2"
	if err := node.TagImage(t.Context(), oooiImage, otherImage); err != nil {
		t.Fatal(err)
	}
	moreLeases := strings.Replace(infra, "rangeEnd: 198.18.50.159", "rangeEnd: 198.18.50.169", 1)
	otherProxy := strings.Replace(moreLeases, "proxy: {serverIP: 198.18.50.7}", "proxy: {serverIP: 198.18.50.8}", 1)

	for _, f := range []fault{
		{name: "container envoy killed", inject: s.kill("proxy", "envoy"), closesConnections: true},
		{name: "container xdsd killed", extra: true, inject: s.kill("proxy", "xdsd")},
		{name: "container coredns killed", extra: true, inject: s.kill("dns", "coredns")},
		{name: "container coredhcp killed", extra: true, inject: s.kill("dhcp", "coredhcp")},
		{name: "both containers control killed", extra: true, inject: s.kill("control", "control")},
		{name: "pod of the proxy deleted", inject: s.remove("proxy"), closesConnections: true},
		{name: "pod of DNS deleted", extra: true, inject: s.remove("dns")},
		{name: "pod of DHCP deleted", inject: s.remove("dhcp")},
		{name: "both pods of control deleted", extra: true, inject: s.remove("control")},
		{name: "setup with another range", extra: true, inject: func(t *testing.T) { s.setup(t, moreLeases) }},
		{name: "setup with another address of the proxy", closesConnections: true, inject: func(t *testing.T) {
			v.proxy.set("198.18.50.7", "198.18.50.8")
			s.setup(t, otherProxy)
		}},
		{name: "setup with another image", closesConnections: true, inject: func(t *testing.T) {
			v.proxy.set("198.18.50.8")
			s.setup(t, otherProxy, "--image", otherImage)
		}},
		{name: "node without power for a moment", inject: s.reboot, closesConnections: true},
	} {
		if f.extra && !lab.Long() {
			continue
		}
		t.Run(f.name, func(t *testing.T) { v.measure(t, f) })
	}
	for _, p := range v.probes {
		for _, err := range p.wrongAnswers() {
			t.Error(err)
		}
	}
	t.Logf("seconds without service:\n%s", v.table())
}

// A serviceMonitor probes the services of the VLAN from two VMs at a constant rate, and collects a table of
// results.
type serviceMonitor struct {
	proxy  *expectation
	probes []*probe
	dial   func(context.Context) (*stream, error)
	rows   []string
}

// monitor boots two VMs and starts a serviceMonitor that runs until the test ends.
func (s *site) monitor(t *testing.T) *serviceMonitor {
	t.Helper()
	one, two := s.boot(t, "worker-1", "02:00:00:00:50:71"), s.boot(t, "worker-2", "02:00:00:00:50:72")
	proxy := &expectation{}
	proxy.set("198.18.50.7")
	v := &serviceMonitor{
		proxy: proxy,
		probes: []*probe{
			{name: "names", ask: one.resolve(proxy)},
			{name: "connections", ask: one.connect(s.ca, proxy)},
			{name: "leases renewed", ask: one.dhcpClient(t).renew},
			{name: "addresses offered", ask: two.dhcpClient(t).discover},
		},
		dial: func(ctx context.Context) (*stream, error) { return one.stream(ctx, s.ca, proxy) },
	}
	v.start(t)
	return v
}

// start runs all probes until the test ends.
func (v *serviceMonitor) start(t *testing.T) {
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

// row returns a row of the table: what, and each probe's time without service since a time.
func (v *serviceMonitor) row(what string, since time.Time) string {
	for _, p := range v.probes {
		what += fmt.Sprintf("\t%.1f", p.outage(since).Seconds())
	}
	return what
}

// add logs a row and adds it to the table.
func (v *serviceMonitor) add(t *testing.T, row string) {
	t.Helper()
	t.Log(row)
	v.rows = append(v.rows, row)
}

// measure injects a fault and adds a row with the time without service, and whether an open connection
// survived.
func (v *serviceMonitor) measure(t *testing.T, f fault) {
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
	f.inject(t)
	v.awaitService(t, "service after: "+f.name, time.Now())

	row := v.row(f.name, began)
	switch err := open.failure(); {
	case err != nil && !f.closesConnections:
		t.Errorf("%s: a connection ended: %v", f.name, err)
		fallthrough
	case err != nil:
		row += "\tended"
	default:
		row += "\tstayed"
	}
	v.add(t, row)
}

// awaitService waits until each probe has consecutive successful answers to requests since from.
func (v *serviceMonitor) awaitService(t *testing.T, what string, from time.Time) {
	t.Helper()
	for _, p := range v.probes {
		await(t, what, func() string { return p.problem(from) })
	}
}

func (v *serviceMonitor) table() string {
	var header []string
	for _, p := range v.probes {
		header = append(header, p.name)
	}
	return table(append(header, "an open connection"), v.rows)
}

// table formats rows of tab-separated fields with a header. The first column has no header.
func table(header, rows []string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "\t%s\n%s\n", strings.Join(header, "\t"), strings.Join(rows, "\n")) // writing to a strings.Builder does not fail
	_ = w.Flush()
	return b.String()
}

// pods returns the Pods of a component, or of all components if component is "".
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

// kill returns a function that kills a container in all Pods of a component.
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

// remove returns a function that deletes the Pods of a component.
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

// reboot powers the node off and on.
func (s *site) reboot(t *testing.T) {
	t.Helper()
	before := s.pods(t, "")
	if err := node.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.awaitOthers(t, "", before, "")
}

// awaitOthers waits until the same number of Pods is ready, without any of the earlier containers called
// name, or without any earlier container if name is "".
func (s *site) awaitOthers(t *testing.T, component string, before []corev1.Pod, name string) {
	t.Helper()
	if len(before) == 0 {
		t.Fatalf("no Pod of component %q", component)
	}
	old := map[string]bool{}
	for _, pod := range before {
		for _, c := range pod.Status.ContainerStatuses {
			old[c.ContainerID] = name == "" || c.Name == name
		}
	}
	await(t, "Pods to be ready with new containers", func() string {
		now := s.pods(t, component)
		if len(now) != len(before) {
			return fmt.Sprintf("%d of %d exist", len(now), len(before))
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
