package kubevirt

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/internal/kubeconfig"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/plugins/internal/vm"
	"github.com/densityops/oooi/test/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }

// vmi returns the YAML of a VirtualMachineInstance that the real CRD accepts. It belongs to a VirtualMachine if
// ownerUID is set.
func vmi(namespace, name, mac, infraID, ownerUID string) string {
	owner := ""
	if ownerUID != "" {
		owner = fmt.Sprintf(", ownerReferences: [{apiVersion: kubevirt.io/v1, kind: VirtualMachine, name: %s, uid: %s, controller: true}]", name, ownerUID)
	}
	return fmt.Sprintf(`
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: %s, namespace: %s, labels: {hypershift.openshift.io/infra-id: %q}, finalizers: [kubevirt.io/test]%s}
spec:
  networks: [{name: vlan, multus: {networkName: clusters/vlan}}]
  domain: {devices: {interfaces: [{name: vlan, bridge: {}, macAddress: %q}]}}
---
`, name, namespace, infraID, owner, mac)
}

const vmUID = "0f3b7d4e-0000-4000-8000-000000000001"

func virtualMachineYAML(namespace, name string) string {
	return fmt.Sprintf("apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: %s, namespace: %s}\nspec: {running: true}\n---\n", name, namespace)
}

// deleteInstances deletes VirtualMachineInstances as KubeVirt does: the finalizer is removed last.
func deleteInstances(t *testing.T, cp *lab.ControlPlane, yaml string) {
	t.Helper()
	lab.Must(t, cp.DeleteYAML(t.Context(), []byte(yaml)))
	cp.MustApply(t, strings.ReplaceAll(yaml, "finalizers: [kubevirt.io/test]", "finalizers: []"))
}

// A runningDirectory is a directory that watches an API server until stop is called or the test ends.
type runningDirectory struct {
	*directory

	log     *lab.Output
	stop    func()
	mu      sync.Mutex
	deleted []string
}

func startDirectory(t testing.TB, c config) *runningDirectory {
	t.Helper()
	client, err := kubeconfig.RESTConfig(c.kubeconfig, c.context)
	lab.Must(t, err)
	f := &runningDirectory{log: &lab.Output{}}
	log := slog.New(slog.NewTextHandler(f.log, nil))
	f.directory = newDirectory(c, log)
	if f.follower, err = newFollower(f.directory, client, log); err != nil {
		t.Fatal(err)
	}
	f.load()
	f.Subscribe(func(i vm.Interface) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.deleted = append(f.deleted, i.String())
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.run(ctx)
	}()
	f.stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	t.Cleanup(func() {
		f.stop()
		if t.Failed() {
			t.Log(f.log)
		}
	})
	return f
}

func (f *runningDirectory) deletions() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.deleted, " ")
}

