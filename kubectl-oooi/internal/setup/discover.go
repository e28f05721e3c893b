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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/documents"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// clusterNetworks are networks for which OVN-Kubernetes creates a NetworkAttachmentDefinition in each selected
// namespace.
var clusterNetworks = schema.GroupVersionKind{Group: "k8s.ovn.org", Version: "v1", Kind: "ClusterUserDefinedNetwork"}

// Discover adds objects and properties of the cluster to those that were read from files. Objects in files take
// precedence. It returns an error if the cluster cannot be read, or has objects with which setup cannot deploy the
// Infra, such as workloads of the earlier operator.
func (k *Known) Discover(ctx context.Context, c client.Client) error {
	d := &discovery{ctx: ctx, Reader: &read.Reader{Client: c}, known: k}
	for _, step := range []func() error{d.infra, d.management, d.hostedClusters, d.otherInfras, d.proxyServer, d.proxyServers, d.networks, d.subnet, d.holders, k.pinHostedCluster, d.leases, d.attachment, d.attachedVMs, d.podSecurity, d.namespaceExists, d.controlPlane, d.isolatedVMs, d.backends, d.internalService, d.earlierOperator, d.resolverLoop} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

type discovery struct {
	ctx context.Context //nolint:containedctx // a discovery is used for one call only
	*read.Reader

	known *Known
	// noNamespace is set if the Infra's namespace does not exist.
	noNamespace bool
	machinesIn  map[string][]*unstructured.Unstructured // by namespace
}

// list returns the objects of a kind in a namespace, or in all namespaces if it is empty. It returns none if the
// cluster does not serve the kind.
func (d *discovery) list(kind schema.GroupVersionKind, namespace string) ([]*unstructured.Unstructured, error) {
	var list []*unstructured.Unstructured
	err := d.In(d.ctx, kind, namespace, func(u *unstructured.Unstructured) { list = append(list, u) })
	if errors.Is(err, read.ErrNotServed) {
		return nil, nil
	}
	return list, err
}

// machines returns the VMs in a namespace, which it lists once. It returns none if listing them is forbidden, or KubeVirt is
// not served.
func (d *discovery) machines(namespace string) ([]*unstructured.Unstructured, error) {
	list, known := d.machinesIn[namespace]
	if known {
		return list, nil
	}
	list, err := d.list(read.MachineKind, namespace)
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	if d.machinesIn == nil {
		d.machinesIn = map[string][]*unstructured.Unstructured{}
	}
	d.machinesIn[namespace] = list
	return list, nil
}

// infra reads the Infra that the ProxyServer names, unless a file contains it.
func (d *discovery) infra() error {
	if d.known.Infra != nil {
		return nil
	}
	server := d.known.ProxyServer
	u, err := d.Object(d.ctx, read.InfraKind, client.ObjectKey{Namespace: server.Namespace, Name: server.Spec.InfraRef.Name})
	if err != nil {
		return fmt.Errorf("ProxyServer %s/%s, spec.infraRef: Infra %s is not in the files: %w", server.Namespace, server.Name, server.Spec.InfraRef.Name, err)
	}
	switch infra := objects.Decode[v1alpha1.Infra](u).(type) {
	case *v1alpha1.Infra:
		infra.Default()
		d.known.Infra, d.known.Written, d.known.Kept = infra, documents.Manifest(u), append(d.known.Kept, u.GetKind())
	case *objects.Broken:
		return fmt.Errorf("decoding Infra %s/%s: %s", u.GetNamespace(), u.GetName(), infra.Error)
	}
	return nil
}

// hostedClusters reads all HostedClusters, or without the right to list them the one that the Infra names.
func (d *discovery) hostedClusters() error {
	if len(d.known.Objects.HostedClusters) > 0 {
		return nil
	}
	list, err := d.list(read.HostedClusterKind, "")
	if apierrors.IsForbidden(err) {
		for _, named := range d.known.Infra.Spec.NamedHostedCluster().Candidates(d.known.Infra.Namespace) {
			var u *unstructured.Unstructured
			if u, err = d.Object(d.ctx, read.HostedClusterKind, named); err == nil {
				list = append(list, u)
				break
			}
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	for _, u := range list {
		if err := d.known.addToModel(objects.Decode[objects.HostedCluster](u)); err != nil {
			return err
		}
	}
	return nil
}

// otherInfras reads the Infras of all namespaces, which may be on the same VLAN.
func (d *discovery) otherInfras() error {
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
		case d.known.standalone():
			return fmt.Errorf("Infra %s exists and its proxy has the name of this ProxyServer; rename the ProxyServer, or set its spec.infraRef to that Infra", keyOf(other)) //nolint:staticcheck // a kind begins with a capital
		}
	}
	return nil
}

// proxyServer reads the ProxyServers of the Infra.
func (d *discovery) proxyServer() error {
	if d.known.standalone() {
		return nil
	}
	servers, err := d.list(read.ProxyServerKind, d.known.Infra.Namespace)
	if err != nil && (d.known.ProxyServer == nil || !apierrors.IsForbidden(err)) {
		return err
	}
	return d.known.UseProxyServer(servers)
}

// UseProxyServer sets the Infra's ProxyServer to the one among those of its namespace, unless a file contains it. One
// that setup would render likewise is not set. It returns an error if another ProxyServer has the name of the Infra, or
// if several refer to it: setup deploys one, and would drop the routes of the others. With one in a file, those that
// setup applied before are no others, because setup deletes them.
func (k *Known) UseProxyServer(servers []*unstructured.Unstructured) error {
	var names []string
	inFile := k.ProxyServer != nil
	if inFile {
		names = append(names, k.ProxyServer.Name)
	}
	for _, u := range servers {
		server, ok := objects.Decode[v1alpha1.ProxyServer](u).(*v1alpha1.ProxyServer)
		if !ok || inFile && server.Name == k.ProxyServer.Name {
			continue
		}
		server.Default()
		named := server.Spec.InfraRef != nil && server.Spec.InfraRef.Name == k.Infra.Name
		switch {
		case server.Name == k.Infra.Name && !named:
			return fmt.Errorf("ProxyServer %s/%s has the name of the Infra and does not belong to it; rename the Infra, or set spec.infraRef of the ProxyServer to it", server.Namespace, server.Name)
		case !named, server.Name == k.Infra.Name && !k.hasCustomSpec(server), inFile && u.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy:
		default:
			if names = append(names, server.Name); !inFile {
				k.ProxyServer, k.WrittenProxyServer = server, documents.Manifest(u)
			}
		}
	}
	switch {
	case len(names) > 1:
		return fmt.Errorf("ProxyServers %s refer to Infra %s in spec.infraRef, and an Infra has one: move their backends to one of them, and delete the others", strings.Join(names, ", "), keyOf(k.Infra))
	case inFile:
		return nil
	default:
		return k.updateServerIP()
	}
}

// subnet derives the Infra of a standalone ProxyServer again, because other objects may define the subnet of its address.
func (d *discovery) subnet() error {
	if !d.known.standalone() {
		return nil
	}
	return d.known.deriveInfra()
}

// attachment reads the NetworkAttachmentDefinition of the VMs.
func (d *discovery) attachment() error {
	key := d.known.network()
	if _, ok := d.known.Attachments[key.String()]; ok {
		return nil
	}
	u, err := d.Object(d.ctx, read.AttachmentKind, key)
	switch {
	case errors.Is(err, read.ErrNotServed):
		return errors.New("the cluster does not serve NetworkAttachmentDefinitions; install Multus")
	case apierrors.IsNotFound(err):
		return d.suggestNetworks(key.Name) // Make returns the error
	case err != nil:
		return err
	}
	return d.known.UseAttachment(u)
}

// UseAttachment sets the VMs' NetworkAttachmentDefinition.
func (k *Known) UseAttachment(u *unstructured.Unstructured) error {
	key := u.GetNamespace() + "/" + u.GetName()
	config, _, err := unstructured.NestedString(u.Object, "spec", "config")
	if err != nil {
		return fmt.Errorf("reading spec.config of NetworkAttachmentDefinition %s: %w", key, err)
	}
	k.Attachments[key] = config
	k.ownNetwork = u.GetLabels()[v1alpha1.LabelComponent] == render.NetworkComponent && u.GetAnnotations()[v1alpha1.AnnotationInfra] == keyOf(k.Infra)
	return nil
}

// suggestNetworks adds a hint for each network of the same name in another namespace, and for a
// ClusterUserDefinedNetwork from which OVN-Kubernetes creates one. Without the right to list them there is no hint.
func (d *discovery) suggestNetworks(name string) error {
	networks, err := d.list(read.AttachmentKind, "")
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	for _, u := range networks {
		if u.GetName() == name {
			d.known.NetworkHint += fmt.Sprintf("; NetworkAttachmentDefinition %s/%s exists", u.GetNamespace(), name)
		}
	}
	selecting, err := d.list(clusterNetworks, "")
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	for _, u := range selecting {
		if u.GetName() == name {
			d.known.NetworkHint += fmt.Sprintf("; ClusterUserDefinedNetwork %s creates it in the namespaces selected by its spec.namespaceSelector", name)
		}
	}
	return nil
}

// podSecurity reads the Pod Security level that the Infra's namespace enforces, if it exists and may be read.
func (d *discovery) podSecurity() error {
	namespace := &corev1.Namespace{}
	err := d.Client.Get(d.ctx, client.ObjectKey{Name: d.known.Infra.Namespace}, namespace)
	if client.IgnoreNotFound(err) != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("reading namespace %s: %w", d.known.Infra.Namespace, err)
	}
	d.noNamespace = apierrors.IsNotFound(err)
	d.known.PodSecurity = namespace.Labels["pod-security.kubernetes.io/enforce"]
	return nil
}

