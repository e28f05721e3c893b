package model

import (
	"net/netip"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/internal/selector"
)

// AppsSource is a source of the apps addresses of a hosted cluster.
type AppsSource string

// All sources. The Corefile accepts hosted, mirrored and status.
const (
	// AppsHosted is the apps Service in the hosted cluster.
	AppsHosted AppsSource = "hosted"
	// AppsMirrored is the Service that the KubeVirt cloud controller creates in the management cluster for
	// the apps Service, or the Service of the management cluster that AppsOptions select.
	AppsMirrored AppsSource = "mirrored"
	// AppsStatus is status.appsIngress of the Infra, which xdsd control writes.
	AppsStatus AppsSource = "status"
	// AppsStatic is spec.appsIngress.addresses of the Infra.
	AppsStatic AppsSource = "static"
	// AppsLastGood is the previous snapshot, whose addresses stay in use while no other source has one.
	AppsLastGood AppsSource = "last known good"
)

// AppsOptions configure the sources of apps addresses. Unset options are taken from the Infra that enables
// appsIngress. Without Sources, a hosted cluster without such an Infra has no apps addresses.
type AppsOptions struct {
	// Sources are tried in this order, for every hosted cluster in scope. The first one with an accepted address
	// is used.
	Sources []AppsSource
	// Service is the apps Service, "namespace/name": in the hosted cluster for AppsHosted, in the management
	// cluster for AppsMirrored.
	Service string
	// Selector selects the apps Service by labels, instead of Service.
	Selector map[string]string
	// Allow are the networks whose addresses are accepted; empty for MetalLB's address range in the Infra or, if
	// it has none, the subnets of the VLAN.
	Allow []netip.Prefix
	// Credentials is the Secret with a kubeconfig for the hosted cluster, "namespace/name"; empty for the
	// reader's Secret of the Infra.
	Credentials string
	// Admin reports whether the Service in the hosted cluster is watched with the admin kubeconfig that the Infra
	// or the HostedCluster refers to, instead of Credentials. It also sets Cluster.APIServer and Apps.Revision.
	Admin bool
}

// Apps are the apps addresses of a hosted cluster.
type Apps struct {
	// Addresses are sorted; empty if none is known.
	Addresses []netip.Addr `json:"addresses"`
	// Source is the source of the addresses; empty if none is known.
	Source AppsSource `json:"source,omitempty"`
	// Withdrawn reports whether the source has lost its address. Addresses are then the last known ones.
	Withdrawn bool `json:"withdrawn,omitempty"`
	// Hosted has the parameters for watching the Service in the hosted cluster; nil if it is not watched.
	Hosted *HostedAccess `json:"hosted,omitempty"`
	// Followed reports whether the Service in the hosted cluster was read, or found to be missing, and is
	// watched without a fault.
	Followed bool `json:"followed,omitempty"`
	// Infra is the Infra that configures the apps; nil if only the options do.
	Infra *Ref `json:"infra,omitempty"`
	// Revision is the resourceVersion of the Service in the hosted cluster; empty without AppsOptions.Admin.
	Revision string `json:"revision,omitempty"`
}

// HostedAccess has the parameters for watching the apps Service in a hosted cluster.
type HostedAccess struct {
	// Secret is the Secret with the kubeconfig, "namespace/name"; empty if none is known.
	Secret string `json:"secret"`
	// Key is the key of the kubeconfig in the Secret.
	Key string `json:"key"`
	// Dial is the "host:port" to connect to; empty for the server in the kubeconfig.
	Dial string `json:"dial,omitempty"`
	// Service is the Service, "namespace/name"; empty with a Selector.
	Service string `json:"service,omitempty"`
	// Selector selects the Service by labels.
	Selector map[string]string `json:"selector,omitempty"`
	// Revisions reports whether every revision of the Service counts as a change, even if no field in use
	// differs.
	Revisions bool `json:"revisions,omitempty"`
}

// AppsAnswer returns what the cluster's apps names resolve to for clients that can reach the apps addresses. Its
// field Served is false if apps are not enabled.
func (c *Cluster) AppsAnswer() Answer {
	if c.Apps == nil {
		return Answer{}
	}
	return Answer{Served: true, Addresses: c.Apps.Addresses}
}

// identity returns the cluster's key and UID. With the UID, a cluster does not inherit the addresses of a
// deleted one with the same name.
func (c *Cluster) identity() string {
	if c.UID == "" { // an object in a file may have no UID
		return c.Key()
	}
	return c.Key() + " " + c.UID
}