// TestDirectoryFollowsAnAPIServer covers the lifecycle of a VM, and an outage of the API server.
func TestDirectoryFollowsAnAPIServer(t *testing.T) {
	cp := lab.New(t, lab.Config{})
	ns := cp.Namespace(t)
	c := config{
		network: "clusters/vlan", namespaces: ns, selector: objects.LabelInfraID + "=demo", kubeconfig: cp.Kubeconfig(),
		snapshot: filepath.Join(t.TempDir(), "snapshot"),
	}
	d := startDirectory(t, c)

	lab.Poll(t, "the directory to be ready without KubeVirt's API", d.ready)
	lab.Poll(t, "the missing API to be logged", func() bool {
		return len(d.log.Lines("does not serve this resource", "virtualmachineinstances")) == 1 &&
			len(d.log.Lines("cannot read VirtualMachines")) == 1
	})
	if d.Synced() {
		t.Error("the directory is synced although the API is not served")
	}
	lab.Must(t, cp.InstallCRDs(t.Context(), lab.KubeVirt, lab.KubeVirtMachines))
	lab.Poll(t, "both APIs to be watched", func() bool { return d.Synced() && !d.follower.vms[0].unavailable() })

	worker := vmi(ns, "w1", macA, "demo", vmUID)
	cp.MustApply(t, virtualMachineYAML(ns, "w1")+worker+vmi(ns, "other", macB, "another", ""))
	lab.Poll(t, "the VM", func() bool { return vmOf(t, d.directory, macA) == "w1" })
	if got := vmOf(t, d.directory, macB); got != "" {
		t.Errorf("the VM %q of another cluster is known", got)
	}
	nic := vm.Interface{Namespace: ns, VM: "w1", Name: "vlan"}
	deleteInstances(t, cp, worker)
	lab.Poll(t, "the VM to stop", func() bool { return vmOf(t, d.directory, macA) == "" })
	if !d.Exists(nic) || d.deletions() != "" {
		t.Errorf("a stopped VM exists: %t; deletions: %q", d.Exists(nic), d.deletions())
	}
	cp.MustApply(t, vmi(ns, "w1", macB, "demo", vmUID))
	lab.Poll(t, "the VM to start with another MAC address", func() bool { return vmOf(t, d.directory, macB) == "w1" })

	// A refused reservation creates one Event, even if both replicas report it repeatedly.
	const note = "the reservation of 192.0.2.1 is not honoured"
	for range 2 {
		d.ReportRefused(map[vm.Interface]string{nic: note})
	}
	d.follower.record(d.instances[key{ns, "w1"}], "interface vlan: "+note)
	list := []unstructured.Unstructured{}
	lab.Poll(t, "the Event", func() bool {
		l, err := d.follower.recorder.client.Resource(events).Namespace(ns).List(t.Context(), metav1.ListOptions{})
		lab.Must(t, err)
		list = l.Items
		return len(list) > 0 && len(d.follower.recorder.pending) == 0
	})
	about, _, _ := unstructured.NestedString(list[0].Object, "regarding", "name")
	if text, _, _ := unstructured.NestedString(list[0].Object, "note"); len(list) != 1 || about != "w1" || !strings.HasSuffix(text, note) {
		t.Errorf("the Events are %v", list)
	}
	d.ReportRefused(nil)

	// A VirtualMachineInstance that loses its label is not deleted.
	cp.MustApply(t, vmi(ns, "w2", "02:00:00:00:00:0c", "demo", ""))
	lab.Poll(t, "the second VM", func() bool { return vmOf(t, d.directory, "02:00:00:00:00:0c") == "w2" })
	cp.MustApply(t, vmi(ns, "w2", "02:00:00:00:00:0c", "another", ""))
	lab.Poll(t, "the second VM to be removed", func() bool { return vmOf(t, d.directory, "02:00:00:00:00:0c") == "" })
	if d.deletions() != "" {
		t.Errorf("deletions: %q", d.deletions())
	}

	lab.Poll(t, "the snapshot file to contain the VM", func() bool {
		data, err := os.ReadFile(c.snapshot)
		return err == nil && strings.Contains(string(data), macB)
	})
	outage := lab.StartOutage(t, cp)
	lab.Poll(t, "the outage to be noticed", func() bool { return !d.Synced() })
	d.stop()
	restarted := startDirectory(t, c)
	if !restarted.ready() || restarted.Synced() || vmOf(t, restarted.directory, macB) != "w1" || !restarted.Exists(nic) {
		t.Errorf("after a start without an API server the state is %+v", restarted.state())
	}
	outage.End(t)
	lab.Poll(t, "the directory to be synced again", restarted.Synced)
	if !restarted.state().AsOf.IsZero() {
		t.Error("asOf is set although the directory is synced")
	}
	lab.Must(t, cp.DeleteYAML(t.Context(), []byte(virtualMachineYAML(ns, "w1"))))
	deleteInstances(t, cp, vmi(ns, "w1", macB, "demo", vmUID))
	lab.Poll(t, "the deletion to be observed", func() bool { return restarted.deletions() == ns+"/w1/vlan" })
	if restarted.Exists(nic) {
		t.Error("a deleted VM exists")
	}
	standalone := vmi(ns, "w3", "02:00:00:00:00:0d", "demo", "")
	cp.MustApply(t, standalone)
	lab.Poll(t, "the VM without a VirtualMachine", func() bool { return vmOf(t, restarted.directory, "02:00:00:00:00:0d") == "w3" })
	deleteInstances(t, cp, standalone)
	lab.Poll(t, "its deletion to be observed", func() bool { return restarted.deletions() == ns+"/w1/vlan "+ns+"/w3/vlan" })

	// Objects that disappear with their CRD have no deletion timestamp.
	vanishing := strings.Replace(vmi(ns, "w4", "02:00:00:00:00:0e", "demo", vmUID), "finalizers: [kubevirt.io/test]", "finalizers: []", 1)
	cp.MustApply(t, virtualMachineYAML(ns, "w4")+vanishing)
	lab.Poll(t, "the fourth VM", func() bool {
		return vmOf(t, restarted.directory, "02:00:00:00:00:0e") == "w4" && restarted.Exists(vm.Interface{Namespace: ns, VM: "w4", Name: "vlan"})
	})
	for _, object := range []string{vanishing, virtualMachineYAML(ns, "w4")} {
		lab.Must(t, cp.DeleteYAML(t.Context(), []byte(object)))
	}
	lab.Poll(t, "the fourth VM to be removed", func() bool { return !restarted.Exists(vm.Interface{Namespace: ns, VM: "w4", Name: "vlan"}) })
	if got := restarted.deletions(); got != ns+"/w1/vlan "+ns+"/w3/vlan" {
		t.Errorf("deletions without a deletion timestamp: %q", got)
	}
}

