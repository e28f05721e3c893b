package faults_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/densityops/oooi/internal/testclient"
	"github.com/densityops/oooi/test/browser"
	"github.com/densityops/oooi/test/faults"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

var (
	network    = faults.RunningNetwork()
	management = lab.Shared{
		Config: lab.Config{Name: "management", ServiceCIDR: "10.96.0.0/16", ControllerManager: true, CRDs: []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.NetworkAttachmentDefinition, lab.OpenShiftDNS, lab.KubeVirt, lab.KubeVirtMachines}},
	}
	hosted = lab.Shared{
		Config: lab.Config{Name: "hosted", Address: faults.HostedAddress, ServerNames: []string{"api." + faults.RunningDomain}, ServiceCIDR: "172.31.0.0/16", CRDs: []lab.CRDSet{lab.MetalLB}},
	}
)

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	if code := network.Main(m, &management, &hosted); code != 0 {
		os.Exit(code)
	}
}

// TestDoctorFindsFaults breaks a running site in many ways, and expects doctor to report each fault first.
func TestDoctorFindsFaults(t *testing.T) {
	network.Need(t)
	r := faults.NewRunning(t, &network, management.Get(t), hosted.Get(t))
	t.Run("healthy", func(t *testing.T) { r.Healthy(t) })
	for _, g := range faults.OnRunning(r) {
		t.Run(g.Name, func(t *testing.T) { r.Try(t, &g) })
	}
	t.Run("bundle", func(t *testing.T) { testBundle(t, r) })
	t.Run("page", func(t *testing.T) { testPage(t, r) })
	t.Run("ClusterRole oooi-doctor suffices", func(t *testing.T) { testClusterRole(t, r) })
	t.Run("missing permissions are reported", func(t *testing.T) { testMissingRights(t, r) })
	t.Run("test client is gone", func(t *testing.T) { testClientLease(t, r) })
	t.Run("objects of HyperShift", func(t *testing.T) { testHyperShiftObjects(t, r) })
	r.T = t
}

// testBundle expects the same results from a bundle as from the cluster.
func testBundle(t *testing.T, r *faults.Running) {
	t.Helper()
	r.T = t
	bundle := filepath.Join(t.TempDir(), "bundle.tar.gz")
	live := r.Doctor(t, "-o", "json", "--save", bundle)
	if saved := r.Doctor(t, "-o", "json", "--from", bundle); saved.Stdout != live.Stdout || saved.Code != live.Code {
		t.Errorf("exit code %d, output %s%s\nlive: exit code %d, output %s%s", saved.Code, saved.Stdout, saved.Stderr, live.Code, live.Stdout, live.Stderr)
	}
}

// testPage opens the page about the site in a browser.
func testPage(t *testing.T, r *faults.Running) {
	t.Helper()
	d := r.Doctor(t, "-o", "html")
	p := browser.Open(t, d.Stdout, 1280, nil)
	if summary := browser.Value[string](t, p, `document.querySelector('.summary').innerText`); d.Code != 0 || summary != "no problems found" {
		t.Errorf("exit code %d, and the summary is %q", d.Code, summary)
	}
	for _, id := range []string{"vlan", "dhcp", "dns", "proxy", "apps", "upstream", "service-oauth"} {
		if !browser.Value[bool](t, p, `document.querySelector('svg a[href="#site-0-`+id+`"] .good') !== null`) {
			t.Errorf("%s is not drawn as good", id)
		}
	}
	p.Layout(t)
	p.Resize(t, 400)
	p.Layout(t)
}

// testClientLease expects no finding about the lease of a client of 'kubectl oooi test', which deletes its Lease.
func testClientLease(t *testing.T, r *faults.Running) {
	t.Helper()
	r.T = t
	const mac, name = "02:00:00:00:00:d1", "demo-test-gone"
	address, err := net.ParseMAC(mac)
	lab.Must(t, err)
	registered := testclient.Object("clusters", "demo", name, address, testclient.MaxAge)
	lab.Must(t, r.Client.Create(t.Context(), registered))
	lab.NewMachine(t, "net1", mac).UDHCPC(t)
	list := &coordinationv1.LeaseList{}
	lab.Must(t, r.Client.List(t.Context(), list, client.InNamespace("clusters")))
	at := slices.IndexFunc(list.Items, func(l coordinationv1.Lease) bool {
		return l.Spec.HolderIdentity != nil && strings.HasPrefix(*l.Spec.HolderIdentity, "clusters/"+testclient.VM(name))
	})
	if at < 0 {
		t.Fatalf("the client has no lease: %v", list.Items)
	}
	lab.Must(t, r.Client.Delete(t.Context(), &list.Items[at]))
	if d := r.Doctor(t, "--fail-on", "warn"); d.Code != 0 {
		t.Errorf("exit code %d: %s", d.Code, d.Stdout)
	}
	lab.Must(t, r.Client.Delete(t.Context(), registered))
}

// testHyperShiftObjects expects no finding with the Services, Routes, NetworkPolicies and the status that HyperShift writes. They stay.
func testHyperShiftObjects(t *testing.T, r *faults.Running) {
	t.Helper()
	r.T = t
	hostedCluster, controlPlane := lab.HyperShiftObjects(t, "load-balancer")
	for _, o := range controlPlane {
		lab.Must(t, r.ControlPlane.Apply(t.Context(), o))
	}
	status, err := json.Marshal(map[string]any{"status": hostedCluster.Object["status"]})
	lab.Must(t, err)
	r.PatchStatus("hypershift.openshift.io/v1beta1 HostedCluster clusters/demo", string(status))
	r.Healthy(t)
}

// testClusterRole expects a user with ClusterRole oooi-doctor to get the same results as an administrator, except for the check
// that applies objects as a dry run.
func testClusterRole(t *testing.T, r *faults.Running) {
	t.Helper()
	r.T = t
	r.Apply(string(lab.ReadFile(t, "manifests", "doctor", "clusterrole.yaml")) + "---" + `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: oooi-doctor}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: oooi-doctor}
subjects: [{kind: User, name: reader, apiGroup: rbac.authorization.k8s.io}]
`)
	const drift = "OOOI-INF-002"
	all, reader := r.Diagnose(), r.Diagnose("--as", "reader")
	for i := range all.Results {
		want, got := all.Results[i], reader.Results[i]
		if want.Code == drift {
			want.Status = "skip"
		}
		if got.Code != want.Code || got.Status != want.Status || len(got.Findings) != len(want.Findings) {
			t.Errorf("with ClusterRole oooi-doctor: %+v\nwith all permissions: %+v", got, want)
		}
	}
}

// skipped matches the line of skipped checks.
var skipped = regexp.MustCompile(`(?m)^skip  .*\n`)

// testMissingRights compares the output for a user without permissions, and for one who may only read Infras, with a golden file:
// which checks pass. It omits skipped checks; OOOI-API-002 has the reasons.
func testMissingRights(t *testing.T, r *faults.Running) {
	t.Helper()
	r.T = t
	r.Apply(lab.Role("clusters", "narrow", "narrow", "{apiGroups: [hostedcluster.densityops.com], resources: [infras], verbs: [get, list]}"))
	var report strings.Builder
	for _, user := range []string{"nobody", "narrow"} {
		a := r.Doctor(t, "-o", "wide", "--strict", "--as", user)
		fmt.Fprintf(&report, "# %s: exit code %d\n%s%s", user, a.Code, a.Stderr, skipped.ReplaceAllString(a.Stdout, ""))
	}
	golden.Check(t, filepath.Join("testdata", "forbidden.txt"), report.String())
}
