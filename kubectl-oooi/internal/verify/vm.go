package verify

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/testclient"
	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
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
		Remedy: "check that the image boots and uses DHCP, that KubeVirt runs VMs in the namespace of the Infra, and the events of the VirtualMachineInstance",
		run: func(ctx context.Context, runner *Runner, s *site, result *Result) error {
			return runner.bootVM(ctx, s, result)
		},
	}
}

// bootVM boots a VM with the MAC address of the DHCP client, until DHCP has leased it an address.
func (r *Runner) bootVM(ctx context.Context, s *site, result *Result) error {
	// The client on the VLAN uses the other services meanwhile. Its Job owns the VM, which is deleted with it if this process is
	// killed.
	watches := slices.DeleteFunc(s.watches(), func(w watch) bool { return w.component == v1alpha1.ComponentDHCP })
	if why := s.noDHCP(); why != "" || len(watches) == 0 {
		result.Status, result.Reason = doctor.Skipped, why
		if why == "" {
			result.Reason = "neither DNS nor the proxy has an address on the VLAN"
		}
		return nil
	}
	r.Progress("booting a VM")
	b := &boot{use: newUse(r, s, watches), vm: machine(s, r.VMImage)}
	b.use.deadline = bootDeadline
	err := b.use.run(ctx, b.follow)
	if removed := b.remove(ctx); err == nil {
		err = removed
	}
	request := Request{Client: VLAN, Label: "address of VM " + b.vm.GetName(), Took: metav1.Duration{Duration: time.Since(b.began).Round(100 * time.Millisecond)}}
	switch {
	case err != nil:
		return err
	case b.began.IsZero():
		return errEnded
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

// machine returns a VM in the namespace of the Infra with one interface, which is on the VLAN. It has no label of the hosted
// cluster: DHCP serves it because its MAC address is registered.
func machine(s *site, image string) *unstructured.Unstructured {
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
			"networks": []any{map[string]any{"name": "vlan", "multus": map[string]any{"networkName": s.Model.NetworkAttachment}}},
			"volumes":  []any{map[string]any{"name": "root", "containerDisk": map[string]any{"image": image}}},
		}},
	}}}
	u.SetGroupVersionKind(machineKind)
	u.SetNamespace(s.Infra.Namespace)
	u.SetName(s.hostname)
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
}

// follow creates the VM and returns true when DHCP has leased an address.
func (b *boot) follow(ctx context.Context, job *batchv1.Job) (done bool, err error) {
	r := b.use.runner
	if b.began.IsZero() {
		b.vm.SetOwnerReferences([]metav1.OwnerReference{doctor.JobReference(job)})
		if err := r.Prober.Client.Create(ctx, b.vm); err != nil {
			return false, fmt.Errorf("creating VirtualMachine %s: %w", b.vm.GetName(), err)
		}
		b.began = time.Now()
		return false, nil
	}
	list, bound, err := r.leasesOf(ctx, b.vm.GetNamespace(), b.use.site.hostname)
	if err != nil {
		return false, err
	}
	if !bound {
		now := b.vm.DeepCopy()
		if err := r.Prober.Client.Get(ctx, client.ObjectKeyFromObject(b.vm), now); err != nil {
			return false, fmt.Errorf("reading VirtualMachine %s: %w", b.vm.GetName(), err)
		}
		b.state, _, _ = unstructured.NestedString(now.Object, "status", "printableStatus")
		return false, nil
	}
	b.took = time.Since(b.began)
	b.lease, err = leases.Read(list[0], time.Now())
	if err != nil {
		return false, err //nolint:wrapcheck // names the Lease
	}
	return true, b.remove(ctx) // before DHCP may lease the address to others
}

// remove deletes the VM, even if ctx has ended.
func (b *boot) remove(ctx context.Context) error {
	if b.vm.GetUID() == "" {
		return nil
	}
	if err := b.use.runner.Prober.Remove(ctx, b.vm.DeepCopy()); err != nil {
		return err //nolint:wrapcheck // names the object
	}
	b.vm.SetUID("")
	return nil
}