// namespaceExists returns an error if the Infra's namespace does not exist and setup cannot create it, because the
// Infra needs objects in it or is refused there. The error is the only one: the others follow from it, and their
// remedies do not help if the namespace is wrong.
func (d *discovery) namespaceExists() error {
	k := d.known
	if !d.noNamespace {
		return nil
	}
	nad, hosted := k.network(), k.hostedClusterRef()
	_, hasNetwork := k.Attachments[nad.String()]
	missing := nad.Namespace == k.Infra.Namespace && !hasNetwork && k.MakeNetwork == nil
	for _, p := range k.snapshot().Problems {
		if p.Object.Kind == read.InfraKind.Kind && p.Object.Key() == keyOf(k.Infra) {
			missing = missing || p.Reason == model.ReasonConsentMissing || p.Reason == model.ReasonHostedClusterNotFound && hosted.Namespace == k.Infra.Namespace && k.unknownHostedCluster(k.snapshot(), p) != nil
		}
	}
	if !missing {
		return nil
	}
	kind := read.InfraKind.Kind
	if k.standalone() {
		kind = read.ProxyServerKind.Kind
	}
	return fmt.Errorf("namespace %s of %s %s does not exist; correct the namespace, or create it first", k.Infra.Namespace, kind, keyOf(k.Infra))
}

