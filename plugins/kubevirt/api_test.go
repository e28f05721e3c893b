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
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/plugins/internal/vm"
	"github.com/densityops/oooi/test/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }

// vmi is an instance that the real CRD accepts, of a VirtualMachine where it has a UID.
func vmi(namespace, name, mac, infraID, machineUID string) string {
	owner := ""
	if machineUID != "" {
		owner = fmt.Sprintf(", ownerReferences: [{apiVersion: kubevirt.io/v1, kind: VirtualMachine, name: %s, uid: %s, controller: true}]", name, machineUID)
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

const somewhere = "0f3b7d4e-0000-4000-8000-000000000001"

func machineYAML(namespace, name string) string {
	return fmt.Sprintf("apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: %s, namespace: %s}\nspec: {running: true}\n---\n", name, namespace)
}

// apply applies YAML.
func apply(t *testing.T, cp *lab.ControlPlane, yaml string) {
	t.Helper()
	if err := cp.ApplyYAML(t.Context(), []byte(yaml)); err != nil {
		t.Fatal(err)
	}
}

// end deletes instances as KubeVirt does: their finalizer goes last.
func end(t *testing.T, cp *lab.ControlPlane, yaml string) {
	t.Helper()
	if err := cp.DeleteYAML(t.Context(), []byte(yaml)); err != nil {
		t.Fatal(err)
	}
	apply(t, cp, strings.ReplaceAll(yaml, "finalizers: [kubevirt.io/test]", "finalizers: []"))
}

// followed is a directory that follows an API server until the test, or stop, ends it.
type followed struct {
	*directory

	log     *lab.Output
	stop    func()
	mu      sync.Mutex
	deleted []string
}

func follow(t testing.TB, c config) *followed {
	t.Helper()
	client, err := watch.RESTConfig(c.source())
	if err != nil {
		t.Fatal(err)
	}
	f := &followed{log: &lab.Output{}}
	log := slog.New(slog.NewTextHandler(f.log, nil))
	f.directory = newDirectory(c, log)
	if f.follow, err = newFollowing(f.directory, client, log); err != nil {
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

func (f *followed) gone() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.deleted, " ")
}

func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatalf("timed out waiting for: %s", what)
		}
	}
}

