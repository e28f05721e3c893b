package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// kinds that setup reads.
var (
	// clusterNetworks are VLANs that OVN-Kubernetes makes read.AttachmentKind of.
	clusterNetworks = schema.GroupVersionKind{Group: "k8s.ovn.org", Version: "v1", Kind: "ClusterUserDefinedNetwork"}
	constraints     = schema.GroupVersionKind{Group: "security.openshift.io", Version: "v1", Kind: "SecurityContextConstraints"}
)

// Discover adds what a cluster knows to what is known. What files say wins.
func (k *Known) Discover(ctx context.Context, c client.Client) error {
	d := &discovery{ctx: ctx, client: c, known: k}
	for _, step := range []func() error{d.infra, d.management, d.hosted, d.others, d.proxyServer, d.loneProxies, d.holders, d.attachment, d.podSecurity, d.controlPlane, d.backends, d.predecessor, d.cycle} {
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

// infra is the one that a ProxyServer names, where no file has it.
func (d *discovery) infra() error {
	if d.known.Infra != nil {
		return nil
	}
	server := d.known.ProxyServer
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(read.InfraKind)
	err := d.client.Get(d.ctx, client.ObjectKey{Namespace: server.Namespace, Name: server.Spec.InfraRef.Name}, u)
	if err != nil {
		return fmt.Errorf("ProxyServer %s/%s, spec.infraRef: Infra %s is in none of the files, and reading it failed: %w", server.Namespace, server.Name, server.Spec.InfraRef.Name, err)
	}
	infra, ok := objects.Decode[v1alpha1.Infra](u).(*v1alpha1.Infra)
	if !ok {
		return fmt.Errorf("the Infra %s/%s cannot be decoded", u.GetNamespace(), u.GetName())
	}
	infra.Default()
	d.known.Infra, d.known.Written, d.known.Kept = infra, written(u), append(d.known.Kept, u.GetKind())
	return nil
}

// hosted finds hosted clusters: all, or where these may not be listed the one that is named.
func (d *discovery) hosted() error {
	if len(d.known.Objects.HostedClusters) > 0 {
		return nil
	}
	list, err := d.list(read.HostedClusterKind, "")
	if named := d.known.named(); apierrors.IsForbidden(err) && named.Name != "" {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(read.HostedClusterKind)
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

// others are the Infras that may be on the same VLAN.
func (d *discovery) others() error {
	infras, err := d.list(read.InfraKind, "")
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	for _, u := range infras {
		other, ok := objects.Decode[v1alpha1.Infra](u).(*v1alpha1.Infra)
		switch {
		case !ok:
		case keyOf(other) != keyOf(d.known.Infra):
			d.known.Objects.Infras = append(d.known.Objects.Infras, other)
		case d.known.alone():
			return fmt.Errorf("Infra %s exists and its proxy has the name of this ProxyServer; rename the ProxyServer, or set its spec.infraRef to that Infra", keyOf(other)) //nolint:staticcheck // a kind begins with a capital
		}
	}
	return nil
}

// proxyServer is the Infra's, where no file has it.
func (d *discovery) proxyServer() error {
	if d.known.ProxyServer != nil {
		return nil
	}
	servers, err := d.list(read.ProxyServerKind, d.known.Infra.Namespace)
	if err != nil {
		return err
	}
	for _, u := range servers {
		server, ok := objects.Decode[v1alpha1.ProxyServer](u).(*v1alpha1.ProxyServer)
		if !ok {
			continue
		}
		server.Default()
		named := server.Spec.InfraRef != nil && server.Spec.InfraRef.Name == d.known.Infra.Name
		switch {
		case server.Name == d.known.Infra.Name && !named:
			return fmt.Errorf("ProxyServer %s/%s has the name of the Infra and does not belong to it; rename the Infra, or set spec.infraRef of the ProxyServer to it", server.Namespace, server.Name)
		case named && (server.Name != d.known.Infra.Name || d.known.saysMore(server)):
			d.known.ProxyServer, d.known.WrittenProxyServer = server, written(u)
		}
	}
	return d.known.sameAddress()
}

// attachment is the virtual machines' network.
func (d *discovery) attachment() error {
	key := d.known.Infra.Spec.NetworkConfig.NetworkAttachment(d.known.Infra.Namespace)
	if _, ok := d.known.Attachments[key.String()]; ok {
		return nil
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(read.AttachmentKind)
	switch err := d.client.Get(d.ctx, key, u); {
	case meta.IsNoMatchError(err):
		return fmt.Errorf("the cluster does not serve NetworkAttachmentDefinitions; install Multus")
	case apierrors.IsNotFound(err):
		return d.elsewhere(key.Name) // the plan says so
	case err != nil:
		return fmt.Errorf("reading NetworkAttachmentDefinition %s: %w", key, err)
	}
	config, _, err := unstructured.NestedString(u.Object, "spec", "config")
	if err != nil {
		return fmt.Errorf("NetworkAttachmentDefinition %s: %w", key, err)
	}
	d.known.Attachments[key.String()] = config
	d.known.ownNetwork = u.GetLabels()[v1alpha1.LabelComponent] == render.NetworkComponent && u.GetAnnotations()[v1alpha1.AnnotationInfra] == keyOf(d.known.Infra)
	return nil
}

// elsewhere looks for a network of the same name: in other namespaces, and as one that
// OVN-Kubernetes makes in the namespaces that it selects. Who may not look gets no hint.
func (d *discovery) elsewhere(name string) error {
	networks, err := d.list(read.AttachmentKind, "")
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	for _, u := range networks {
		if u.GetName() == name {
			d.known.Elsewhere += fmt.Sprintf("; there is a %s/%s", u.GetNamespace(), name)
		}
	}
	selecting, err := d.list(clusterNetworks, "")
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	for _, u := range selecting {
		if u.GetName() == name {
			d.known.Elsewhere += fmt.Sprintf("; ClusterUserDefinedNetwork %s creates it in the namespaces selected by its spec.namespaceSelector", name)
		}
	}
	return nil
}

// podSecurity reads what the Infra's namespace enforces, where it may be read.
func (d *discovery) podSecurity() error {
	namespace := &corev1.Namespace{}
	err := d.client.Get(d.ctx, client.ObjectKey{Name: d.known.Infra.Namespace}, namespace)
	if client.IgnoreNotFound(err) != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("reading namespace %s: %w", d.known.Infra.Namespace, err)
	}
	d.known.PodSecurity = namespace.Labels["pod-security.kubernetes.io/enforce"]
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
	return errors.Join(
		d.takeAll(read.RouteKind, namespace, objects.Decode[objects.Route]),
		d.takeAll(read.ServiceKind, namespace, objects.Decode[objects.LabelledService]),
	)
}

// backends reads the Services that the ProxyServer connects to beside the control plane's.
func (d *discovery) backends() error {
	if d.known.ProxyServer == nil {
		return nil
	}
	seen := []string{"", d.known.controlPlane(d.known.snapshot())}
	for _, b := range d.known.ProxyServer.Spec.Backends {
		if slices.Contains(seen, b.TargetNamespace) {
			continue
		}
		seen = append(seen, b.TargetNamespace)
		if err := d.takeAll(read.ServiceKind, b.TargetNamespace, objects.Decode[objects.LabelledService]); err != nil {
			return err
		}
	}
	return nil
}

// takeAll takes all objects of a kind in a namespace.
func (d *discovery) takeAll(kind schema.GroupVersionKind, namespace string, decode func(*unstructured.Unstructured) objects.Object) error {
	list, err := d.list(kind, namespace)
	for _, u := range list {
		err = errors.Join(err, d.known.take(decode(u)))
	}
	return err
}

// predecessor looks for what the operator that came before has made: workloads, which hold the
// addresses, and Services of our names, which go when its CRDs do.
func (d *discovery) predecessor() error {
	infra := d.known.Infra
	var theirs []string
	for _, component := range []string{v1alpha1.ComponentDHCP, v1alpha1.ComponentDNS, v1alpha1.ComponentProxy} {
		name := infra.Name + "-" + component
		for kind, names := range map[schema.GroupVersionKind][]string{
			appsv1.SchemeGroupVersion.WithKind("Deployment"): {name, name + "-" + component}, // of newer and of older releases
			read.ServiceKind: {name},
		} {
			for _, name := range names {
				u := &unstructured.Unstructured{}
				u.SetGroupVersionKind(kind)
				err := d.client.Get(d.ctx, client.ObjectKey{Namespace: infra.Namespace, Name: name}, u)
				switch {
				case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
				case err != nil:
					return fmt.Errorf("looking for objects of the earlier operator: %w", err)
				case kind == read.ServiceKind && !OwnedByOperator(u) || u.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy:
				default:
					theirs = append(theirs, fmt.Sprintf("%s %s/%s", kind.Kind, infra.Namespace, name))
				}
			}
		}
	}
	if len(theirs) == 0 {
		return nil
	}
	slices.Sort(theirs)
	return fmt.Errorf("objects of the earlier operator may use addresses of this VLAN: %s; stop that operator, and delete its DHCPServer, DNSServer and ProxyServer with their dependents (docs/how-to/migrate.md)", strings.Join(theirs, ", "))
}

// OwnedByOperator reports whether an object belongs to one of the old operator's kinds, and is not ours: a ProxyServer
// without an Infra owns its workloads.
func OwnedByOperator(u *unstructured.Unstructured) bool {
	return u.GetLabels()[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy && slices.ContainsFunc(u.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
		return strings.HasPrefix(o.APIVersion, v1alpha1.GroupName+"/") && slices.Contains([]string{"DHCPServer", "DNSServer", "ProxyServer"}, o.Kind)
	})
}
