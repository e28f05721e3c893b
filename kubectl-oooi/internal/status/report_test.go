package status

import (
	_ "embed"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var o T
	lab.Must(t, yaml.UnmarshalStrict([]byte(text), &o))
	return o
}

// troubled is an Infra with everything that a report shows.
//
//go:embed testdata/infra.yaml
var troubled string

//go:embed testdata/proxyservers.yaml
var proxies string

//go:embed testdata/pods.yaml
var podList string

func TestReport(t *testing.T) {
	infra := decode[v1alpha1.Infra](t, troubled)
	servers, pods := decode[[]*v1alpha1.ProxyServer](t, proxies), decode[[]*corev1.Pod](t, podList)
	lease := decode[coordinationv1.Lease](t, `spec: {holderIdentity: green-proxy-192-0-2-7-0, acquireTime: "2026-01-02T03:04:05.000000Z", renewTime: "2026-01-02T03:05:06.000000Z", leaseTransitions: 3}`)
	report := NewReport(Objects{Infra: &infra, Serves: &model.Ref{Kind: "HostedCluster", Namespace: "clusters", Name: "green"}, Pods: pods, ProxyServers: servers, Floating: &lease})
	var b strings.Builder
	lab.Must(t, Describe(&b, report))
	b.WriteString("\n")
	lab.Must(t, output.NewTable(Columns(true, infra.CreationTimestamp.Add(90*time.Minute)), []*Report{report}, true).Write(&b))
	golden.Check(t, "testdata/troubled.golden", b.String())
}

func TestFloatingAddressWithoutHolder(t *testing.T) {
	infra := decode[v1alpha1.Infra](t, troubled)
	released := decode[coordinationv1.Lease](t, `spec: {holderIdentity: "", acquireTime: "2026-01-02T03:04:05.000000Z", leaseTransitions: 3}`)
	for _, lease := range []*coordinationv1.Lease{nil, &released} {
		if got, want := NewReport(Objects{Infra: &infra, Floating: lease}).FloatingAddress.String(), "192.0.2.4, 2001:db8::4, not held by any pod"; got != want {
			t.Errorf("%v: %q, want %q", lease, got, want)
		}
	}
}

func TestReadyMatchesGeneration(t *testing.T) {
	const ready = "{type: Ready, status: \"True\", reason: Ready, message: '', lastTransitionTime: null}"
	for _, tc := range []struct {
		name, status string
		want         metav1.ConditionStatus
		dns          metav1.ConditionStatus
	}{
		{"current generation", "{observedGeneration: 2, componentStatus: {dnsReady: true, dhcpReady: false, proxyReady: false}, conditions: [" + ready + "]}", metav1.ConditionTrue, metav1.ConditionTrue},
		{"previous generation", "{observedGeneration: 1, componentStatus: {dnsReady: true, dhcpReady: false, proxyReady: false}, conditions: [" + ready + "]}", metav1.ConditionUnknown, metav1.ConditionUnknown},
		{"no condition", "{observedGeneration: 2}", metav1.ConditionUnknown, metav1.ConditionUnknown},
		{"no status", "{}", metav1.ConditionUnknown, metav1.ConditionUnknown},
	} {
		infra := decode[v1alpha1.Infra](t, "metadata: {name: a, namespace: b, generation: 2}\nspec: {networkConfig: {}, infraComponents: {dns: {}}}\nstatus: "+tc.status)
		r := NewReport(Objects{Infra: &infra})
		if r.Ready.Status != tc.want || r.Components[1].Ready != tc.dns {
			t.Errorf("%s: Ready is %s and DNS %s", tc.name, r.Ready.Status, r.Components[1].Ready)
		}
	}
}

func TestApplicationsString(t *testing.T) {
	for _, tc := range []struct {
		spec, status, want string
	}{
		{"{}", "{}", "Disabled"},
		{"{enabled: true}", "{}", "Unknown"},
		{"{enabled: true}", "{appsIngress: {phase: Pending}}", "Pending"},
		{"{enabled: true}", "{appsIngress: {phase: Ready, externalIP: 192.0.2.1}}", "192.0.2.1"},
		{"{enabled: true}", "{appsIngress: {phase: Degraded, externalIPs: [192.0.2.1, 192.0.2.2]}}", "192.0.2.1,192.0.2.2(Degraded)"},
		{"{enabled: false}", "{appsIngress: {phase: Ready, externalIP: 192.0.2.1}}", "Disabled"},
	} {
		infra := decode[v1alpha1.Infra](t, "metadata: {name: a, namespace: b}\nspec: {networkConfig: {}, appsIngress: "+tc.spec+"}\nstatus: "+tc.status)
		if got := NewReport(Objects{Infra: &infra}).Applications.String(); got != tc.want {
			t.Errorf("%s with %s: %q, want %q", tc.spec, tc.status, got, tc.want)
		}
	}
}

func TestUnreadyReason(t *testing.T) {
	const conditions = "conditions: [{type: Ready, status: 'False'}, {type: ContainersReady, status: 'False', message: 'containers with unready status: [coredns]'}]"
	const oom = "lastState: {terminated: {exitCode: 137, reason: OOMKilled, message: 'maxprocs: 2'}}"
	for _, tc := range []struct{ name, containers, want string }{
		{"waiting to restart", "[{name: coredns, restartCount: 2, state: {waiting: {reason: CrashLoopBackOff, message: back-off 10s}}, " + oom + "}]", "container coredns exited with 137 (OOMKilled): maxprocs: 2, restarting"},
		{"restarted", "[{name: coredns, restartCount: 2, state: {running: {}}, " + oom + "}]", "container coredns exited with 137 (OOMKilled): maxprocs: 2, restarting"},
		{"exited", "[{name: coredns, state: {terminated: {exitCode: 1, reason: Error, message: bad}}}]", "container coredns exited with 1: bad"},
		{"another container restarted and is ready", "[{name: envoy, ready: true, restartCount: 1, state: {running: {}}, " + oom + "}, {name: coredns, state: {running: {}}}]", "containers with unready status: [coredns]"},
		{"cannot start", "[{name: coredns, state: {waiting: {reason: ErrImagePull, message: none}}}]", "container coredns: ErrImagePull: none"},
	} {
		pod := decode[corev1.Pod](t, "status: {phase: Running, "+conditions+", containerStatuses: "+tc.containers+"}")
		if got := UnreadyReason(&pod); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
