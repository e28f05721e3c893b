package model

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/internal/selector"
)

// appsFinder looks up the apps addresses of hosted clusters.
type appsFinder struct {
	*builder
	options  *AppsOptions
	hosted   map[string]*objects.AppsService // by hosted cluster, "namespace/name"
	assigned map[string]map[netip.Addr]bool  // addresses of gateways and components, by VLAN
}

// appsQuery is the lookup of one cluster's apps addresses.
type appsQuery struct {
	*draft
	apps       *Apps          // the result
	infra      *Infra         // nil if no Infra enables apps
	problemRef Ref            // the object that problems are reported for
	filter     *addressFilter // accepts addresses
	lastGood   []netip.Addr   // accepted addresses of the previous snapshot
}

// addressFilter decides which addresses are accepted from a hosted cluster. Otherwise the owner of a hosted
// cluster could make names resolve to, and the proxy connect to, any address.
type addressFilter struct {
	ranges []v1alpha1.AddressRange
	// assigned are the addresses of the gateway and of oooi's components. With one of them as an apps address, the
	// proxy would connect to itself.
	assigned map[netip.Addr]bool
	// networks are the networks of the cluster's VLANs.
	networks []netip.Prefix
}

// serviceName returns the namespace and name of the apps Service in the hosted cluster, "namespace/name".
func (f *appsFinder) serviceName(c *Cluster, infra *Infra) string {
	if f.options.Service != "" {
		return f.options.Service
	}
	var apps *v1alpha1.AppsIngress
	if infra != nil {
		apps = infra.apps
	}
	return apps.ServiceKey(c.Name).String()
}

// access returns the parameters for watching the apps Service in the hosted cluster.
func (f *appsFinder) access(c *draft, infra *Infra) *HostedAccess {
	a := &HostedAccess{Secret: f.options.Credentials, Key: v1alpha1.DefaultKubeconfigKey, Selector: f.options.Selector}
	if len(a.Selector) == 0 {
		a.Service = f.serviceName(c.Cluster, infra)
	}
	switch {
	case f.options.Admin:
		a.Secret, a.Key = adminSecret(c.Cluster, infra)
		a.Revisions = true
	case a.Secret == "" && infra != nil:
		a.Secret = ReaderSecret(infra.Ref)
	}
	if infra == nil || infra.apps.Dial != v1alpha1.AppsIngressDialURL {
		a.Dial = f.apiServer(c, infra)
	}
	return a
}

// adminSecret returns the Secret with the admin kubeconfig, "namespace/name", and the key in it. The Secret
// is "" until HyperShift publishes one.
func adminSecret(c *Cluster, infra *Infra) (secret, key string) {
	if infra != nil && infra.apps.KubeconfigSecretRef != nil {
		ref := infra.apps.KubeconfigSecretRef
		return infra.Namespace + "/" + ref.Name, cmp.Or(ref.Key, v1alpha1.DefaultKubeconfigKey)
	}
	return c.Kubeconfig, v1alpha1.DefaultKubeconfigKey
}

// apiServer returns the "host:port" of the hosted cluster's API server in the management cluster, which needs
// no DNS; "" if its Service does not exist.
func (f *appsFinder) apiServer(c *draft, infra *Infra) string {
	name := backends[RoleAPI].Service
	if infra != nil && infra.apiService != "" {
		name = infra.apiService
	}
	s := f.services.find(c.ControlPlaneNamespace, name)
	if s == nil || len(s.Addresses()) == 0 {
		return ""
	}
	address, err := netip.ParseAddr(s.Addresses()[0])
	if err != nil {
		return ""
	}
	port := int32(portAPI)
	if len(s.Spec.Ports) > 0 {
		port = s.Spec.Ports[0].Port
	}
	return netip.AddrPortFrom(address, uint16(port)).String()
}

// Labels that the KubeVirt cloud controller sets on a mirrored Service.
const (
	labelCluster         = "cluster.x-k8s.io/cluster-name"
	labelTenantName      = "cluster.x-k8s.io/tenant-service-name"
	labelTenantNamespace = "cluster.x-k8s.io/tenant-service-namespace"
)

// MirroredLabels returns the keys of the labels that identify a mirrored Service.
func MirroredLabels() []string { return []string{labelCluster, labelTenantName, labelTenantNamespace} }

// findMirrored returns the Service in the management cluster that mirrors the apps Service, or nil. If there
// are several, it returns the newest, because Services of deleted hosted clusters may remain. Only namespaces
// where the cloud controller creates Services are searched: elsewhere other users could set the labels on
// their own Services.
func (f *appsFinder) findMirrored(a appsQuery) *objects.Service {
	if namespace, name, named := strings.Cut(f.options.Service, "/"); named {
		return f.services.find(namespace, name)
	}
	want := f.options.Selector
	if len(want) == 0 {
		namespace, name, _ := strings.Cut(f.serviceName(a.Cluster, a.infra), "/")
		want = map[string]string{labelCluster: a.InfraID, labelTenantName: name, labelTenantNamespace: namespace}
	}
	for _, value := range want {
		if value == "" { // the infraID is not known yet
			return nil
		}
	}
	found := f.services.matching(a.ControlPlaneNamespace, want)
	if a.vmNamespace != "" && a.vmNamespace != a.ControlPlaneNamespace {
		found = append(found, f.services.matching(a.vmNamespace, want)...)
	}
	if len(found) == 0 {
		return nil
	}
	return slices.MaxFunc(found, selector.Compare)
}
