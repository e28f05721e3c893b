//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// An event is a failure or change to what setup has deployed.
type event struct {
	name string
	// run causes the event. It returns when Kubernetes reports all Pods ready again.
	run func(*testing.T)
	// disturbs are the components whose containers the event replaces. Containers of the others must stay, and their
	// service must continue.
	disturbs []string
	// closesConnections is set if open connections through the proxy end.
	closesConnections bool
	// extra events are only tested at full length.
	extra bool
}

// daemons are the components on the VLAN.
var daemons = []string{v1alpha1.ComponentDNS, v1alpha1.ComponentProxy, v1alpha1.ComponentDHCP}

// TestTimeWithoutService measures how long services are interrupted while remedies of doctor are applied, containers and Pods terminate,
// and objects are deleted. Results are in docs/reference/measurements.md.
func TestTimeWithoutService(t *testing.T) {
	s, v := newMonitoredSite(t)
	v.measureAll(t, "remedies", s.remedied()) // first, because doctor reports restarted containers for an hour
	v.measureAll(t, "failures", s.failures(v))
	v.measureAll(t, "deletions", s.deletions(t))
	v.measureAll(t, "power", []event{{name: "node without power for a moment", run: s.reboot, disturbs: daemons, closesConnections: true}})
	v.report(t)
}

// TestFailedSetupKeepsService is TestTimeWithoutService while setup applies changes that cannot succeed, or is interrupted.
func TestFailedSetupKeepsService(t *testing.T) {
	s, v := newMonitoredSite(t)
	v.measureAll(t, "changes", s.changes(v))
	v.report(t)
}

// newMonitoredSite sets up a site, and starts to monitor its services.
func newMonitoredSite(t *testing.T) (*site, *serviceMonitor) {
	t.Helper()
	s := newSite(t)
	vlanServer(t, s.ca, shop)
	s.setup(t, infra)
	lab.Must(t, node.TagImage(t.Context(), oooiImage, secondImage))
	return s, s.monitor(t)
}

// measureAll measures events, without the extra ones unless tests run at full length.
func (v *serviceMonitor) measureAll(t *testing.T, group string, events []event) {
	t.Helper()
	t.Run(group, func(t *testing.T) {
		for _, e := range events {
			if !e.extra || lab.Long() {
				t.Run(e.name, func(t *testing.T) { v.measure(t, e) })
			}
		}
	})
}

// movedInfra is the Infra with another address of the proxy.
var movedInfra = editedInfra("proxy: {serverIP: 198.18.50.8}")

// failures returns events by which containers and Pods end, and changes that succeed. The last one sets up movedInfra.
func (s *site) failures(v *serviceMonitor) []event {
	dns, proxy, dhcp := v1alpha1.ComponentDNS, v1alpha1.ComponentProxy, v1alpha1.ComponentDHCP
	moreLeases := editedInfra("dhcp: {rangeEnd: 198.18.50.169}")
	return []event{
		{name: "container envoy killed", run: s.kill(proxy, "envoy"), disturbs: []string{proxy}, closesConnections: true},
		{name: "container xdsd killed", extra: true, run: s.kill(proxy, "xdsd"), disturbs: []string{proxy}},
		{name: "container coredns killed", extra: true, run: s.kill(dns, "coredns"), disturbs: []string{dns}},
		{name: "container coredhcp killed", extra: true, run: s.kill(dhcp, "coredhcp"), disturbs: []string{dhcp}},
		{name: "both containers control killed", extra: true, run: s.kill("control", "control")},
		{name: "pod of the proxy deleted", extra: true, run: s.remove(proxy), disturbs: []string{proxy}, closesConnections: true},
		{name: "pod of DNS deleted", extra: true, run: s.remove(dns), disturbs: []string{dns}},
		{name: "pod of DHCP deleted", extra: true, run: s.remove(dhcp), disturbs: []string{dhcp}},
		{name: "both pods of control deleted", extra: true, run: s.remove("control")},
		{name: "setup with another range", extra: true, run: func(t *testing.T) { s.setup(t, moreLeases) }, disturbs: []string{dhcp}},
		{name: "setup with another image", extra: true, disturbs: daemons, closesConnections: true, run: func(t *testing.T) {
			s.setup(t, infra, "--image", s.otherImage(t))
		}},
		{name: "setup with another address of the proxy", disturbs: daemons, closesConnections: true, run: func(t *testing.T) {
			v.proxy.set("198.18.50.7", "198.18.50.8")
			s.setup(t, movedInfra)
		}},
	}
}

// A serviceMonitor probes the services of the VLAN from two VMs at a constant rate, and collects a table of
// results.
type serviceMonitor struct {
	site   *site
	proxy  *expectation
	probes []*lab.Probe
	dial   func(context.Context) (*lab.Stream, error)
	rows   []string
}

