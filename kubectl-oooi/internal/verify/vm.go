package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/testclient"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
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
	namespace, network, err := t.machineNetwork(ctx)
	if err != nil {
		return err
	}
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
		state, failure, err = t.observe(ctx, vm)
		return failure != "" || time.Since(began) > bootTimeout, err
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
func (t *test) machineNetwork(ctx context.Context) (namespace, network string, err error) {
	config := func(key types.NamespacedName) (string, error) {
		u, err := (&read.Reader{Client: t.Client}).Object(ctx, read.AttachmentKind, key)
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		text, _, _ := unstructured.NestedString(u.Object, "spec", "config")
		return text, nil
	}
	s := t.site
	own := s.Infra.Spec.NetworkConfig.NetworkAttachment(s.Infra.Namespace)
	if s.Cluster != nil && s.Cluster.ControlPlaneNamespace != "" {
		local := types.NamespacedName{Namespace: s.Cluster.ControlPlaneNamespace, Name: own.Name}
		ofVMs, err1 := config(local)
		ofInfra, err2 := config(own)
		if err := errors.Join(err1, err2); err != nil {
			return "", "", err
		}
		if link := cni.Identity(ofVMs); link != "" && link == cni.Identity(ofInfra) {
			return local.Namespace, local.String(), nil
		}
	}
	return s.Infra.Namespace, own.String(), nil
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

// observe returns the state of a VM, and why KubeVirt cannot start it; empty if it has not reported that.
func (t *test) observe(ctx context.Context, vm *unstructured.Unstructured) (state, failure string, err error) {
	for _, kind := range []schema.GroupVersionKind{machineKind, read.MachineKind} {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kind)
		err := t.Client.Get(ctx, client.ObjectKeyFromObject(vm), u)
		if apierrors.IsNotFound(err) && kind == read.MachineKind {
			break
		}
		if err != nil {
			return "", "", fmt.Errorf("reading %s %s: %w", kind.Kind, vm.GetName(), err)
		}
		if kind == machineKind {
			state, _, _ = unstructured.NestedString(u.Object, "status", "printableStatus")
		}
		failure = cmp.Or(failure, startFailure(u))
	}
	return state, failure, nil
}

// startFailure returns why KubeVirt cannot start a VirtualMachine or VirtualMachineInstance, such as an image that cannot be pulled
// or a pod that Pod Security refuses; empty if its conditions do not say so.
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
