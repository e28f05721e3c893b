package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// Find sets empty fields from the cluster: the only HostedCluster, the only network of its NodePools, and the subnet
// and gateway of another Infra on that network. Fields for which it finds no value stay empty. It returns the addresses
// that other Infras, and VMs, on the network use. It returns an error if the cluster has several HostedClusters or
// networks to choose from, if the given HostedCluster does not exist, or if the cluster cannot be read. It calls warn
// for each kind that the user is forbidden to list.
func (d *Description) Find(ctx context.Context, c client.Client, warn func(string)) ([]v1alpha1.AddressRange, error) {
	r := &read.Reader{Client: c, Namespace: d.Infra.Namespace, Warn: warn}
	if d.HostedCluster == "" {
		var hosted []string
		if err := each(ctx, r, read.HostedClusterKind, "", func(u *unstructured.Unstructured) { hosted = append(hosted, u.GetNamespace()+"/"+u.GetName()) }); err != nil {
			return nil, err
		}
		if len(hosted) > 1 {
			return nil, fmt.Errorf("--hosted-cluster is required: found several HostedClusters: %s", strings.Join(hosted, ", "))
		}
		d.HostedCluster = strings.Join(hosted, "")
	} else if err := d.hostedClusterExists(ctx, r); err != nil {
		return nil, err
	}
	if d.Network == "" && d.HostedCluster != "" {
		networks, err := d.vmNetworks(ctx, r)
		if err != nil {
			return nil, err
		}
		if len(networks) > 1 {
			return nil, fmt.Errorf("--network is required: the NodePools of HostedCluster %s use several networks: %s", d.HostedCluster, strings.Join(networks, ", "))
		}
		d.Network = strings.Join(networks, "")
	}
	networks, err := r.Networks(ctx, d.parseRef(d.Network).Namespace, d.Infra.Namespace)
	if err != nil {
		return nil, err //nolint:wrapcheck // read wraps it
	}
	taken, err := d.infras(ctx, r, networks)
	if err != nil {
		return nil, err
	}
	err = each(ctx, r, read.MachineKind, "", func(u *unstructured.Unstructured) {
		for _, a := range read.MachineAddresses(u, networks, d.parseRef(d.Network).String()) {
			taken = append(taken, v1alpha1.AddressRange{First: a, Last: a})
		}
	})
	return taken, err
}

// hostedClusterExists returns an error if the HostedCluster does not exist: unlike a file, flags cannot describe
// names to serve before it does. It returns no error without the right to read the HostedCluster, or if HyperShift is
// not installed.
func (d *Description) hostedClusterExists(ctx context.Context, r *read.Reader) error {
	_, err := r.Object(ctx, read.HostedClusterKind, d.parseRef(d.HostedCluster))
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("--hosted-cluster: HostedCluster %s does not exist; create it first, or specify another one", d.parseRef(d.HostedCluster))
	case errors.Is(err, read.ErrNotServed) || apierrors.IsForbidden(err):
		return nil
	}
	return err
}

// each calls visit for each object of a kind in a namespace. It finds no objects of a kind that the API server does not
// serve or that must not be listed; for the latter it prints a warning.
func each(ctx context.Context, r *read.Reader, kind schema.GroupVersionKind, namespace string, visit func(*unstructured.Unstructured)) error {
	err := r.In(ctx, kind, namespace, visit)
	if apierrors.IsForbidden(err) {
		r.Warn(err.Error() + "; ignoring these objects")
		return nil
	}
	if errors.Is(err, read.ErrNotServed) {
		return nil
	}
	return err
}

// vmNetworks returns the additional networks of the hosted cluster's NodePools, sorted and without duplicates.
func (d *Description) vmNetworks(ctx context.Context, r *read.Reader) ([]string, error) {
	hosted := d.parseRef(d.HostedCluster)
	var networks []string
	err := each(ctx, r, read.NodePoolKind, hosted.Namespace, func(u *unstructured.Unstructured) {
		if cluster, _, _ := unstructured.NestedString(u.Object, "spec", "clusterName"); cluster != hosted.Name {
			return
		}
		list, _, _ := unstructured.NestedSlice(u.Object, "spec", "platform", "kubevirt", "additionalNetworks")
		for _, n := range list {
			if n, ok := n.(map[string]any); ok {
				if name, ok := n["name"].(string); ok {
					networks = append(networks, name)
				}
			}
		}
	})
	slices.Sort(networks)
	return slices.Compact(networks), err
}

// infras returns the addresses that other Infras on the network use, and sets the subnet and the gateway to theirs if
// no flag gives them.
func (d *Description) infras(ctx context.Context, r *read.Reader, networks cni.Networks) ([]v1alpha1.AddressRange, error) {
	all := &model.Objects{}
	err := each(ctx, r, read.InfraKind, "", func(u *unstructured.Unstructured) {
		if u.GetNamespace() != d.Infra.Namespace || u.GetName() != d.Infra.Name {
			all.Add(objects.Decode[v1alpha1.Infra](u))
		}
	})
	if err != nil {
		return nil, err
	}
	var taken []v1alpha1.AddressRange
	for _, i := range model.Build(all, model.Options{}).Infras {
		if !networks.Same(i.NetworkAttachment, d.parseRef(d.Network).String()) {
			continue
		}
		taken = append(taken, i.Taken()...)
		if d.CIDR == "" && len(i.CIDRs) > 0 {
			d.CIDR = i.CIDRs[0].String()
		}
		if gateway := i.Gateway(); d.Gateway == "" && gateway.IsValid() {
			d.Gateway = gateway.String()
		}
	}
	return taken, nil
}