// controlPlane detects OpenShift, and reads Routes and Services in the control plane's namespace.
func (d *discovery) controlPlane() error {
	if !d.known.OpenShift {
		_, err := d.Client.RESTMapper().RESTMapping(read.ConstraintsKind.GroupKind(), read.ConstraintsKind.Version)
		d.known.OpenShift = err == nil
	}
	namespace := d.known.controlPlane(d.known.snapshot())
	if namespace == "" {
		return nil
	}
	err := d.Client.Get(d.ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("reading namespace %s: %w", namespace, err)
	}
	d.known.ControlPlane = true
	return errors.Join(
		d.addAll(read.RouteKind, namespace, objects.Decode[objects.Route]),
		d.addAll(read.ServiceKind, namespace, objects.Decode[objects.LabelledService]),
	)
}

// backends reads the Services in the namespaces to which the proxy connects, other than the control plane's.
func (d *discovery) backends() error {
	var all []string
	if p := d.known.Infra.Spec.InfraComponents.Proxy; p != nil {
		all = append(all, p.ControlPlaneNamespace)
	}
	if d.known.ProxyServer != nil {
		for _, b := range d.known.ProxyServer.Spec.Backends {
			all = append(all, b.TargetNamespace)
		}
	}
	seen := []string{"", d.known.controlPlane(d.known.snapshot())}
	for _, namespace := range all {
		if slices.Contains(seen, namespace) {
			continue
		}
		seen = append(seen, namespace)
		if err := d.addAll(read.ServiceKind, namespace, objects.Decode[objects.LabelledService]); err != nil {
			return err
		}
	}
	return nil
}

