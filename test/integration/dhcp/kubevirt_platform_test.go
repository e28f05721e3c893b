//go:build platform

package dhcp_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/densityops/oooi/test/lab"
)

const (
	// platformNIC is the name that HyperShift gives to the interface of a NodePool's additional network clusters/vlan.
	platformNIC = "iface1_clusters-vlan"

	// platformObjects are a node with a heartbeat of virt-handler, which virt-controller requires, and the configuration of
	// KubeVirt. Emulation saves the node from having a device plugin.
	platformObjects = `
apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {kubevirt.io/schedulable: "true"}, annotations: {kubevirt.io/heartbeat: "2100-01-01T00:00:00Z"}}
---
apiVersion: kubevirt.io/v1
kind: KubeVirt
metadata: {name: kubevirt, namespace: kubevirt}
spec: {configuration: {developerConfiguration: {useEmulation: true}}}
---
`
	// platformVM is a VM of a NodePool without the default network, except for its disk. virt-api sets the architecture.
	platformVM = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: demo-workers-abcde, namespace: NS, labels: {hypershift.openshift.io/infra-id: demo-x7k2p}}
spec:
  runStrategy: Always
  template:
    metadata: {labels: {hypershift.openshift.io/infra-id: demo-x7k2p, hypershift.openshift.io/nodepool-name: demo-workers}}
    spec:
      architecture: amd64
      evictionStrategy: External
      networks: [{name: iface1_clusters-vlan, multus: {networkName: clusters/vlan}}]
      domain: {memory: {guest: 1Gi}, devices: {interfaces: [{name: iface1_clusters-vlan, bridge: {}}]}}
