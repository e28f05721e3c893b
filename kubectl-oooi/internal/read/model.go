package read

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
)

// Model reads the Infras, HostedClusters, ProxyServers, Routes and Services from which names and routes are computed.
// It reads nothing from hosted clusters: the apps address is in the status of the Infras. If listing a kind in all
// namespaces is forbidden, it calls Warn and reads only the namespaces that may have objects of the model. The error
// wraps ErrNotServed if one of oooi's CRDs is not installed; HostedClusters and Routes are optional.
func (r *Reader) Model(ctx context.Context) (*model.Objects, error) {
	all := &model.Objects{}
	if err := r.addAll(ctx, all, InfraKind, objects.Decode[v1alpha1.Infra], []string{r.Namespace}); err != nil {
		return nil, suggestSetup(err)
	}
	if err := r.HostedClusters(ctx, all); err != nil {
		return nil, err
	}
	if err := r.addAll(ctx, all, ProxyServerKind, objects.Decode[v1alpha1.ProxyServer], infraNamespaces(all, r.Namespace)); err != nil {
		return nil, err
	}
	networks, err := r.Networks(ctx, infraNamespaces(all, r.Namespace)...)
	if err != nil {
		return nil, err
	}
	all.NetworkAttachments = Attachments(networks)
	namespaces := backendNamespaces(all, r.Namespace)
	if err := r.addAll(ctx, all, RouteKind, objects.Decode[objects.Route], namespaces); err != nil && !errors.Is(err, ErrNotServed) {
		return nil, err // ErrNotServed: the cluster is not OpenShift and has no Routes
	}
	if err := r.addAll(ctx, all, ServiceKind, objects.Decode[objects.LabelledService], namespaces); err != nil {
		return nil, err
	}
	return all, nil
}

// HostedClusters adds the HostedClusters of all namespaces to all. If listing them is forbidden, it calls Warn and adds
// only those in the namespaces that all.Infras refer to. If HyperShift is not installed, it calls Warn and adds none.
func (r *Reader) HostedClusters(ctx context.Context, all *model.Objects) error {
	err := r.addAll(ctx, all, HostedClusterKind, objects.Decode[objects.HostedCluster], hostedNamespaces(all))
	if errors.Is(err, ErrNotServed) {
		r.Warn("the cluster does not serve HostedClusters: HyperShift is not installed")
		return nil
	}
	return err
}

// addAll adds all objects of a kind; see inAllNamespaces.
func (r *Reader) addAll(ctx context.Context, all *model.Objects, kind schema.GroupVersionKind, decode func(*unstructured.Unstructured) objects.Object, namespaces []string) error {
	return r.inAllNamespaces(ctx, kind, namespaces, func(u *unstructured.Unstructured) { all.Add(decode(u)) })
}

// hostedNamespaces returns the namespaces of the HostedClusters that Infras may name.
func hostedNamespaces(all *model.Objects) []string {
	var list []string
	for _, i := range all.Infras {
		for _, candidate := range i.Spec.NamedHostedCluster().Candidates(i.Namespace) {
			list = append(list, candidate.Namespace)
		}
	}
	return list
}

// infraNamespaces returns the namespaces of Infras, and the namespace more.
func infraNamespaces(all *model.Objects, more string) []string {
	list := []string{more}
	for _, i := range all.Infras {
		list = append(list, i.Namespace)
	}
	return list
}

// backendNamespaces returns the namespaces of Infras, ProxyServers, control planes, VMs and backends, and the namespace
// more.
func backendNamespaces(all *model.Objects, more string) []string {
	list := infraNamespaces(all, more)
	for _, hc := range all.HostedClusters {
		list = append(list, model.ControlPlaneNamespace(hc.Namespace, hc.Name))
		if vms := hc.Spec.Platform.VMNamespace(); vms != "" {
			list = append(list, vms)
		}
	}
	for _, p := range all.ProxyServers {
		list = append(list, p.Namespace)
		for i := range p.Spec.Backends {
			list = append(list, p.Spec.Backends[i].TargetNamespace)
		}
	}
	return list
}
