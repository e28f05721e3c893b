package faults_test

import (
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

// TestDoctorAsksDaemons breaks running daemons, and expects doctor to find the faults in their pages.
func TestDoctorAsksDaemons(t *testing.T) {
	network.Need(t)
	r := faults.NewRunning(t, &network, management.Get(t), hosted.Get(t))
	t.Run("healthy", func(t *testing.T) { r.Healthy(t) })
	t.Run("ClusterRole oooi-doctor suffices", func(t *testing.T) { testClusterRole(t, r) })
	t.Run("missing rights are reported", func(t *testing.T) { testMissingRights(t, r) })
	t.Run("test client is gone", func(t *testing.T) { testClientLease(t, r) })
	for _, f := range lab.Sample(faults.OnRunning(r), 8) {
		t.Run(f.Name, func(t *testing.T) { r.Try(t, &f) })
	}
	r.T = t
}

// testClientLease expects no finding about the lease of a client of 'kubectl oooi test', which deletes its Lease.
func testClientLease(t *testing.T, r *faults.Running) {
	t.Helper()
	r.T = t
	const mac, name = "02:00:00:00:00:d1", "demo-test-gone"
	address, err := net.ParseMAC(mac)
	if err != nil {
		t.Fatal(err)
	}
	registered := testclient.Object("clusters", "demo", name, address, testclient.MaxAge)
	if err := r.Client.Create(t.Context(), registered); err != nil {
		t.Fatal(err)
	}
	lab.RequestAddress(t, lab.NewMachine(t, "net1", mac))
	list := &coordinationv1.LeaseList{}
	if err := r.Client.List(t.Context(), list, client.InNamespace("clusters")); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(list.Items, func(l coordinationv1.Lease) bool {
		return l.Spec.HolderIdentity != nil && strings.HasPrefix(*l.Spec.HolderIdentity, "clusters/"+testclient.VM(name))
	})
	if at < 0 {
		t.Fatalf("the client has no lease: %v", list.Items)
	}
	if err := r.Client.Delete(t.Context(), &list.Items[at]); err != nil {
		t.Fatal(err)
	}
	if d := r.Doctor(t, "--fail-on", "warn"); d.Code != 0 {
		t.Errorf("exit code %d: %s", d.Code, d.Stdout)
	}
	if err := r.Client.Delete(t.Context(), registered); err != nil {
		t.Fatal(err)
	}
}

// testClusterRole expects a user with ClusterRole oooi-doctor to get the same results as an administrator.
func testClusterRole(t *testing.T, r *faults.Running) {
	t.Helper()
	role := lab.ReadFile(t, "manifests", "doctor", "clusterrole.yaml")
	r.T = t
	r.Add(string(role))
	r.Add(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: oooi-doctor}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: oooi-doctor}
subjects: [{kind: User, name: reader, apiGroup: rbac.authorization.k8s.io}]
`)
	defer r.Mend()
	kubeconfig, err := r.ControlPlane.UserKubeconfig("reader")
	if err != nil {
		t.Fatal(err)
	}
	want := r.Doctor(t, "-o", "json")
	got := r.Oooi(t, kubeconfig, "doctor", "demo", "-n", "clusters", "-o", "json")
	if got.Stdout != want.Stdout || got.Code != 0 {
		t.Errorf("with ClusterRole oooi-doctor: exit code %d, output %s%s\nwith all rights: output %s", got.Code, got.Stderr, got.Stdout, want.Stdout)
	}
}

// skipped matches the line of a skipped check.
var skipped = regexp.MustCompile(`(?m)^skip  .*\n`)

// testMissingRights compares the output for a user without rights, and for one who may only read Infras, with a
// golden file: which checks pass. It omits skipped checks; the reasons are those of OOOI-API-002.
func testMissingRights(t *testing.T, r *faults.Running) {
	t.Helper()
	r.T = t
	r.Add(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: narrow, namespace: $ns}
rules: [{apiGroups: [hostedcluster.densityops.com], resources: [infras], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: narrow, namespace: $ns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: narrow}
subjects: [{kind: User, name: narrow, apiGroup: rbac.authorization.k8s.io}]
`)
	defer r.Mend()
	var report strings.Builder
	for _, user := range []string{"nobody", "narrow"} {
		kubeconfig, err := r.ControlPlane.UserKubeconfig(user)
		if err != nil {
			t.Fatal(err)
		}
		a := r.Oooi(t, kubeconfig, "doctor", "demo", "-n", "clusters", "-o", "wide", "--strict")
		fmt.Fprintf(&report, "# %s: exit code %d\n%s%s", user, a.Code, a.Stderr, skipped.ReplaceAllString(a.Stdout, ""))
	}
	golden.Check(t, filepath.Join("testdata", "forbidden.txt"), report.String())
}
