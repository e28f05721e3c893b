package control

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/leader"
)

var demo = model.Ref{Kind: "Infra", Namespace: "clusters", Name: "demo"}

// testPod returns a pod of a component that has been ready for a time.
func testPod(name, component string, ready time.Duration) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: name, Labels: map[string]string{v1alpha1.LabelComponent: component}},
		Status:     corev1.PodStatus{PodIP: "127.0.0.1", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(viewed.Add(-ready))}}},
	}
}

func TestInfraConditionsOfProblems(t *testing.T) {
	pod := model.Ref{Kind: "Pod", Namespace: "clusters", Name: "dhcp-0"}
	all := map[string]bool{v1alpha1.ComponentDHCP: true, v1alpha1.ComponentDNS: true, v1alpha1.ComponentProxy: true}
	enabled := component{enabled: true}
	down := problem.Failed(problem.InterfaceDown, pod, "interface net1 is down")
	for _, tc := range []struct {
		name             string
		dhcp, dns, proxy component
		observed         *observation
		want             map[string]string
	}{
		{"healthy", enabled, enabled, enabled, &observation{vlan: true, components: all}, map[string]string{
			"DHCPReady": "True Ready", "DNSReady": "True Ready", "ProxyReady": "True Ready", "VLANReady": "True Ready", "UpstreamReady": "True Ready", "BackendsReady": "True Ready", "Ready": "True Ready",
		}},
		{"nothing is enabled", component{}, component{}, component{}, &observation{}, map[string]string{
			"DHCPReady": "True Disabled", "DNSReady": "True Disabled", "ProxyReady": "True Disabled", "VLANReady": "True Disabled", "UpstreamReady": "True Disabled", "BackendsReady": "True Disabled", "Ready": "True Ready",
		}},
		{"no pod reports, as earlier versions", enabled, enabled, enabled, &observation{}, map[string]string{
			"DHCPReady": "True Ready", "DNSReady": "True Ready", "ProxyReady": "True Ready", "VLANReady": "Unknown NotObserved", "UpstreamReady": "Unknown NotObserved", "BackendsReady": "Unknown NotObserved", "Ready": "True Ready",
		}},
		{"a probe fails", component{true, "pod dhcp-0: is not ready"}, enabled, component{}, &observation{vlan: true, components: all}, map[string]string{
			"DHCPReady": "False DHCPNotReady", "DNSReady": "True Ready", "ProxyReady": "True Disabled", "VLANReady": "True Ready", "UpstreamReady": "True Ready", "BackendsReady": "True Disabled", "Ready": "False DHCPNotReady",
		}},
		{"the VLAN fails", enabled, enabled, enabled, &observation{vlan: true, components: all, problems: []problem.Problem{down}}, map[string]string{
			"DHCPReady": "True Ready", "DNSReady": "True Ready", "ProxyReady": "True Ready", "VLANReady": "False InterfaceDown", "UpstreamReady": "True Ready", "BackendsReady": "True Ready", "Ready": "False InterfaceDown",
		}},
		{"upstream and a backend fail, and there are warnings", enabled, enabled, enabled, &observation{vlan: true, components: all, problems: []problem.Problem{
			problem.Warned(problem.RangesFull, demo, "few addresses are free"), problem.Warned(problem.AddressInUse, demo, "two gateways"),
			problem.Failed(problem.UpstreamFailing, demo, "no answer"), problem.Failed(problem.BackendUnreachable, demo, "refused"), problem.Failed(problem.UnknownClient, demo, "no condition"), problem.Failed("New", demo, "unknown"),
		}}, map[string]string{
			"DHCPReady": "True Ready", "DNSReady": "True Ready", "ProxyReady": "True Ready", "VLANReady": "True Ready", "UpstreamReady": "False UpstreamFailing", "BackendsReady": "False BackendUnreachable", "Ready": "True Ready",
		}},
		{"DHCP fails", enabled, enabled, enabled, &observation{vlan: true, components: all, problems: []problem.Problem{problem.Failed(problem.LeaseStoreFailing, pod, "forbidden")}}, map[string]string{
			"DHCPReady": "False LeaseStoreFailing", "DNSReady": "True Ready", "ProxyReady": "True Ready", "VLANReady": "True Ready", "UpstreamReady": "True Ready", "BackendsReady": "True Ready", "Ready": "False LeaseStoreFailing",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &infraFacts{
				object: &v1alpha1.Infra{}, infra: &model.Infra{Ref: demo, Cluster: &model.Cluster{Hostnames: []model.Hostname{{}}}}, dhcp: tc.dhcp, dns: tc.dns, proxy: tc.proxy, observed: tc.observed,
			}
			status, got := infraStatus(f), map[string]string{}
			for kind := range tc.want {
				c := meta.FindStatusCondition(status.Conditions, kind)
				got[kind] = string(c.Status) + " " + c.Reason
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestConditionMessages(t *testing.T) {
	o := &observation{vlan: true, problems: []problem.Problem{
		problem.Failed(problem.InterfaceDown, model.Ref{Kind: "Pod", Namespace: "clusters", Name: "dhcp-0"}, "interface net1 is down").WithEvidence("seen at 03:04:05").WithRemedy("repair it"),
		problem.Failed(problem.AddressInUse, demo, "two hosts"),
		problem.Failed(problem.AddressInUse, demo, "two hosts"),
		problem.Failed(problem.MTUMismatch, model.Ref{Kind: "Node", Name: "a"}, "the MTU differs"),
	}}
	if got, want := o.vlanReady(demo).Message, "Pod dhcp-0: interface net1 is down; two hosts; Node a: the MTU differs; remedy: repair it"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	o.problems = nil
	for i := range 7 {
		o.problems = append(o.problems, problem.Failed(problem.NoOtherHostAnswers, demo, "problem %d", i))
	}
	if got, want := o.vlanReady(demo).Message, "problem 0; problem 1; problem 2; problem 3; problem 4; and more: run 'kubectl oooi doctor'; remedy: check the interface"; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestReasonsAreDocumented compares the reasons of conditions with the page about them.
func TestReasonsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "reference", "proxy.md"))
	lab.Must(t, err)
	lines := map[string]string{}
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "|"); len(cells) > 3 {
			lines[strings.Trim(strings.TrimSpace(cells[1]), "`")] = cells[3]
		}
	}
	for _, k := range problem.Kinds {
		if k.Condition != "" && !strings.Contains(lines[k.Condition], "`"+string(k.Code)+"`") {
			t.Errorf("docs/reference/proxy.md: the reasons of condition %s lack %s: %q", k.Condition, k.Code, lines[k.Condition])
		}
	}
}

func TestPodsThatDoNotAnswer(t *testing.T) {
	s, failed := &Problems{}, errors.New("connection refused")
	pods := []corev1.Pod{testPod("dns-0", v1alpha1.ComponentDNS, time.Hour), testPod("dns-1", v1alpha1.ComponentDNS, 10*time.Second)}
	upstream := problem.Failed(problem.UpstreamFailing, demo, "no answer")
	for _, tc := range []struct {
		name string
		at   time.Duration
		errs []error
		// silent are the pods that do not answer, observed and problems what is known.
		silent   string
		observed bool
		problems int
	}{
		{"both answer", 0, []error{nil, nil}, "", true, 2},
		{"both fail once", 10 * time.Second, []error{failed, failed}, "", true, 2},
		{"both fail, and reconciled again immediately", 11 * time.Second, []error{failed, failed}, "", true, 2},
		{"both fail twice", 20 * time.Second, []error{failed, failed}, "dns-0", true, 2},
		{"the last reports are too old", 30 * time.Second, []error{failed, failed}, "dns-0", false, 0},
		{"one answers, and the other is ready for long enough", 60 * time.Second, []error{nil, failed}, "", true, 1},
		{"one answers, and the other still fails", 66 * time.Second, []error{nil, failed}, "dns-1", true, 1},
		{"both answer again", 70 * time.Second, []error{nil, nil}, "", true, 2},
	} {
		now := viewed.Add(tc.at)
		report := podReport{at: now, problems: []problem.Problem{upstream}, known: true}
		o := s.observeReports(pods, []podReport{report, report}, tc.errs, &vlanFacts{object: demo}, nil, now)
		var names []string
		others := 0
		for _, p := range s.Sites()[demo.String()] {
			if p.Code == problem.PodNotAnswering {
				names = append(names, p.Object.Name)
			} else {
				others++
			}
		}
		if got := strings.Join(names, " "); got != tc.silent || o.components[v1alpha1.ComponentDNS] != tc.observed || others != tc.problems {
			t.Errorf("%s: silent %q, observed %v, problems %v", tc.name, got, o.components, s.Sites())
		}
	}
	s.forget(demo)
	if sites := s.Sites(); len(sites) > 0 {
		t.Errorf("after the Infra was deleted: %v", sites)
	}
}

func TestReportsLastingAddressConflict(t *testing.T) {
	floating := netip.MustParsePrefix("198.18.50.7/32")
	reportOf := func(holds bool) podReport {
		view := &problem.VLAN{Interfaces: []problem.Interface{{Name: "net1", Up: true}}}
		if holds {
			view.Interfaces[0].Addresses = []netip.Prefix{floating}
		}
		return podReport{known: true, vlan: view}
	}
	pods := []corev1.Pod{ // each of another StatefulSet
		testPod("proxy-198-18-50-17-0", v1alpha1.ComponentProxy, time.Hour), testPod("proxy-198-18-50-27-0", v1alpha1.ComponentProxy, time.Hour),
		testPod("dns-0", v1alpha1.ComponentDNS, time.Hour), // on the network of the first one
	}
	s := &Problems{}
	for _, tc := range []struct {
		name          string
		at            time.Duration
		first, second bool
		want          int
	}{
		{"one replica has it", 0, true, false, 0},
		{"the address moves", 10 * time.Second, true, true, 0},
		{"the other replica has it", 20 * time.Second, false, true, 0},
		{"both begin to have it", 30 * time.Second, true, true, 0},
		{"both still have it", 30*time.Second + vlanGrace, true, true, 1},
		{"one drops it", 40*time.Second + vlanGrace, true, false, 0},
	} {
		f := &vlanFacts{object: demo, own: []netip.Addr{floating.Addr()}}
		o := s.observeReports(pods, []podReport{reportOf(tc.first), reportOf(tc.second), reportOf(tc.first)}, []error{nil, nil, nil}, f, nil, viewed.Add(tc.at))
		var got int
		for _, p := range o.problems {
			if p.Code == problem.AddressHeldTwice && p.Object == demo && len(p.Evidence) == 2 {
				got++
			}
		}
		if got != tc.want {
			t.Errorf("%s: %d problems, want %d: %v", tc.name, got, tc.want, o.problems)
		}
	}
}

func TestReadReport(t *testing.T) {
	const report = `{"problems": [{"code": "RangesFull", "severity": "warn", "message": "few"}, {"code": "LeaseLost", "severity": "fail", "object": {"kind": "VM", "name": "a"}, "message": "lost"}], "vlan": {"interfaces": [{"name": "net1"}]}, "answers": [{"address": "192.0.2.3", "mac": "02:00:00:00:00:03"}]}`
	for _, tc := range []struct {
		name   string
		status int
		body   string
		want   string
	}{
		{"report", http.StatusOK, report, "known Pod clusters/dhcp-0,VM a net1 192.0.2.3"},
		{"earlier version", http.StatusNotFound, "404 page not found", "unknown"},
		{"failure", http.StatusInternalServerError, "", "500 Internal Server Error"},
		{"invalid JSON", http.StatusOK, "", "EOF"},
		{"too large", http.StatusOK, `{"problems": [{"message": "` + strings.Repeat("a", maxReport) + `"}]}`, "unexpected EOF"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/problems" {
					t.Errorf("requested %s", r.URL)
				}
				w.WriteHeader(tc.status)
				_, _ = fmt.Fprint(w, tc.body) // a test that fails reads less
			}))
			defer server.Close()
			at, err := url.Parse(server.URL)
			lab.Must(t, err)
			port, err := strconv.ParseInt(at.Port(), 10, 32)
			lab.Must(t, err)
			pod := testPod("dhcp-0", v1alpha1.ComponentDHCP, time.Hour)
			pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "dhcp", ContainerPort: 67}, {Name: v1alpha1.PortHealth, ContainerPort: int32(port)}}}}
			r, err := newProber().readReport(t.Context(), &pod)
			got := "unknown"
			switch {
			case err != nil:
				got = err.Error()
			case r.known:
				got = "known " + r.problems[0].Object.String() + "," + r.problems[1].Object.String() + " " + r.vlan.Interfaces[0].Name + " " + r.answers[0].Address.String()
			}
			if !strings.HasSuffix(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestReplicaWithoutARequestForTheLeaseReportsNoLeader(t *testing.T) {
	if list := leaderProblems(&leader.Election{}, "oooi-system", 15*time.Second, viewed); list != nil {
		t.Errorf("before the first request for the Lease: %v", list)
	}
}
