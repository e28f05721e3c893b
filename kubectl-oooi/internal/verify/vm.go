package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
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
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// VMScenario is the name of the scenario that boots a VM. It requires Runner.VMImage.
const VMScenario = "dhcp-vm"

// bootDeadline is how long the pod of the client may run while the VM boots: KubeVirt may have to pull the image.
const bootDeadline = 5 * time.Minute

// machineKind is KubeVirt's kind of a VM that is started by its controller.
var machineKind = schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachine"}

func vmScenario() Scenario {
	return Scenario{
		Name: VMScenario, Group: GroupDHCP, Clients: []Client{VLAN},
		Title:  "a VM that boots gets an address of the ranges",
		Remedy: "check that the image boots and uses DHCP, that KubeVirt runs VMs in the VM's namespace, and the events of the VirtualMachineInstance",
		run: func(ctx context.Context, runner *Runner, s *subject, result *Result) error {
			return runner.bootVM(ctx, s, result)
		},
	}
}

// bootVM boots a VM with the MAC address of the DHCP client, until DHCP has leased it an address.
func (r *Runner) bootVM(ctx context.Context, s *subject, result *Result) error {
	// The client on the VLAN uses the other services meanwhile.
	watches := slices.DeleteFunc(s.watches(), func(w watch) bool { return w.component == v1alpha1.ComponentDHCP })
	if why := s.noDHCP(); why != "" || len(watches) == 0 {
		result.Status, result.Reason = output.Skipped, why
		if why == "" {
			result.Reason = "neither DNS nor the proxy has an address on the VLAN"
		}
		return nil
	}
	r.Progress("booting a VM")
	namespace, network, err := r.machineNetwork(ctx, s)
	if err != nil {
		return err
	}
	b := &boot{use: newUse(r, s, watches), vm: machine(s, namespace, network, r.VMImage)}
	b.use.deadline = bootDeadline
	err = b.use.run(ctx, b.follow)
	if removed := b.remove(ctx); err == nil {
		err = removed
	}
	request := Request{Client: VLAN, Label: "address of VM " + b.vm.GetName(), Took: metav1.Duration{Duration: time.Since(b.began).Round(100 * time.Millisecond)}}
	switch {
	case err != nil:
		return err
	case b.began.IsZero():
		return errEnded
	case b.failure != "":
		result.fail(request.Label, fmt.Sprintf("VirtualMachine %s/%s does not start: %s", namespace, b.vm.GetName(), b.failure))
		return nil
	case b.lease == nil:
		result.fail(request.Label, fmt.Sprintf("none within %s; the VirtualMachine is %s", request.Took.Duration, b.state))
		return nil
	case !s.inRanges(b.lease.Address):
		result.fail(request.Label, fmt.Sprintf("DHCP leases %s, which is not in the ranges of the Infra", b.lease.Address))
		return nil
	}
	request.Took.Duration = b.took.Round(100 * time.Millisecond)
	result.Requests = append(result.Requests, request)
	return nil
}

// machineNetwork returns the namespace of the VM, and its network. These are of the hosted cluster's VMs if their namespace has a
// NetworkAttachmentDefinition of the VLAN: KubeVirt's pods may run there, and Multus may reject them elsewhere.
func (r *Runner) machineNetwork(ctx context.Context, s *subject) (namespace, network string, err error) {
	config := func(key types.NamespacedName) (string, error) {
		u, err := (&read.Reader{Client: r.Prober.Client}).Object(ctx, read.AttachmentKind, key)
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		text, _, _ := unstructured.NestedString(u.Object, "spec", "config")
		return text, nil
	}
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

// A boot is the time from the creation of a VM until DHCP has leased it an address.
type boot struct {
	use *use
	vm  *unstructured.Unstructured

	began time.Time // zero until the VM is created
	took  time.Duration
	lease *leases.Lease // nil until it is leased
	state string
	// failure is why KubeVirt cannot start the VM; empty if it has not reported that.
	failure string
}

// follow creates the VM and returns true when DHCP has leased an address.
func (b *boot) follow(ctx context.Context, job *batchv1.Job) (done bool, err error) {
	r := b.use.runner
	if b.began.IsZero() {
		if b.vm.GetNamespace() == job.Namespace { // it is deleted with the Job if this process is killed
			b.vm.SetOwnerReferences([]metav1.OwnerReference{jobReference(job)})
		}
		if err := r.Prober.Client.Create(ctx, b.vm); err != nil {
			return false, fmt.Errorf("creating VirtualMachine %s: %w", b.vm.GetName(), err)
		}
		b.began = time.Now()
		return false, nil
	}
	list, bound, err := r.leasesOf(ctx, job.Namespace, b.use.site.hostname)
	if err != nil {
		return false, err
	}
	if !bound {
		err := b.observe(ctx)
		return b.failure != "", err
	}
	b.took = time.Since(b.began)
	b.lease, err = leases.Read(list[0], time.Now())
	if err != nil {
		return false, err
	}
	return true, b.remove(ctx) // before DHCP may lease the address to others
}

// observe reads the state of the VM, and why KubeVirt cannot start it.
func (b *boot) observe(ctx context.Context) error {
	for _, kind := range []schema.GroupVersionKind{machineKind, read.MachineKind} {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kind)
		err := b.use.runner.Prober.Client.Get(ctx, client.ObjectKeyFromObject(b.vm), u)
		if apierrors.IsNotFound(err) && kind == read.MachineKind {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %s %s: %w", kind.Kind, b.vm.GetName(), err)
		}
		if kind == machineKind {
			b.state, _, _ = unstructured.NestedString(u.Object, "status", "printableStatus")
		}
		b.failure = cmp.Or(b.failure, startFailure(u))
	}
	return nil
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

// remove deletes the VM, even if ctx has ended.
func (b *boot) remove(ctx context.Context) error {
	if b.vm.GetUID() == "" {
		return nil
	}
	if err := b.use.runner.Prober.remove(ctx, b.vm.DeepCopy()); err != nil {
		return err
	}
	b.vm.SetUID("")
	return nil
}
