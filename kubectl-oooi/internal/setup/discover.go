package setup

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// kinds that setup reads.
var (
	hostedClusters = schema.GroupVersionKind{Group: "hypershift.openshift.io", Version: "v1beta1", Kind: "HostedCluster"}
	routes         = schema.GroupVersionKind{Group: "route.openshift.io", Version: "v1", Kind: "Route"}
	services       = corev1.SchemeGroupVersion.WithKind("Service")
	attachments    = schema.GroupVersionKind{Group: "k8s.cni.cncf.io", Version: "v1", Kind: "NetworkAttachmentDefinition"}
	constraints    = schema.GroupVersionKind{Group: "security.openshift.io", Version: "v1", Kind: "SecurityContextConstraints"}
)

// Discover adds what a cluster knows to what is known. What files say wins.
func (k *Known) Discover(ctx context.Context, c client.Client) error {
	d := &discovery{ctx: ctx, client: c, known: k}
	for _, step := range []func() error{d.hosted, d.others, d.attachment, d.controlPlane, d.predecessor, d.cycle} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

type discovery struct {
	ctx    context.Context //nolint:containedctx // one discovery is one call
	client client.Client
	known  *Known
}

// list returns the objects of a kind, none where the cluster does not serve it.
func (d *discovery) list(kind schema.GroupVersionKind, namespace string) ([]*unstructured.Unstructured, error) {
	var list []*unstructured.Unstructured
	r := &read.Reader{Client: d.client}
	err := r.In(d.ctx, kind, namespace, func(u *unstructured.Unstructured) { list = append(list, u) })
	if errors.Is(err, read.ErrNotServed) {
		return nil, nil
	}
	return list, err
}

// hosted finds hosted clusters: all, or where these may not be listed the one that is named.
func (d *discovery) hosted() error {
	if len(d.known.Objects.HostedClusters) > 0 {
		return nil
	}
	list, err := d.list(hostedClusters, "")
	if named := d.known.named(); apierrors.IsForbidden(err) && named.Name != "" {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(hostedClusters)
		switch err = d.client.Get(d.ctx, named, u); {
		case err == nil:
			list = append(list, u)
		case apierrors.IsNotFound(err):
			err = nil
		default:
			err = fmt.Errorf("reading HostedCluster %s: %w", named, err)
		}
	}
	if err != nil {
		return err
	}
	for _, u := range list {
		if err := d.known.take(objects.Decode[objects.HostedCluster](u)); err != nil {
			return err
		}
	}
	return nil
}

// others are the Infras that may be on the same VLAN, and the ProxyServer of this one.
func (d *discovery) others() error {
	infras, err := d.list(v1alpha1.SchemeGroupVersion.WithKind("Infra"), "")
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	for _, u := range infras {
		if other, ok := objects.Decode[v1alpha1.Infra](u).(*v1alpha1.Infra); ok && (other.Namespace != d.known.Infra.Namespace || other.Name != d.known.Infra.Name) {
			d.known.Objects.Infras = append(d.known.Objects.Infras, other)
		}
	}
	if d.known.ProxyServer != nil {
		return nil
	}
	servers, err := d.list(v1alpha1.SchemeGroupVersion.WithKind("ProxyServer"), d.known.Infra.Namespace)
	if err != nil {
		return err
	}
	for _, u := range servers {
		server, ok := objects.Decode[v1alpha1.ProxyServer](u).(*v1alpha1.ProxyServer)
		if ok && server.Name != d.known.Infra.Name && server.Spec.InfraRef != nil && server.Spec.InfraRef.Name == d.known.Infra.Name {
			server.Default()
			d.known.ProxyServer, d.known.WrittenProxyServer = server, written(u)
		}
	}
	return nil
}

// attachment is the virtual machines' network.
func (d *discovery) attachment() error {
	key := d.known.Infra.Spec.NetworkConfig.NetworkAttachment(d.known.Infra.Namespace)
	if _, ok := d.known.Attachments[key.String()]; ok {
		return nil
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(attachments)
	switch err := d.client.Get(d.ctx, key, u); {
	case meta.IsNoMatchError(err):
		return fmt.Errorf("the cluster has no NetworkAttachmentDefinitions: install Multus, which puts pods on a VLAN")
	case apierrors.IsNotFound(err):
		return nil // the plan says so
	case err != nil:
		return fmt.Errorf("reading NetworkAttachmentDefinition %s: %w", key, err)
	}
	config, _, err := unstructured.NestedString(u.Object, "spec", "config")
	if err != nil {
		return fmt.Errorf("NetworkAttachmentDefinition %s: %w", key, err)
	}
	d.known.Attachments[key.String()] = config
	return nil
}

// controlPlane reads what is in the control plane's namespace, and what kind of cluster it is in.
func (d *discovery) controlPlane() error {
	if !d.known.OpenShift {
		_, err := d.client.RESTMapper().RESTMapping(constraints.GroupKind(), constraints.Version)
		d.known.OpenShift = err == nil
	}
	namespace := d.known.controlPlane(d.known.snapshot())
	if namespace == "" {
		return nil
	}
	err := d.client.Get(d.ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("reading namespace %s: %w", namespace, err)
	}
	d.known.ControlPlane = true
	for _, kind := range []schema.GroupVersionKind{routes, services} {
		list, err := d.list(kind, namespace)
		if err != nil {
			return err
		}
		for _, u := range list {
			o := objects.Decode[objects.Service](u)
			if kind == routes {
				o = objects.Decode[objects.Route](u)
			}
			if err := d.known.take(o); err != nil {
				return err
			}
		}
	}
	return nil
}

// predecessor looks for workloads of the operator that came before, which hold the addresses.
func (d *discovery) predecessor() error {
	infra := d.known.Infra
	for _, component := range []string{v1alpha1.ComponentDHCP, v1alpha1.ComponentDNS, v1alpha1.ComponentProxy} {
		deployment := &appsv1.Deployment{}
		err := d.client.Get(d.ctx, client.ObjectKey{Namespace: infra.Namespace, Name: infra.Name + "-" + component}, deployment)
		if err == nil && deployment.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy {
			return fmt.Errorf("there is a Deployment %s/%s which is not ours and may hold an address of this VLAN: it is what the old operator makes; stop that operator, and delete it (docs/migration.md)", deployment.Namespace, deployment.Name)
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return fmt.Errorf("looking for Deployments of the old operator: %w", err)
		}
	}
	return nil
}
