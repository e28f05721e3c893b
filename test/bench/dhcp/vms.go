package dhcp

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/densityops/oooi/test/bench/measure"
	"github.com/densityops/oooi/test/lab"
)

// crds are the CRDs of VirtualMachineInstances and VirtualMachines. The benchmark creates only the former.
var crds = []lab.CRDSet{lab.KubeVirt, lab.KubeVirtMachines}

// namespace is the namespace of the VMs, attachment their network.
const (
	namespace  = "clusters-bench"
	attachment = "clusters/vlan"
)

const namespaceManifest = "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + namespace + "}\n"

var instances = schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachineinstances"}

// fill creates a VirtualMachineInstance for each of the first n clients, and one that has an address already.
func fill(ctx context.Context, management *lab.ControlPlane, n int) error {
	if err := management.InstallCRDs(ctx, crds...); err != nil {
		return err
	}
	if err := management.ApplyYAML(ctx, []byte(namespaceManifest)); err != nil {
		return err
	}
	dynamicClient, err := dynamic.NewForConfig(management.RESTConfig())
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	to := dynamicClient.Resource(instances).Namespace(namespace)
	existing, err := client(n).instance(lastAddress)
	if err == nil {
		_, err = to.Create(ctx, existing, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("creating a VM with an address: %w", err)
	}
	return measure.Fill(ctx, 0, n, func(ctx context.Context, number int) error {
		object, err := client(number).instance("")
		if err == nil {
			_, err = to.Create(ctx, object, metav1.CreateOptions{})
		}
		return err
	})
}

// instance returns the client's VirtualMachineInstance, without a VirtualMachine. Its status has the address unless that is
// empty.
func (c client) instance(address string) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	err := json.Unmarshal(fmt.Appendf(nil, `{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance","metadata":{"name":"worker-%d"},
		"spec":{"networks":[{"name":"vlan","multus":{"networkName":%q}}],
		"domain":{"devices":{"interfaces":[{"name":"vlan","bridge":{},"macAddress":%q}]}}},
		"status":{"interfaces":[{"name":"vlan","ipAddress":%q}]}}`, int(c), attachment, c.mac().String(), address), &object.Object)
	if err != nil {
		return nil, fmt.Errorf("decoding a VirtualMachineInstance: %w", err)
	}
	return object, nil
}