// LastGood returns the apps addresses of each hosted cluster that has any, keyed by the cluster's key and UID, for
// Objects.LastGood of the next snapshot. Clusters that do not exist yet are omitted.
func (s *Snapshot) LastGood() map[string][]netip.Addr {
	kept := map[string][]netip.Addr{}
	for _, c := range s.Clusters {
		if c.Apps != nil && len(c.Apps.Addresses) > 0 && !c.isPlaceholder() {
			kept[c.identity()] = c.Apps.Addresses
		}
	}
	return kept
}

// ReaderSecret returns the "namespace/name" of the Secret in the Infra's namespace that has the reader's kubeconfig:
// credentials that permit only reading the apps Service in the hosted cluster.
func ReaderSecret(infra Ref) string { return infra.Namespace + "/" + infra.Name + "-apps-reader" }

// addApps sets the apps addresses of each cluster with an apps domain.
func (b *builder) addApps(in *Objects, options *AppsOptions) {
	f := appsFinder{
		builder: b, options: options, assigned: assignedByVLAN(b.infras),
		hosted: map[string]*objects.AppsService{},
	}
	for _, s := range in.AppsServices {
		f.hosted[s.Namespace+"/"+s.Name] = s
	}
	for _, c := range b.clusters {
		if len(c.AppsDomains) > 0 {
			c.Apps = f.find(c)
		}
	}
}

// appsFinder looks up the apps addresses of hosted clusters.
type appsFinder struct {
	*builder
	options  *AppsOptions
	hosted   map[string]*objects.AppsService // by hosted cluster, "namespace/name"
	assigned map[string]map[netip.Addr]bool  // addresses of gateways and components, by VLAN
}

// find returns the apps addresses of a cluster, or nil if neither the options nor an Infra enable apps.
func (f *appsFinder) find(c *draft) *Apps {
	infra := appsInfra(c)
	if f.options.Admin {
		c.APIServer = f.apiServer(c, infra)
	}
	sources := f.options.Sources
	if len(sources) == 0 {
		if infra == nil {
			return nil
		}
		sources = sourcesOf(infra.apps)
	}
	apps := &Apps{}
	a := appsQuery{draft: c, apps: apps, infra: infra, problemRef: c.Ref, filter: f.newAddressFilter(c, infra)}
	if infra != nil {
		a.problemRef, apps.Infra = infra.Ref, &infra.Ref
	}
	if !c.isPlaceholder() {
		a.lastGood = a.filter.accepted(f.previous.lastGood[c.identity()])
		if slices.Contains(sources, AppsHosted) {
			apps.Hosted = f.access(c, infra)
		}
	}
	for _, source := range sources {
		found := f.lookUp(source, a)
		if len(found) == 0 {
			continue
		}
		apps.Addresses, apps.Source = found, source
		if source == AppsStatus { // the last valid address, if the Service lost its address
			apps.Withdrawn = apps.Withdrawn || infra != nil && infra.status.Reason == v1alpha1.AppsIngressAddressWithdrawn
		} else {
			apps.Withdrawn = false
		}
		return apps
	}
	if len(a.lastGood) > 0 {
		apps.Addresses, apps.Source = a.lastGood, AppsLastGood
	}
	return apps
}

// appsQuery is the look-up of one cluster's apps addresses.
type appsQuery struct {
	*draft
	apps       *Apps          // the result
	infra      *Infra         // nil if no Infra enables apps
	problemRef Ref            // the object that problems are reported for
	filter     *addressFilter // accepts addresses
	lastGood   []netip.Addr   // accepted addresses of the previous snapshot
}

// isPlaceholder reports whether the cluster is derived from an Infra, because its HostedCluster does not
// exist yet. Nothing can be watched in it, and its key, the Infra's, may be that of another HostedCluster.
func (c *Cluster) isPlaceholder() bool { return c.Kind != "HostedCluster" }

// appsInfra returns the Infra that configures a cluster's apps: the first that enables appsIngress, or nil.
func appsInfra(c *draft) *Infra {
	for _, i := range c.infras {
		if i.apps.IsEnabled() {
			return i
		}
	}
	return nil
}

// sourcesOf returns the sources that an Infra configures. The status has what xdsd control read from the same
// Service, for daemons that cannot read it.
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

// lookUp returns the accepted addresses of one source.
func (f *appsFinder) lookUp(source AppsSource, a appsQuery) []netip.Addr {
	switch source {
	case AppsHosted:
		return f.lookUpHosted(a)
	case AppsMirrored:
		return f.lookUpMirrored(a)
	case AppsStatic:
		if a.infra != nil {
			return f.lookUpStatic(a)
		}
	case AppsStatus:
		if a.infra != nil && a.infra.status != nil {
			texts := a.infra.status.ExternalIPs
			if len(texts) == 0 && a.infra.status.ExternalIP != "" {
				texts = []string{a.infra.status.ExternalIP}
			}
			return f.accept(a, texts, "status of "+a.infra.String())
		}
	}
	return nil
}