// TestWithoutTheRightToReadVirtualMachines watches VirtualMachineInstances only.
func TestWithoutTheRightToReadVirtualMachines(t *testing.T) {
	cp := lab.New(t, lab.Config{CRDs: []lab.CRDSet{lab.KubeVirt, lab.KubeVirtMachines}})
	ns := cp.Namespace(t)
	cp.MustApply(t, virtualMachineYAML(ns, "w1"), lab.Role(ns, "dhcp", "dhcp", "{apiGroups: [kubevirt.io], resources: [virtualmachineinstances], verbs: [get, list, watch]}"))
	file, err := cp.UserKubeconfig("dhcp")
	lab.Must(t, err)
	d := startDirectory(t, config{network: "clusters/vlan", namespaces: ns, kubeconfig: file})
	lab.Poll(t, "the directory to be synced", d.Synced)
	worker := vmi(ns, "w1", macA, "demo", vmUID)
	cp.MustApply(t, worker)
	lab.Poll(t, "the VM", func() bool { return vmOf(t, d.directory, macA) == "w1" })
	d.ReportRefused(map[vm.Interface]string{{Namespace: ns, VM: "w1", Name: "vlan"}: "no"})
	lab.Poll(t, "the forbidden Event to be logged", func() bool {
		return len(d.log.Lines("cannot create an Event", "cannot create resource")) == 1
	})
	deleteInstances(t, cp, worker)
	lab.Poll(t, "the deletion to be observed after the VM ended", func() bool { return d.deletions() == ns+"/w1/vlan" })
	if lines := d.log.Lines("cannot read VirtualMachines"); len(lines) != 1 || !strings.Contains(lines[0], "grant list and watch") {
		t.Errorf("the log has %q", lines)
	}
}

// TestVMsDisappearWithTheirAPI deletes the CRDs of KubeVirt. VMs must be known until they exist again, also after a restart,
// and no deletion may be observed.
func TestVMsDisappearWithTheirAPI(t *testing.T) {
	cp := lab.New(t, lab.Config{CRDs: []lab.CRDSet{lab.KubeVirt, lab.KubeVirtMachines}})
	ns := cp.Namespace(t)
	c := config{network: "clusters/vlan", namespaces: ns, kubeconfig: cp.Kubeconfig(), snapshot: filepath.Join(t.TempDir(), "snapshot")}
	d := startDirectory(t, c)
	all := virtualMachineYAML(ns, "w1") + strings.Replace(vmi(ns, "w1", macA, "demo", vmUID), "finalizers: [kubevirt.io/test]", "finalizers: []", 1)
	cp.MustApply(t, all)
	lab.Poll(t, "the VM", func() bool { return d.Synced() && vmOf(t, d.directory, macA) == "w1" })
	crds, err := lab.CRDs(t.Context(), lab.KubeVirt, lab.KubeVirtMachines)
	lab.Must(t, err)
	for _, crd := range crds {
		lab.Must(t, cp.Delete(t.Context(), crd))
	}
	kept := func(d *runningDirectory) bool {
		n := watch.CountKept(d.follower.status())
		return n["virtualmachineinstances.kubevirt.io"] == 1 && n["virtualmachines.kubevirt.io"] == 1
	}
	lab.Poll(t, "the VM to be kept", func() bool { return kept(d) && vmOf(t, d.directory, macA) == "w1" })
	lab.Poll(t, "the snapshot file to contain what is kept", func() bool {
		data, err := os.ReadFile(c.snapshot)
		return err == nil && strings.Contains(string(data), `"kept":{"virtualmachine`)
	})
	d.stop()
	restarted := startDirectory(t, c)
	lab.Poll(t, "the VM to be kept after a restart", func() bool {
		return len(restarted.log.Lines("does not serve this resource", "virtualmachineinstances")) == 1 && kept(restarted)
	})
	if got := vmOf(t, restarted.directory, macA); got != "w1" {
		t.Errorf("after the restart the VM is %q", got)
	}
	lab.Must(t, cp.InstallCRDs(t.Context(), lab.KubeVirt, lab.KubeVirtMachines))
	cp.MustApply(t, all)
	lab.Poll(t, "the VM to exist again", func() bool { return restarted.Synced() && len(watch.CountKept(restarted.follower.status())) == 0 })
	if vmOf(t, restarted.directory, macA) != "w1" || d.deletions()+restarted.deletions() != "" {
		t.Errorf("deletions %q and %q", d.deletions(), restarted.deletions())
	}
}
