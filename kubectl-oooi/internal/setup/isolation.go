package setup

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// isolatedVMs are the hosted cluster's VMs on a cluster whose Multus isolates namespaces. The zero value means that it does not,
// or that this or the hosted cluster is unknown.
type isolatedVMs struct {
	isolation model.Isolation
	// refs are the references of NodePools and VMs to the Infra's network. Without any, wanted is the one that NodePools need.
	refs   []model.AttachmentRef
	wanted model.AttachmentRef
}

// isolatedVMs reads the references of the hosted cluster's NodePools and VMs to the Infra's network, if Multus isolates
// namespaces. It finds none without the right to list them.
func (d *discovery) isolatedVMs() error {
	k := d.known
	if k.standalone() {
		return nil
	}
	isolation, err := d.Isolation(d.ctx, k.OpenShift)
	if err != nil || !isolation.Enabled {
		return err //nolint:wrapcheck // read wraps it
	}
	snapshot := k.snapshot()
	hosted := k.hostedCluster(snapshot)
	namespace := cmp.Or(k.infraNamespace(hosted), k.controlPlane(snapshot)) // of the VMs
	if namespace == "" {
		return nil
	}
	vms := isolatedVMs{isolation: isolation}
	var refs []model.AttachmentRef
	pools, err := d.list(read.NodePoolKind, hosted.Namespace)
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	for _, u := range pools {
		if cluster, _, _ := unstructured.NestedString(u.Object, "spec", "clusterName"); cluster == hosted.Name {
			refs = append(refs, read.AttachmentRefs(u, namespace)...)
		}
	}
	machines, err := d.machines(namespace)
	if err != nil {
		return err
	}
	for _, u := range machines {
		refs = append(refs, read.AttachmentRefs(u, namespace)...)
	}
	if vms.refs, err = k.onNetwork(refs...); err != nil {
		return err
	}
	own := k.network()
	vms.wanted = model.NewAttachmentRef(model.Ref{}, namespace, own.String())
	if len(isolation.Rejected([]model.AttachmentRef{vms.wanted})) > 0 {
		switch local, err := k.onNetwork(model.NewAttachmentRef(model.Ref{}, namespace, own.Name)); {
		case err != nil:
			return err
		case len(local) > 0:
			vms.wanted = local[0]
		}
	}
	k.vms = vms
	return nil
}

// onNetwork returns the references to the Infra's network.
func (k *Known) onNetwork(refs ...model.AttachmentRef) ([]model.AttachmentRef, error) {
	own, networks := k.network().String(), k.networks()
	if k.MakeNetwork != nil {
		config, err := k.MakeNetwork.Config(k.network())
		if err != nil {
			return nil, err //nolint:wrapcheck // render wraps it
		}
		networks[own] = cni.Identity(config)
	}
	return slices.DeleteFunc(refs, func(r model.AttachmentRef) bool { return r.Attachment != own && !networks.Same(r.Attachment, own) }), nil
}

// rejectedVMs returns an error if Multus rejects the pods of all NodePools and VMs on the Infra's network, and warnings if it
// rejects those of some, or would reject those of the first NodePool.
func (k *Known) rejectedVMs() (warnings []string, err error) {
	if rejected := k.vms.isolation.Rejected(k.vms.refs); len(rejected) > 0 {
		text := fmt.Sprintf("%s: %s; %s", rejected[0].Object, rejected[0].Rejection(), rejected[0].Remedy())
		if len(rejected) == len(k.vms.refs) {
			return nil, errors.New(text)
		}
		return []string{text}, nil
	}
	if len(k.vms.refs) == 0 && len(k.vms.isolation.Rejected([]model.AttachmentRef{k.vms.wanted})) > 0 {
		return []string{fmt.Sprintf("VMs cannot use the network: %s; %s", k.vms.wanted.Rejection(), k.vms.wanted.Remedy())}, nil
	}
	return nil, nil
}