`
)

// A platform is a management cluster with KubeVirt's virt-controller and no kubelet. The test sets what the kubelet, Multus
// and virt-handler report.
type platform struct {
	*cluster

	binary string
	client client.Client
}

func newPlatform(t *testing.T) *platform {
	t.Helper()
	ctrllog.SetLogger(logr.Discard())
	binary, err := lab.BuildKubeVirt(t.Context(), t.Logf)
	lab.Must(t, err)
	cp := lab.New(t, lab.Config{Name: "kubevirt", Address: apiAddress, CRDs: []lab.CRDSet{lab.KubeVirtAll, lab.NetworkAttachmentDefinition}})
	cp.MustApply(t, lab.Namespaces("clusters", "kubevirt"), lab.BridgeNetwork("clusters", "vlan", "vlan0"), platformObjects)
	lab.NewDaemon(t, "virt-controller", func() *exec.Cmd {
		return exec.Command(binary, "virt-controller", "--kubeconfig", cp.Kubeconfig(), "--listen", "127.0.0.1")
	}).Start(t)
	return &platform{&cluster{cp, cp.Namespace(t)}, binary, cp.Client(t)}
}

// launchPod waits for the launcher pod that virt-controller creates for a VirtualMachineInstance, and reports that it runs and has the
// network interfaces that it requests.
func (p *platform) launchPod(t *testing.T, vmi types.UID) {
	t.Helper()
	pods := p.cp.Kube(t).CoreV1().Pods(p.namespace)
	var pod *corev1.Pod
	lab.Poll(t, "virt-controller to create a pod", func() bool {
		list, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "kubevirt.io=virt-launcher,kubevirt.io/created-by=" + string(vmi)})
		lab.Must(t, err)
		if len(list.Items) > 0 {
			pod = &list.Items[0]
		}
		return pod != nil
	})
	lab.Must(t, pods.Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "node-1"},
	}, metav1.CreateOptions{}))

	var requested []struct {
		Name, Namespace, Interface string
	}
	lab.Must(t, json.Unmarshal([]byte(pod.Annotations["k8s.v1.cni.cncf.io/networks"]), &requested))
	status := []map[string]any{{"name": "pods", "interface": "eth0", "ips": []string{"10.128.0.7"}, "default": true}}
	for _, r := range requested {
		status = append(status, map[string]any{"name": r.Namespace + "/" + r.Name, "interface": r.Interface, "mac": "0a:58:00:00:00:07"})
	}
	annotation, err := json.Marshal(status)
	lab.Must(t, err)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{"k8s.v1.cni.cncf.io/network-status": string(annotation)},
	}})
	lab.Must(t, err)
	pod, err = pods.Patch(t.Context(), pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	lab.Must(t, err)
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
		{Name: "compute", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}},
	}}
	_, err = pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	lab.Must(t, err)
}

// instance returns the VirtualMachineInstance, or nil if there is none.
func (p *platform) instance(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	vmi := &unstructured.Unstructured{}
	vmi.SetAPIVersion("kubevirt.io/v1")
	vmi.SetKind("VirtualMachineInstance")
	if err := p.client.Get(t.Context(), client.ObjectKey{Namespace: p.namespace, Name: "demo-workers-abcde"}, vmi); err != nil {
		return nil
	}
	return vmi
}

// awaitPhase waits until a VirtualMachineInstance other than the one with UID not is in a phase, and returns it.
func (p *platform) awaitPhase(t *testing.T, phase string, not types.UID) (vmi *unstructured.Unstructured) {
	t.Helper()
	lab.Await(t, "phase "+phase, func() string {
		if vmi = p.instance(t); vmi == nil || vmi.GetUID() == not {
			return "no VirtualMachineInstance"
		}
		if got, _, _ := unstructured.NestedString(vmi.Object, "status", "phase"); got != phase {
			return "phase " + got
		}
		return ""
	})
	return vmi
}

// reportRunning reports, as virt-handler does, that the VM runs with interfaces: arguments of test/programs/kubevirt.
func (p *platform) reportRunning(t *testing.T, interfaces ...string) {
	t.Helper()
	lab.Await(t, "virt-handler's status to be updated", func() string {
		before, err := p.instance(t).MarshalJSON()
		lab.Must(t, err)
		cmd := exec.CommandContext(t.Context(), p.binary, slices.Concat([]string{"run"}, interfaces)...)
		cmd.Stdin = bytes.NewReader(before)
		after, err := cmd.Output()
		lab.Must(t, err)
		vmi := &unstructured.Unstructured{}
		lab.Must(t, vmi.UnmarshalJSON(after))
		if err := p.client.Update(t.Context(), vmi); err != nil {
			return err.Error() // a conflict
		}
		return ""
	})
}

// infoSource returns the sources of the status of an interface.
func infoSource(vmi *unstructured.Unstructured, name string) string {
	list, _, _ := unstructured.NestedSlice(vmi.Object, "status", "interfaces")
	for _, i := range list {
		if i, ok := i.(map[string]any); ok && i["name"] == name {
			source, _ := i["infoSource"].(string)
			return source
		}
	}
	return ""
}

// TestVMOfKubeVirt starts a VM as HyperShift creates it, with the VirtualMachineInstance that KubeVirt writes, and restarts it. No
// address is leased before KubeVirt reports the MAC address, and the VM keeps its address although the MAC address changes.
func TestVMOfKubeVirt(t *testing.T) {
	p := newPlatform(t)
	s := newSite(t)
	srv := p.serve(t, s)
	p.cp.MustApply(t, strings.ReplaceAll(platformVM, "NS", p.namespace))

	var address string
	var last types.UID
	for start, mac := range []string{mac1, mac2} {
		vmi := p.awaitPhase(t, "Scheduling", last)
		p.launchPod(t, vmi.GetUID())
		vmi = p.awaitPhase(t, "Scheduled", last)
		if source := infoSource(vmi, platformNIC); source != "multus-status" {
			t.Errorf("before the VM runs, the interface is known from %q: %v", source, vmi.Object["status"])
		}
		srv.awaitClient(t, mac, "")
		const stranger = "02:00:00:00:00:99"
		p.reportRunning(t, platformNIC+"="+mac, "="+stranger+"=192.0.2.200")
		lab.Poll(t, "both sources of the interface", func() bool { return infoSource(p.instance(t), platformNIC) == "domain, multus-status" })
		srv.awaitClient(t, mac, p.namespace+"/demo-workers-abcde/"+platformNIC)
		srv.awaitClient(t, stranger, "")

		m := s.newMachine(t, mac)
		dhclient := m.startClient(t, m.dhclient(t)...)
		e := m.awaitEvent(t, 0, "BOUND")
		if e["new_host_name"] != "demo-workers-abcde" || start > 0 && e["new_ip_address"] != address {
			t.Errorf("start %d: lease %v, want address %q", start, e, address)
		}
		address, last = e["new_ip_address"], vmi.GetUID()
		// With the agent, virt-handler reports the address of the lease.
		p.reportRunning(t, platformNIC+"="+mac+"="+address)
		lab.Poll(t, "the guest agent's source", func() bool {
			return infoSource(p.instance(t), platformNIC) == "domain, guest-agent, multus-status"
		})
		srv.awaitClient(t, mac, p.namespace+"/demo-workers-abcde/"+platformNIC)

		dhclient.Kill(t)
		m.Run(t, "ip", "address", "flush", "dev", "eth0")
		lab.Must(t, p.client.Delete(t.Context(), vmi))
		pods := p.cp.Kube(t).CoreV1().Pods(p.namespace)
		lab.Poll(t, "the VM to restart", func() bool {
			// There is no kubelet that ends the pod which virt-controller deletes.
			list, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "kubevirt.io/created-by=" + string(last)})
			lab.Must(t, err)
			for _, pod := range list.Items {
				if pod.DeletionTimestamp != nil {
					lab.Must(t, client.IgnoreNotFound(pods.Delete(t.Context(), pod.Name, *metav1.NewDeleteOptions(0))))
				}
			}
			vmi := p.instance(t)
			return vmi != nil && vmi.GetUID() != last
		})
		srv.awaitClient(t, mac, "")
	}
}
