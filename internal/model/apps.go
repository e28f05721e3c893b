package model

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
)

// AppsSource says where the address of a hosted cluster's applications is read.
type AppsSource string

// The sources, as the Corefile names them.
const (
	// AppsHosted is the applications' Service inside the hosted cluster.
	AppsHosted AppsSource = "hosted"
	// AppsMirrored is the Service that KubeVirt's cloud controller mirrors into the
	// management cluster, or one of that cluster that is named.
	AppsMirrored AppsSource = "mirrored"
	// AppsStatus is the status of the Infra.
	AppsStatus AppsSource = "status"
	// AppsStatic are the addresses in the spec of the Infra.
	AppsStatic AppsSource = "static"
	// AppsLastGood are the addresses of before, kept while no source has any.
	AppsLastGood AppsSource = "last known good"
)

// AppsOptions say where applications are found. What is left out is as each Infra
// says, and a hosted cluster without an Infra that enables appsIngress has none.
type AppsOptions struct {
	// Sources are asked in this order, for every hosted cluster in scope; the first with an
	// address is believed.
	Sources []AppsSource
	// Service names the Service as "namespace/name".
	Service string
	// Selector finds the Service by labels in place of a name.
	Selector map[string]string
	// Allow are the networks whose addresses are believed.
	Allow []netip.Prefix
	// Credentials is the Secret "namespace/name" with a kubeconfig for the hosted cluster.
	Credentials string
}

// Apps is where the applications of a hosted cluster are reached.
type Apps struct {
	// Addresses are sorted; empty while none is known.
	Addresses []netip.Addr `json:"addresses"`
	// Source is where they were found.
	Source AppsSource `json:"source,omitempty"`
	// Hosted says how the Service inside the hosted cluster is followed; nil when it is not.
	Hosted *HostedAccess `json:"hosted,omitempty"`
}

// HostedAccess says how to follow the applications' Service in a hosted cluster.
type HostedAccess struct {
	// Secret holds the kubeconfig, as "namespace/name".
	Secret string `json:"secret"`
	// Dial is the "host:port" to connect to in place of the kubeconfig's; empty for
	// the kubeconfig's own.
	Dial string `json:"dial,omitempty"`
	// Service is the Service as "namespace/name"; empty with a Selector.
	Service string `json:"service,omitempty"`
	// Selector finds the Service by labels.
	Selector map[string]string `json:"selector,omitempty"`
}

// AppsAnswer is what the names of the cluster's applications resolve to where
// their addresses can be reached.
func (c *Cluster) AppsAnswer() Answer {
	if c.Apps == nil {
		return Answer{}
	}
	return Answer{Served: true, Addresses: c.Apps.Addresses}
}

// LastGood returns the addresses of each hosted cluster's applications, for the
// Objects of the next snapshot. They stay until they are replaced, or until nobody
// asks for the cluster's applications any more.
func (s *Snapshot) LastGood() map[string][]netip.Addr {
	kept := map[string][]netip.Addr{}
	for _, c := range s.Clusters {
		if c.Apps != nil && len(c.Apps.Addresses) > 0 {
			kept[c.Key()] = c.Apps.Addresses
		}
	}
	return kept
}

// ReaderSecret is the Secret, beside the Infra, with the credentials that may read
// the applications' Service in the hosted cluster and nothing else.
func ReaderSecret(infra Ref) string { return infra.Namespace + "/" + infra.Name + "-apps-reader" }

// addApps finds where the applications of each cluster are reached.
func (b *builder) addApps(in *Objects, options *AppsOptions) {
	f := appsFinder{builder: b, in: in, options: options, hosted: map[string]*objects.AppsService{}}
	for _, s := range in.AppsServices {
		f.hosted[s.Namespace+"/"+s.Name] = s
	}
	for _, c := range b.clusters {
		if len(c.Domains) > 0 {
			c.Apps = f.find(c)
		}
	}
}

type appsFinder struct {
	*builder
	in      *Objects
	options *AppsOptions
	hosted  map[string]*objects.AppsService // by hosted cluster
}

