package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/testclient"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
)

// VMScenario is the name of the scenario that boots a VM. It requires Runner.VMImage.
const VMScenario = "dhcp-vm"

// bootTimeout is how long a VM may take until it has an address: KubeVirt may have to pull the image.
const bootTimeout = 5 * time.Minute

// machineKind is KubeVirt's kind of a VM that is started by its controller.
var machineKind = schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachine"}

func vmScenario() Scenario {
	return Scenario{
		Name: VMScenario, Group: GroupDHCP, Clients: []Client{VLAN},
		Title:  "a VM that boots gets an address of the ranges",
		Remedy: "check that the image boots and uses DHCP, that KubeVirt runs VMs in the VM's namespace, and the events of the VirtualMachineInstance",
		run:    func(ctx context.Context, t *test, result *Result) error { return t.bootVM(ctx, result) },
	}
}

// bootVM boots a VM with the MAC address of the DHCP client, until DHCP has leased it an address.
func (t *test) bootVM(ctx context.Context, result *Result) (err error) {
	if why := t.site.noDHCP(); why != "" {
		result.skip(why)
		return nil
	}
	t.Progress("booting a VM")
	namespace, network := t.site.machineNetwork()
	defer func() { err = errors.Join(err, t.cleanUp(ctx)) }() // at once, before DHCP may lease the address to others
	if err := t.register(ctx, bootTimeout+podLeftover); err != nil {
		return err
	}
	vm := machine(t.site, namespace, network, t.VMImage)
	if err := t.create(ctx, vm); err != nil {
		return err
	}
	began, state, failure := time.Now(), "", ""
	var lease *leases.Lease
	err = poll(ctx, func(ctx context.Context) (done bool, err error) {
		if _, lease, err = t.leasesOfClient(ctx); lease != nil || err != nil {
			return true, err
		}
		if err := t.Client.Get(ctx, client.ObjectKeyFromObject(vm), vm); err != nil {
			return false, fmt.Errorf("reading VirtualMachine %s: %w", vm.GetName(), err)
		}
		state, _, _ = unstructured.NestedString(vm.Object, "status", "printableStatus")
		failure = startFailure(vm)
		return failure != "" || time.Since(began) > bootTimeout, nil
	})
	took := time.Since(began).Round(100 * time.Millisecond)
	label := "address of VM " + vm.GetName()
	switch {
	case err != nil:
		return err
	case failure != "":
		result.fail(label, fmt.Sprintf("VirtualMachine %s/%s does not start: %s", namespace, vm.GetName(), failure))
	case lease == nil:
		result.fail(label, fmt.Sprintf("none within %s; the VirtualMachine is %s", took, state))
	case !t.site.Infra.Spec.InfraComponents.DHCP.Leasable(lease.Address):
		result.fail(label, fmt.Sprintf("DHCP leases %s, which is not in the ranges of the Infra", lease.Address))
	default:
		result.Requests = append(result.Requests, Request{Client: VLAN, Label: label, Took: metav1.Duration{Duration: took}})
	}
	return nil
}

// machineNetwork returns the namespace of the VM, and its network. These are of the hosted cluster's VMs if their namespace has a
// NetworkAttachmentDefinition of the VLAN: KubeVirt's pods may run there, and Multus may reject them elsewhere.
func (s *subject) machineNetwork() (namespace, network string) {
	own := s.Infra.Spec.NetworkConfig.NetworkAttachment(s.Infra.Namespace).String()
	if s.Cluster != nil {
		local := s.Cluster.ControlPlaneNamespace + "/" + s.Network().Name
		if s.Networks.Same(local, own) {
			return s.Cluster.ControlPlaneNamespace, local
		}
	}
	return s.Infra.Namespace, own
}

// machine returns a VM with one interface, which is on the network. It has no label of the hosted cluster: DHCP serves it because
// its MAC address is registered.
func machine(s *subject, namespace, network, image string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"runStrategy": "Always",
		"template": map[string]any{"spec": map[string]any{
			"terminationGracePeriodSeconds": int64(0),
			"domain": map[string]any{
				"memory": map[string]any{"guest": "1Gi"},
				"devices": map[string]any{
					"disks":      []any{map[string]any{"name": "root", "disk": map[string]any{"bus": "virtio"}}},
					"interfaces": []any{map[string]any{"name": "vlan", "bridge": map[string]any{}, "macAddress": s.client}},
				},
			},
			"networks": []any{map[string]any{"name": "vlan", "multus": map[string]any{"networkName": network}}},
			"volumes":  []any{map[string]any{"name": "root", "containerDisk": map[string]any{"image": image}}},
		}},
	}}}
	u.SetGroupVersionKind(machineKind)
	u.SetNamespace(namespace)
	u.SetName(s.hostname)
	u.SetAnnotations(map[string]string{v1alpha1.AnnotationInfra: s.Key()})
	u.SetLabels(map[string]string{v1alpha1.LabelInfra: s.Infra.Name, v1alpha1.LabelComponent: testclient.Component, v1alpha1.LabelManagedBy: v1alpha1.ManagedBy})
	return u
}

// startFailure returns why KubeVirt cannot start a VirtualMachine, such as an image that cannot be pulled or a pod that Pod Security
// refuses; empty if its conditions, to which KubeVirt adds those of the VirtualMachineInstance, do not say so.
func startFailure(u *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		c, _ := c.(map[string]any)
		if c["type"] == "Failure" && c["status"] == "True" || c["type"] == "Synchronized" && c["status"] == "False" {
			return strings.TrimSpace(fmt.Sprintf("%v: %v", c["reason"], c["message"]))
		}
	}
	return ""
}