// TestAnAPIServerIsFollowed goes through the life of a machine and of the API server.
func TestAnAPIServerIsFollowed(t *testing.T) {
	cp := lab.New(t, lab.Config{})
	ns := cp.Namespace(t)
	c := config{
		network: "clusters/vlan", namespaces: ns, selector: infraIDLabel + "=demo", kubeconfig: cp.Kubeconfig(),
		snapshot: filepath.Join(t.TempDir(), "snapshot"),
	}
	d := follow(t, c)

	await(t, "an API that is missing to be settled", d.ready)
	await(t, "it to be reported", func() bool {
		return len(d.log.Lines("does not serve this resource; it is used", "virtualmachineinstances")) == 1 &&
			len(d.log.Lines("VirtualMachines cannot be read")) == 1
	})
	if d.Synced() {
		t.Error("what is not served is seen")
	}
	if err := cp.InstallCRDs(t.Context(), lab.KubeVirt, lab.KubeVirtMachines); err != nil {
		t.Fatal(err)
	}
	await(t, "both APIs to be followed", func() bool { return d.Synced() && !d.follow.machines[0].refused() })

	worker := vmi(ns, "w1", macA, "demo", somewhere)
	apply(t, cp, machineYAML(ns, "w1")+worker+vmi(ns, "other", macB, "another", ""))
	await(t, "the machine", func() bool { return who(t, d.directory, macA) == "w1" })
	if got := who(t, d.directory, macB); got != "" {
		t.Errorf("the machine %q of another cluster is known", got)
	}
	nic := vm.Interface{Namespace: ns, VM: "w1", Name: "vlan"}
	end(t, cp, worker)
	await(t, "it to stop", func() bool { return who(t, d.directory, macA) == "" })
	if !d.Exists(nic) || d.gone() != "" {
		t.Errorf("a machine that was stopped is gone: %t, %q", d.Exists(nic), d.gone())
	}
	apply(t, cp, vmi(ns, "w1", macB, "demo", somewhere))
	await(t, "it to start with another MAC address", func() bool { return who(t, d.directory, macB) == "w1" })

	// A reservation that is not honoured is one Event, of both replicas and however often it is told.
	const note = "the reservation of 192.0.2.1 is not honoured"
	for range 2 {
		d.Refused(map[vm.Interface]string{nic: note})
	}
	d.follow.record(d.instances[key{ns, "w1"}], "interface vlan: "+note)
	list := []unstructured.Unstructured{}
	await(t, "the Event", func() bool {
		l, err := d.follow.recorder.client.Resource(events).Namespace(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		list = l.Items
		return len(list) > 0 && len(d.follow.recorder.waiting) == 0
	})
	about, _, _ := unstructured.NestedString(list[0].Object, "regarding", "name")
	if text, _, _ := unstructured.NestedString(list[0].Object, "note"); len(list) != 1 || about != "w1" || !strings.HasSuffix(text, note) {
		t.Errorf("the Events are %v", list)
	}
	d.Refused(nil)

	// An instance that loses its label is not a deleted one.
	apply(t, cp, vmi(ns, "w2", "02:00:00:00:00:0c", "demo", ""))
	await(t, "another", func() bool { return who(t, d.directory, "02:00:00:00:00:0c") == "w2" })
	apply(t, cp, vmi(ns, "w2", "02:00:00:00:00:0c", "another", ""))
	await(t, "it to leave", func() bool { return who(t, d.directory, "02:00:00:00:00:0c") == "" })
	if d.gone() != "" {
		t.Errorf("deleted are %q", d.gone())
	}

	await(t, "the snapshot to have it", func() bool {
		data, err := os.ReadFile(c.snapshot)
		return err == nil && strings.Contains(string(data), macB)
	})
	away := lab.StartOutage(t, cp)
	await(t, "the outage to be noticed", func() bool { return !d.Synced() })
	d.stop()
	again := follow(t, c)
	if !again.ready() || again.Synced() || who(t, again.directory, macB) != "w1" || !again.Exists(nic) {
		t.Errorf("after a start without an API server it is %+v", again.state())
	}
	away.End(t)
	await(t, "the API server to be followed again", again.Synced)
	if !again.state().AsOf.IsZero() {
		t.Error("what is seen is shown as old")
	}
	if err := cp.DeleteYAML(t.Context(), []byte(machineYAML(ns, "w1"))); err != nil {
		t.Fatal(err)
	}
	end(t, cp, vmi(ns, "w1", macB, "demo", somewhere))
	await(t, "the deletion to be told", func() bool { return again.gone() == ns+"/w1/vlan" })
	if again.Exists(nic) {
		t.Error("a deleted machine exists")
	}
}

// TestWithoutTheRightToReadVirtualMachines follows instances alone.
func TestWithoutTheRightToReadVirtualMachines(t *testing.T) {
	cp := lab.New(t, lab.Config{CRDs: []lab.CRDSet{lab.KubeVirt, lab.KubeVirtMachines}})
	ns := cp.Namespace(t)
	apply(t, cp, machineYAML(ns, "w1")+fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: dhcp, namespace: %[1]s}
rules: [{apiGroups: [kubevirt.io], resources: [virtualmachineinstances], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: dhcp, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: dhcp}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: dhcp}]
`, ns))
	kubeconfig, err := cp.UserKubeconfig("dhcp")
	if err != nil {
		t.Fatal(err)
	}
	d := follow(t, config{network: "clusters/vlan", namespaces: ns, kubeconfig: kubeconfig})
	await(t, "the instances to be followed", d.Synced)
	worker := vmi(ns, "w1", macA, "demo", somewhere)
	apply(t, cp, worker)
	await(t, "the machine", func() bool { return who(t, d.directory, macA) == "w1" })
	d.Refused(map[vm.Interface]string{{Namespace: ns, VM: "w1", Name: "vlan"}: "no"})
	await(t, "it to say that it may not create Events", func() bool {
		return len(d.log.Lines("an Event could not be created", "cannot create resource")) == 1
	})
	end(t, cp, worker)
	await(t, "its end to be told", func() bool { return d.gone() == ns+"/w1/vlan" })
	if lines := d.log.Lines("VirtualMachines cannot be read"); len(lines) != 1 || !strings.Contains(lines[0], "grant list and watch") {
		t.Errorf("it says %q", lines)
	}
}