// find returns where the applications of a cluster are reached, nil when nobody
// wants them to be.
func (f *appsFinder) find(c *Cluster) *Apps {
	infra := appsInfra(c)
	sources := f.options.Sources
	if len(sources) == 0 {
		if infra == nil {
			return nil
		}
		sources = sourcesOf(infra.apps)
	}
	apps := &Apps{}
	if slices.Contains(sources, AppsHosted) {
		apps.Hosted = f.access(c, infra)
	}
	allowed := f.allowed(c, infra)
	for _, source := range sources {
		if found := f.ask(source, c, infra, allowed); len(found) > 0 {
			apps.Addresses, apps.Source = found, source
			return apps
		}
	}
	if last := allowed.filter(f.in.LastGood[c.Key()]); len(last) > 0 {
		apps.Addresses, apps.Source = last, AppsLastGood
		return apps
	}
	return apps
}

// appsInfra is the Infra that says how a cluster's applications are reached: the
// first that enables appsIngress.
func appsInfra(c *Cluster) *Infra {
	for _, i := range c.Infras {
		if i.apps.IsEnabled() {
			return i
		}
	}
	return nil
}

// sourcesOf are the sources of an Infra. The status is what xdsd control read from
// the same Service, for who may not or cannot read that directly.
func sourcesOf(apps *v1alpha1.AppsIngress) []AppsSource {
	switch apps.Source {
	case v1alpha1.AppsIngressSourceStatic:
		return []AppsSource{AppsStatic}
	case v1alpha1.AppsIngressSourceMirroredService:
		return []AppsSource{AppsMirrored, AppsStatus}
	default:
		return []AppsSource{AppsHosted, AppsStatus}
	}
}

// ask returns the allowed addresses that one source has.
func (f *appsFinder) ask(source AppsSource, c *Cluster, infra *Infra, allowed *allowed) []netip.Addr {
	switch source {
	case AppsHosted:
		return f.askHosted(c, infra, allowed)
	case AppsMirrored:
		if s := f.mirrored(c, infra); s != nil {
			return f.believe(c, s.LoadBalancerIPs(), "Service "+s.Namespace+"/"+s.Name, allowed)
		}
	case AppsStatic:
		if infra != nil {
			return infra.addresses("appsIngress.addresses", infra.apps.Addresses, &f.found)
		}
	case AppsStatus:
		if infra != nil && infra.status != nil {
			texts := infra.status.ExternalIPs
			if len(texts) == 0 && infra.status.ExternalIP != "" {
				texts = []string{infra.status.ExternalIP}
			}
			return f.believe(c, texts, "status of "+infra.String(), allowed)
		}
	}
	return nil
}

// askHosted returns what the Service inside the hosted cluster says, and reports
// why it says nothing.
func (f *appsFinder) askHosted(c *Cluster, infra *Infra, allowed *allowed) []netip.Addr {
	s := f.hosted[c.Key()]
	if s == nil {
		return nil // not asked yet
	}
	about := c.Ref
	if infra != nil {
		about = infra.Ref
	}
	if s.Fault.Reason != "" {
		f.found.add(about, Reason(s.Fault.Reason), "%s", s.Fault.Message)
	}
	if s.Service == nil {
		if s.Read {
			f.found.add(about, ReasonAddressNotAssigned, "%s has no Service %s, which is to carry its applications", c.Ref, f.serviceName(c, infra))
		}
		return nil
	}
	found := f.believe(c, s.Service.LoadBalancerIPs(), "Service "+s.Service.Namespace+"/"+s.Service.Name+" in "+c.String(), allowed)
	if len(found) == 0 && len(s.Service.LoadBalancerIPs()) == 0 {
		reason, state := ReasonAddressNotAssigned, "has no load balancer address yet"
		if len(f.in.LastGood[c.Key()]) > 0 {
			reason, state = ReasonAddressWithdrawn, "lost its load balancer address; the last one stays in use"
		}
		f.found.add(about, reason, "Service %s/%s in %s %s", s.Service.Namespace, s.Service.Name, c.Ref, state)
	}
	return found
}