// monitor boots two VMs and starts a serviceMonitor that runs until the test ends.
func (s *site) monitor(t *testing.T) *serviceMonitor {
	t.Helper()
	one, two := s.boot(t, "worker-1", "02:00:00:00:50:71"), s.boot(t, "worker-2", "02:00:00:00:50:72")
	proxy := &expectation{}
	proxy.set("198.18.50.7")
	v := &serviceMonitor{
		site: s, proxy: proxy,
		probes: []*lab.Probe{
			{Name: "names", Component: v1alpha1.ComponentDNS, Ask: one.resolveAt(one.dns, proxy)},
			{Name: "connections", Component: v1alpha1.ComponentProxy, Ask: one.connect(s.ca, proxy)},
			{Name: "leases renewed", Component: v1alpha1.ComponentDHCP, Ask: one.dhcpClient(t).renew},
			{Name: "addresses offered", Component: v1alpha1.ComponentDHCP, Ask: two.dhcpClient(t).discover},
		},
		dial: func(ctx context.Context) (*lab.Stream, error) { return one.stream(ctx, s.ca, proxy) },
	}
	v.start(t)
	return v
}

// start runs all probes until the test ends.
func (v *serviceMonitor) start(t *testing.T) {
	t.Helper()
	for _, p := range v.probes {
		p.Start(t)
	}
}

// row returns a row of the table: what, and each probe's time without service since a time.
func (v *serviceMonitor) row(what string, since time.Time) string {
	for _, p := range v.probes {
		what += fmt.Sprintf("\t%.1f", p.Outage(since).Seconds())
	}
	return what
}

// add logs a row and adds it to the table.
func (v *serviceMonitor) add(t *testing.T, row string) {
	t.Helper()
	t.Log(row)
	v.rows = append(v.rows, row)
}

// measure runs an event, after which service must return. It adds a row with the time without service, and whether an open
// connection survived.
func (v *serviceMonitor) measure(t *testing.T, e event) {
	t.Helper()
	v.awaitService(t, "service before: "+e.name, time.Now())
	var open *lab.Stream
	lab.Await(t, "a connection", func() string {
		var err error
		if open, err = v.dial(t.Context()); err != nil {
			return err.Error()
		}
		return ""
	})
	defer open.Close()

	before, began := v.site.containers(t), time.Now()
	e.run(t)
	v.awaitService(t, "service after: "+e.name, time.Now())
	for component, ids := range v.site.containers(t) {
		if !slices.Contains(e.disturbs, component) && !slices.Equal(ids, before[component]) {
			t.Errorf("containers of %s were %s and are %s, although the event must not replace them", component, before[component], ids)
		}
	}
	for _, p := range v.probes {
		// On a loaded host some seconds of requests fail. A pod that does not start loses more.
		if lost := p.Outage(began); lost > 15*time.Second && !slices.Contains(e.disturbs, p.Component) {
			t.Errorf("%s: no service for %s, although the event must not interrupt it", p.Name, lost)
		}
	}
	row := v.row(e.name, began)
	switch err := open.Failure(); {
	case err != nil && !e.closesConnections:
		t.Errorf("%s: a connection ended: %v", e.name, err)
		fallthrough
	case err != nil:
		row += "\tended"
	default:
		row += "\tstayed"
	}
	v.add(t, row)
}

// awaitService waits until each probe has consecutive successful responses to requests since from.
func (v *serviceMonitor) awaitService(t *testing.T, what string, from time.Time) {
	t.Helper()
	for _, p := range v.probes {
		lab.Await(t, what, func() string { return p.Problem(from) })
	}
}

// report logs the table, and fails the test for each wrong answer.
func (v *serviceMonitor) report(t *testing.T) {
	t.Helper()
	header := make([]string, 0, len(v.probes)+1)
	for _, p := range v.probes {
		header = append(header, p.Name)
	}
	reportWrongAnswers(t, v.probes)
	t.Logf("seconds without service:\n%s", table(append(header, "an open connection"), v.rows))
}

// table formats rows of tab-separated fields with a header. The first column lacks a header.
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
	list, err := s.cp.Kube(t).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{LabelSelector: label})
	lab.Must(t, err)
	return list.Items
}

// containers returns the container IDs of the components on the VLAN, by component.
func (s *site) containers(t *testing.T) map[string][]string {
	t.Helper()
	ids := map[string][]string{}
	for _, component := range daemons {
		for _, pod := range s.pods(t, component) {
			for _, c := range pod.Status.ContainerStatuses {
				ids[component] = append(ids[component], c.ContainerID)
			}
		}
	}
	return ids
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
				lab.Must(t, node.KillContainer(t.Context(), c.ContainerID))
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
			lab.Must(t, s.cp.Kube(t).CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
		}
		s.awaitOthers(t, component, before, "")
	}
}

// reboot powers the node off and on.
func (s *site) reboot(t *testing.T) {
	t.Helper()
	before := s.pods(t, "")
	lab.Must(t, node.Reboot(t.Context()))
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
	lab.Await(t, "Pods to be ready with new containers", func() string {
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