// lookUpStatic returns the addresses in the Infra's spec. It omits and reports reserved addresses of the VLAN; all others
// that clients can reach are accepted, whatever their network.
func (f *appsFinder) lookUpStatic(a appsQuery) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(a.infra.staticApps), func(address netip.Addr) bool {
		what := reservedAddress(address, a.filter.networks)
		if what != "" {
			f.found.add(a.infra.Ref, ReasonInvalidAddress, "spec.appsIngress.addresses: %s is the %s, which no host can have: not used", address, what)
		}
		return what != ""
	})
}

// lookUpHosted returns the addresses of the Service in the hosted cluster, and reports why there are none.
func (f *appsFinder) lookUpHosted(a appsQuery) []netip.Addr {
	s := f.hosted[a.Key()]
	if s == nil || a.isPlaceholder() {
		return nil // not read yet
	}
	if s.Fault.Reason != "" {
		f.found.add(a.problemRef, Reason(s.Fault.Reason), "%s", s.Fault.Message)
	}
	a.apps.Followed = s.Read && s.Fault.Reason == ""
	if s.Service != nil {
		a.apps.Revision = s.Service.ResourceVersion // only set with the option Admin
	}
	switch {
	case s.Service != nil:
		return f.lookUpService(a, s.Service, "in "+a.String())
	case s.Read:
		f.reportMissing(a, a.String()+" has no Service "+f.describeService(a))
	}
	return nil
}

// lookUpMirrored returns the addresses of the Service in the management cluster, and reports why there are
// none.
func (f *appsFinder) lookUpMirrored(a appsQuery) []netip.Addr {
	if s := f.findMirrored(a); s != nil {
		return f.lookUpService(a, s, "for "+a.String())
	}
	f.reportMissing(a, "the management cluster has no mirrored Service "+f.describeService(a)+" of "+a.String())
	return nil
}

// lookUpService returns the accepted addresses of a Service. relation describes the Service's relation to the
// cluster, for messages.
func (f *appsFinder) lookUpService(a appsQuery, s *objects.Service, relation string) []netip.Addr {
	what := "Service " + s.Namespace + "/" + s.Name + " " + relation
	texts := s.LoadBalancerIPs()
	if len(texts) == 0 {
		f.reportMissing(a, what+" has no load balancer address")
	}
	return f.accept(a, texts, what)
}

// reportMissing reports that a source has no address, or lost it. state is a sentence about the source.
func (f *appsFinder) reportMissing(a appsQuery, state string) {
	if len(a.lastGood) > 0 {
		a.apps.Withdrawn = true
		f.found.add(a.problemRef, ReasonAddressWithdrawn, "%s%s", state, LastAddressStays)
		return
	}
	f.found.add(a.problemRef, ReasonAddressNotAssigned, "%s", state)
}

// LastAddressStays ends the first sentence of messages about addresses that a source has lost.
const LastAddressStays = "; the last address stays in use"

// maxAddresses limits the addresses of one source; a load balancer assigns one of each family. It bounds the
// size of answers and of the list of problems, because the owner of a hosted cluster can write the status.
const maxAddresses = 16

// accept returns the accepted addresses of a source, and reports the others.
func (f *appsFinder) accept(a appsQuery, texts []string, where string) []netip.Addr {
	if len(texts) > maxAddresses {
		f.found.add(a.problemRef, ReasonAddressNotAllowed, "%s has more than %[2]d addresses: only the first %[2]d are used", where, maxAddresses)
		texts = texts[:maxAddresses]
	}
	var list []netip.Addr
	for _, text := range texts {
		address, _ := netip.ParseAddr(text) // the zero Addr is rejected
		if why := a.filter.rejectReason(address); why != "" {
			f.found.add(a.problemRef, ReasonAddressNotAllowed, "%s has the address %q, which %s: not used", where, text, why)
			continue
		}
		list = append(list, address.Unmap())
	}
	return sortedAddrs(list)
}

// describeService returns the name or labels of the apps Service, for messages.
func (f *appsFinder) describeService(a appsQuery) string {
	if len(f.options.Selector) > 0 {
		return "with labels " + selector.Text(f.options.Selector)
	}
	return f.serviceName(a.Cluster, a.infra)
}