// believe keeps the addresses that are allowed, and reports the others.
func (f *appsFinder) believe(c *Cluster, texts []string, where string, allowed *allowed) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		address, err := netip.ParseAddr(text)
		if err != nil || !allowed.contains(address) {
			f.found.add(c.Ref, ReasonAddressNotAllowed, "%s says %q, which is not in the allowed ranges %s: not used", where, text, allowed)
			continue
		}
		list = append(list, address.Unmap())
	}
	return sortedAddrs(list)
}

// serviceName is the applications' Service inside the hosted cluster.
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

// access says how to follow the Service inside the hosted cluster.
func (f *appsFinder) access(c *Cluster, infra *Infra) *HostedAccess {
	a := &HostedAccess{Secret: f.options.Credentials, Selector: f.options.Selector}
	if len(a.Selector) == 0 {
		a.Service = f.serviceName(c, infra)
	}
	if a.Secret == "" && infra != nil {
		a.Secret = ReaderSecret(infra.Ref)
	}
	if infra == nil || infra.apps.Dial != v1alpha1.AppsIngressDialURL {
		a.Dial = f.apiServer(c, infra)
	}
	return a
}

// apiServer is where the hosted cluster's API server is reached in the management
// cluster, without any name of ours; empty while its Service does not exist.
func (f *appsFinder) apiServer(c *Cluster, infra *Infra) string {
	name := backends[RoleAPI].Service
	if infra != nil && infra.apiService != "" {
		name = infra.apiService
	}
	for _, s := range f.in.Services {
		if s.Namespace != c.ControlPlaneNamespace || s.Name != name || len(s.Addresses()) == 0 {
			continue
		}
		address, err := netip.ParseAddr(s.Addresses()[0])
		if err != nil {
			continue
		}
		port := int32(portAPI)
		if len(s.Spec.Ports) > 0 {
			port = s.Spec.Ports[0].Port
		}
		return netip.AddrPortFrom(address, uint16(port)).String()
	}
	return ""
}

// Labels that KubeVirt's cloud controller puts on a mirrored Service.
const (
	labelCluster         = "cluster.x-k8s.io/cluster-name"
	labelTenantName      = "cluster.x-k8s.io/tenant-service-name"
	labelTenantNamespace = "cluster.x-k8s.io/tenant-service-namespace"
)

// mirrored finds the applications' Service in the management cluster; the newest
// where there are several, for those of destroyed guests stay behind.
func (f *appsFinder) mirrored(c *Cluster, infra *Infra) *objects.Service {
	fits := f.mirrorOf(c, infra)
	var newest *objects.Service
	for _, s := range f.in.Services {
		if !fits(s) {
			continue
		}
		if newest == nil || cmp.Or(newest.CreationTimestamp.Compare(s.CreationTimestamp.Time), cmp.Compare(newest.Name, s.Name)) < 0 {
			newest = s
		}
	}
	return newest
}

func (f *appsFinder) mirrorOf(c *Cluster, infra *Infra) func(*objects.Service) bool {
	if f.options.Service != "" {
		return func(s *objects.Service) bool { return s.Namespace+"/"+s.Name == f.options.Service }
	}
	want := f.options.Selector
	if len(want) == 0 {
		key := (*v1alpha1.AppsIngress)(nil).ServiceKey(c.Name)
		if infra != nil {
			key = infra.apps.ServiceKey(c.Name)
		}
		want = map[string]string{labelCluster: c.InfraID, labelTenantName: key.Name, labelTenantNamespace: key.Namespace}
	}
	return func(s *objects.Service) bool {
		if s.Namespace != c.ControlPlaneNamespace && len(f.options.Selector) == 0 && s.Labels[labelCluster] == "" {
			return false
		}
		for key, value := range want {
			if value == "" || s.Labels[key] != value {
				return false
			}
		}
		return true
	}
}