// internalService returns an error if the Service with the addresses of control-plane names for pods, other than the
// proxy's own, does not exist or has no address.
func (d *discovery) internalService() error {
	proxy := d.known.Infra.Spec.InfraComponents.Proxy
	if !proxy.IsEnabled() || proxy.InternalProxyService == "" {
		return nil
	}
	i := d.known.snapshot().Infra(keyOf(d.known.Infra))
	if i == nil || i.Proxy == nil || i.Proxy.Service == "" || i.Proxy.Service == keyOf(d.known.Infra)+"-proxy" {
		return nil
	}
	namespace, name, _ := strings.Cut(i.Proxy.Service, "/")
	service := &corev1.Service{}
	err := d.Client.Get(d.ctx, client.ObjectKey{Namespace: namespace, Name: name}, service)
	const where = "spec.infraComponents.proxy.internalProxyService"
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s: Service %s does not exist, and control-plane names would have no address for pods; create it first, or remove the field to use the proxy's own Service", where, i.Proxy.Service)
	case err != nil:
		return fmt.Errorf("%s: reading Service %s: %w", where, i.Proxy.Service, err)
	case service.Spec.ClusterIP == "" || service.Spec.ClusterIP == corev1.ClusterIPNone:
		return fmt.Errorf("%s: Service %s has no cluster IP, and control-plane names would have no address for pods; use another Service, or an address", where, i.Proxy.Service)
	}
	return nil
}

// addAll adds all objects of a kind in a namespace to the model.
func (d *discovery) addAll(kind schema.GroupVersionKind, namespace string, decode func(*unstructured.Unstructured) objects.Object) error {
	list, err := d.list(kind, namespace)
	for _, u := range list {
		err = errors.Join(err, d.known.addToModel(decode(u)))
	}
	return err
}

// earlierOperator returns an error if objects of the earlier operator exist: workloads, which may use addresses of
// the VLAN, and Services with the names that setup uses, which are deleted together with that operator's CRDs.
func (d *discovery) earlierOperator() error {
	infra := d.known.Infra
	var found []string
	for _, component := range []string{v1alpha1.ComponentDHCP, v1alpha1.ComponentDNS, v1alpha1.ComponentProxy} {
		name := infra.Name + "-" + component
		deployments := []string{name, name + "-" + component}
		if d.known.standalone() {
			deployments = append(deployments, infra.Name, "proxy-server-"+infra.Name)
		}
		for kind, names := range map[schema.GroupVersionKind][]string{
			appsv1.SchemeGroupVersion.WithKind("Deployment"): deployments, // of its newer and older releases
			read.ServiceKind: {name},
		} {
			for _, name := range names {
				u, err := d.Object(d.ctx, kind, client.ObjectKey{Namespace: infra.Namespace, Name: name})
				switch {
				case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
				case err != nil:
					return fmt.Errorf("looking for objects of the earlier operator: %w", err)
				case kind == read.ServiceKind && !OwnedByOperator(u) || u.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy:
				default:
					found = append(found, fmt.Sprintf("%s %s/%s", kind.Kind, infra.Namespace, name))
				}
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	slices.Sort(found)
	return fmt.Errorf("objects of the earlier operator may use addresses of this VLAN: %s; stop that operator, and delete its DHCPServer, DNSServer and ProxyServer with their dependents, see docs/how-to/migrate.md", strings.Join(found, ", "))
}

// OwnedByOperator reports whether an object belongs to the earlier operator: a DHCPServer, DNSServer or ProxyServer
// owns it, and it does not have setup's managed-by label. The owner alone does not tell, because a standalone
// ProxyServer owns the workloads that setup creates for it.
func OwnedByOperator(u *unstructured.Unstructured) bool {
	return u.GetLabels()[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy && slices.ContainsFunc(u.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
		return strings.HasPrefix(o.APIVersion, v1alpha1.GroupName+"/") && slices.Contains([]string{"DHCPServer", "DNSServer", "ProxyServer"}, o.Kind)
	})
}
