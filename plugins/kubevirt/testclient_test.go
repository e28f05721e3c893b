package kubevirt

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/densityops/oooi/internal/testclient"
	"github.com/densityops/oooi/test/lab"
)

// TestTestClientIsServedWhileItIsRegistered covers the life of registrations: deletion, expiry, and a MAC address of a VM.
func TestTestClientIsServedWhileItIsRegistered(t *testing.T) {
	cp := lab.New(t, lab.Config{})
	lab.Must(t, cp.InstallCRDs(t.Context(), lab.KubeVirt, lab.KubeVirtMachines))
	ns, infras := cp.Namespace(t), cp.Namespace(t)
	d := startDirectory(t, config{
		network: "clusters/vlan", namespaces: ns, kubeconfig: cp.Kubeconfig(), snapshot: filepath.Join(t.TempDir(), "snapshot"), testClients: infras + "/demo",
	})
	register := func(infra, name, mac string, age time.Duration) *coordinationv1.Lease {
		t.Helper()
		address, err := net.ParseMAC(mac)
		lab.Must(t, err)
		o := testclient.Object(infras, infra, name, address, age)
		o.TypeMeta = metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"}
		lab.Must(t, cp.Apply(t.Context(), o))
		return o
	}
	const macC, macD = "02:00:00:00:00:0c", "02:00:00:00:00:0d"
	o := register("demo", "first", macA, time.Minute)
	register("another", "second", macB, time.Minute)
	register("demo", "third", macC, 2*time.Second)
	lab.Poll(t, "the client", func() bool { return vmOf(t, d.directory, macA) == testclient.VM("first") })
	lab.Poll(t, "the other client to expire", func() bool {
		return strings.Contains(d.deletions(), infras+"/"+testclient.VM("third")+"/"+testclient.Component)
	})
	if got := vmOf(t, d.directory, macB) + vmOf(t, d.directory, macC); got != "" {
		t.Errorf("a client of another Infra or one that has expired is served: %s", got)
	}
	cp.MustApply(t, vmi(ns, "w1", macA, "demo", ""))
	lab.Poll(t, "the VM with the same MAC address", func() bool { return vmOf(t, d.directory, macA) == "w1" })
	lab.Must(t, cp.DeleteYAML(t.Context(), []byte("{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: "+o.Name+", namespace: "+infras+"}}")))
	lab.Poll(t, "the deletion of the client", func() bool { return strings.Contains(d.deletions(), testclient.VM("first")) })
	if vmOf(t, d.directory, macA) != "w1" {
		t.Error("the VM is not served after the deletion of the client")
	}
	register("demo", "fourth", macD, time.Minute)
	lab.Poll(t, "the last client", func() bool { return vmOf(t, d.directory, macD) != "" })
	content, ok := d.fileContent().(*fileContent)
	if !ok || len(content.Instances) != 1 || content.Instances[0].Name != "w1" {
		t.Errorf("the snapshot file would have %+v, want the VM only", content)
	}
}

// TestInvalidTestClientsAreIgnored decodes Leases that name no valid client.
func TestInvalidTestClientsAreIgnored(t *testing.T) {
	mac, err := net.ParseMAC(macA)
	lab.Must(t, err)
	for name, change := range map[string]func(*coordinationv1.Lease){
		"no holder":           func(o *coordinationv1.Lease) { o.Spec.HolderIdentity = nil },
		"no Ethernet address": func(o *coordinationv1.Lease) { o.Spec.HolderIdentity = new("02:00:00:00:00:00:00:0a") },
		"no duration":         func(o *coordinationv1.Lease) { o.Spec.LeaseDurationSeconds = nil },
		"expired": func(o *coordinationv1.Lease) {
			o.CreationTimestamp = metav1.NewTime(time.Now().Add(-testclient.MaxAge))
		},
		"longer than MaxAge": func(o *coordinationv1.Lease) {
			o.CreationTimestamp = metav1.NewTime(time.Now().Add(-testclient.MaxAge))
			o.Spec.LeaseDurationSeconds = new(int32(86400))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &testClients{directory: testDirectory(""), timers: map[key]*time.Timer{}}
			o := testclient.Object("clusters", "demo", "client", mac, time.Minute)
			o.CreationTimestamp = metav1.Now()
			change(o)
			u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
			lab.Must(t, err)
			c.receive(decodeTestClient(&unstructured.Unstructured{Object: u}))
			if got := vmOf(t, c.directory, macA); got != "" {
				t.Errorf("%s is served", got)
			}
		})
	}
}
