package setup

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// severity is how setup handles a problem.
type severity int

const (
	refused severity = iota // setup rejects the change
	loss                    // setup rejects the change unless AllowLoss is set
	warning
)

// problem is a problem with a change.
type problem struct {
	severity
	text string
}

func (c *change) refuse(format string, args ...any) { c.add(refused, format, args...) }
func (c *change) warn(format string, args ...any)   { c.add(warning, format, args...) }

func (c *change) add(s severity, format string, args ...any) {
	c.problems = append(c.problems, problem{s, fmt.Sprintf(format, args...)})
}

// checks add the problems of a change, in the order of their messages.
var checks = []func(*change){
	(*change).modelProblems, (*change).lostRoutes, (*change).rejectedVMs, (*change).movedAddresses, (*change).leasedAddresses,
	(*change).secondDHCP, (*change).withoutVMs, (*change).unreachableRelays,
	(*change).lostComponents, (*change).lostLeases, (*change).lostMACs, (*change).lostCluster, (*change).lostNetwork, (*change).changedNetwork,
	(*change).unselectedVMs,
	(*change).earlierOperator, (*change).resolverLoop, (*change).otherControlResources, (*change).vmNetwork, (*change).missingNodes,
	(*change).warnings, (*change).ignoredFields, (*change).movedDNS, (*change).domainsOfOthers,
}

// fatalReasons are the reasons of problems for which setup rejects an Infra: the Infra would not work, or would
// disturb others.
var fatalReasons = []model.Reason{
	model.ReasonInvalidAddress, model.ReasonInvalidRange, model.ReasonAddressConflict, model.ReasonHostedClusterAmbiguous, model.ReasonConsentMissing,
	model.ReasonInvalidName, model.ReasonUndecodable, model.ReasonControllerConflict,
}

// expectedReasons are the reasons of problems that setup or, later, control resolves.
var expectedReasons = []model.Reason{model.ReasonProxyServiceMissing, model.ReasonKubeconfigMissing, model.ReasonAddressNotAssigned}

// modelProblems adds the problems that the model finds in the Infra and the ProxyServer. Problems of an Infra's ProxyServer are
// warnings, unless the change adds them.
func (c *change) modelProblems() {
	conflicts, own := c.newConflicts(), c.ref()
	for _, p := range c.is.Snapshot.Problems {
		text := fmt.Sprintf("%s: %s", p.Reason, p.Message)
		switch {
		case slices.Contains(conflicts, p):
			c.refuse("%s", p)
		case p.Object == c.serverRef() && p.Object != own:
			c.warn("%s", p)
		case p.Object != own:
		case p.Reason == model.ReasonHostedClusterNotFound:
			c.missingHostedCluster(text)
		case p.Reason == model.ReasonProxyServiceMissing && c.discovered && c.is.ForeignService() != "":
			c.refuse("spec.infraComponents.proxy.internalProxyService: %s; create it first, or remove the field to use the proxy's Service", p.Message)
		case slices.Contains(fatalReasons, p.Reason):
			c.refuse("%s", text)
		case !slices.Contains(expectedReasons, p.Reason):
			c.warn("%s", text)
		}
	}
}

// serverRef returns a reference to the ProxyServer; the zero value without one.
func (c *change) serverRef() model.Ref {
	if c.ProxyServer == nil {
		return model.Ref{}
	}
	return model.Ref{Kind: read.ProxyServerKind.Kind, Namespace: c.ProxyServer.Namespace, Name: c.ProxyServer.Name}
}

// missingHostedCluster rejects an Infra whose HostedCluster does not exist, unless the Infra defines the names to serve until it
// exists. The exception does not apply if a HostedCluster with this name exists in the Infra's namespace: then the reference's namespace
// is most likely wrong.
func (c *change) missingHostedCluster(text string) {
	named := c.is.Facts.Named(c.Infra)
	switch {
	case named.Name == "":
		c.warn("%s", text)
	case c.before != nil && c.served != named && c.is.Facts.HostedCluster(c.served) != nil:
		c.refuse("%s; the Infra serves HostedCluster %s, which would lose DNS and the proxy; create the new HostedCluster first, or delete the Infra "+
			"with teardown", text, c.served)
	case c.is.Facts.HostedCluster(types.NamespacedName{Namespace: c.Infra.Namespace, Name: named.Name}) != nil:
		c.refuse("%s", text)
	case c.is.Cluster == nil:
		c.refuse("%s; correct spec.hostedClusterRef, create the HostedCluster first, or set spec.infraComponents.dns.clusterName and baseDomain to serve "+
			"its names before it exists", text)
	default:
		c.warn("%s", text)
	}
}

// newConflicts adds the name conflicts that a change to the Infra or its ProxyServer introduces. The change may interrupt names and
// ports that are served now. It adds none if the change removes as many conflicts as it introduces: this may be a backend whose index
// changes.
func (c *change) newConflicts() []model.Problem {
	conflicts := func(s *model.Snapshot) []model.Problem {
		return slices.DeleteFunc(slices.Clone(s.Problems), func(p model.Problem) bool {
			changed := p.Object == c.ref() && c.before != nil || p.Object == c.serverRef() && c.proxyBefore != nil
			return !changed || p.Reason != model.ReasonNameConflict
		})
	}
	if c.was == nil || len(conflicts(c.is.Snapshot)) <= len(conflicts(c.was.Snapshot)) {
		return nil
	}
	return slices.DeleteFunc(conflicts(c.is.Snapshot), func(p model.Problem) bool { return slices.Contains(c.was.Snapshot.Problems, p) })
}

// lostRoutes adds each name that the proxy routes to a Service, and that the change routes to a Service that does not exist.
func (c *change) lostRoutes() {
	server := keyOf(c.Infra)
	if c.ProxyServer != nil {
		server = c.serverRef().Key()
	}
	after, was := routesOf(c.is, server), routesOf(c.was, server)
	for _, route := range slices.Sorted(maps.Keys(was)) {
		if now := after[route]; now != nil && was[route].Missing == "" && now.Missing != "" {
			c.refuse("ProxyServer %s: the change moves %s from Service %s: %s; create the Service first, or correct its name",
				server, route, was[route].Service, now.Missing)
		}
	}
}

// routesOf returns the upstream of each route of ProxyServer "namespace/name" of a site, which may be nil, by "name:port", with
// "/UDP" for UDP.
func routesOf(s *site.Site, server string) map[string]*model.Upstream {
	all := map[string]*model.Upstream{}
	if s == nil || s.Snapshot.ProxyServer(server) == nil {
		return all
	}
	p := s.Snapshot.ProxyServer(server)
	for _, l := range p.Listeners {
		format := "%s:%d"
		if l.UDP {
			format += "/UDP"
		}
		for _, r := range l.Routes {
			if at := slices.IndexFunc(p.Upstreams, func(u *model.Upstream) bool { return u.Name == r.Upstream }); at >= 0 {
				all[fmt.Sprintf(format, r.Host, l.Port)] = p.Upstreams[at]
			}
		}
	}
	return all
}

// rejectedVMs adds an error if Multus rejects the pods of all NodePools and VMs on the Infra's network, and a warning if Multus
// rejects some of them, or would reject the first NodePool's pods.
func (c *change) rejectedVMs() {
	rejected := c.isolation.Rejected(c.refs)
	switch {
	case len(rejected) > 0 && len(rejected) == len(c.refs):
		c.refuse("%s: %s; %s", rejected[0].Object, rejected[0].Rejection(), rejected[0].Remedy())
	case len(rejected) > 0:
		c.warn("%s: %s; %s", rejected[0].Object, rejected[0].Rejection(), rejected[0].Remedy())
	case len(c.refs) == 0 && c.rejects(c.wanted):
		c.warn("VMs cannot use the network: %s; %s", c.wanted.Rejection(), c.wanted.Remedy())
	}
}

// movedAddresses rejects moving an address from one workload to another if both are kept: the new pod would start before
// the old one terminates, so that two pods use the address.
func (c *change) movedAddresses() {
	after := render.Addresses(c.Infra, c.sets)
	kept := slices.Concat(slices.Collect(maps.Values(after))...)
	for _, h := range c.holders {
		of, wanted := after[h.address]
		in := func(sets []string) bool {
			return slices.ContainsFunc(h.by.sets, func(set string) bool { return slices.Contains(sets, set) })
		}
		if wanted && !in(of) && in(kept) && !c.standalone() {
			c.refuse("spec.infraComponents: %s uses %s until it is replaced, and StatefulSet %s would start with the same address before that; assign a free "+
				"address to %s, run setup, then assign %[2]s to %[3]s and run setup again",
				h.by.what, h.address, strings.Join(of, " or "), strings.Join(h.by.sets, " or "))
		}
	}
}

// leasedAddresses adds each new address of a component that is leased to a DHCP client.
func (c *change) leasedAddresses() {
	after, before := render.Addresses(c.Infra, c.sets), map[netip.Addr][]string{}
	if c.before != nil {
		before = render.Addresses(c.before, c.sets)
	}
	for _, l := range c.leased {
		if sets := after[l.Address]; sets != nil && before[l.Address] == nil {
			c.refuse("spec.infraComponents: %s of StatefulSet %s is leased to %s; choose an address that 'kubectl oooi leases' does not list",
				l.Address, strings.Join(sets, " or "), clientOf(l))
		}
	}
}

// secondDHCP adds the other Infras of the same HostedCluster that serve DHCP to the same VMs: each server would reject addresses that
// the other one has leased.
func (c *change) secondDHCP() {
	cluster := c.is.Facts.Named(c.Infra)
	for _, other := range c.otherInfras() {
		if cluster.Name != "" && c.Infra.Spec.InfraComponents.DHCP.IsEnabled() && other.Spec.InfraComponents.DHCP.IsEnabled() && other.DeletionTimestamp == nil &&
			c.is.Networks.Same(networkOf(other), c.network()) && c.is.Facts.Named(other) == cluster {
			c.refuse("spec.infraComponents.dhcp: Infra %s already serves DHCP to the VMs of HostedCluster %s on network %s; disable DHCP in one of the two "+
				"Infras", keyOf(other), cluster, c.network())
		}
	}
}

// withoutVMs adds a problem if DHCP cannot find the VMs of the Infra's HostedCluster, because it reads VirtualMachineInstances of this
// cluster only.
func (c *change) withoutVMs() {
	hc, dhcp := c.is.Facts.HostedCluster(c.hosted), c.Infra.Spec.InfraComponents.DHCP
	switch {
	case hc == nil || !dhcp.IsEnabled() || len(dhcp.Hosts) > 0 && dhcp.VMSelector == nil:
	case hc.Spec.Platform.HasExternalVMs():
		c.refuse("spec.infraComponents.dhcp: the VMs of HostedCluster %s run in another cluster (spec.platform.kubevirt.credentials.infraKubeConfigSecret), "+
			"and DHCP serves VMs of this cluster; deploy DHCP in the cluster with the VMs and set spec.infraComponents.dhcp.enabled to false here, or list "+
			"the VMs' MAC addresses in spec.infraComponents.dhcp.hosts", c.hosted)
	case hc.Spec.Platform.Type != "" && hc.Spec.Platform.Type != objects.PlatformKubeVirt && dhcp.VMSelector == nil:
		c.refuse("spec.infraComponents.dhcp: HostedCluster %s has platform %s, and DHCP serves only KubeVirt VMs; set spec.infraComponents.dhcp.enabled "+
			"to false, list the hosts in hosts, or set vmSelector if the nodes are KubeVirt VMs in this cluster", c.hosted, hc.Spec.Platform.Type)
	}
}

// unreachableRelays rejects relay agents on OVN-Kubernetes networks, where pods lack routes beyond the VLAN.
func (c *change) unreachableRelays() {
	if dhcp := c.Infra.Spec.InfraComponents.DHCP; dhcp.IsEnabled() && len(dhcp.Relays) > 0 && cni.IsOVN(c.attachment) {
		c.refuse("spec.infraComponents.dhcp.relays: in OVN-Kubernetes network %s, pods lack a route to relay agents outside of the "+
			"VLAN; let the relay agents use addresses in networkConfig.cidr, and remove the field", c.Infra.Spec.NetworkConfig.NetworkAttachment(c.Infra.Namespace))
	}
}

// operatorDeployments are the names of the Deployments of the earlier operator's releases.
var operatorDeployments = []string{"%s-dhcp", "%s-dhcp-dhcp", "%s-dns", "%s-dns-dns", "%s-proxy", "%s-proxy-proxy", "proxy-server-%s"}

// earlierOperator adds the Deployments of the earlier operator, which may use addresses of the VLAN.
func (c *change) earlierOperator() {
	for _, name := range operatorDeployments {
		u := c.live.Get(site.Deployments, c.Infra.Namespace, fmt.Sprintf(name, c.Infra.Name))
		if u != nil && u.GetLabels()[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy {
			c.refuse("objects of the earlier operator may use addresses of this VLAN: Deployment %s/%s; stop that operator, and delete its DHCPServer, "+
				"DNSServer and ProxyServer with their dependents, see docs/how-to/migrate.md", u.GetNamespace(), u.GetName())
		}
	}
}

// resolverLoop adds an error if an upstream resolver is the cluster DNS, which may forward to the Infra's DNS, so that queries for
// unknown names would loop.
func (c *change) resolverLoop() {
	for _, key := range ClusterResolvers() {
		u := c.live.Get(site.Services, key.Namespace, key.Name)
		if u == nil {
			continue
		}
		addresses, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "clusterIPs")
		for _, upstream := range c.Infra.Spec.NetworkConfig.DNSServers {
			if slices.Contains(addresses, upstream) {
				c.refuse("spec.networkConfig.dnsServers: %s is the cluster's DNS (Service %s), which may forward to the Infra's DNS, so that queries for "+
					"unknown names would loop; specify other upstream resolvers, or none to use the node's resolvers", upstream, key)
			}
		}
	}
}

func (c *change) otherControlResources() {
	if _, other := c.controlResources(); other != "" {
		c.refuse("spec.infraComponents.control.resources: Infra %s sets other resources for control, which all Infras share; set the same in both, or remove the "+
			"field from one of them", other)
	}
}

// vmNetwork adds an error if the VMs' network does not exist, cannot be created, or assigns addresses.
func (c *change) vmNetwork() {
	nad := c.network()
	key := parseKey(nad)
	exists := c.live.With(c.files...).Get(site.NADs, key.Namespace, key.Name) != nil
	switch {
	case c.errAttachment != nil:
		c.refuse("%s", c.errAttachment)
	case c.MakeNetwork != nil && exists && !c.ownsNetwork():
		c.refuse("NetworkAttachmentDefinition %s exists and was not created by setup for this Infra; omit --make-network to use it as it is", nad)
	case c.MakeNetwork == nil && !exists && c.discovered && !c.live.Served(site.NADs):
		c.refuse("the cluster does not serve NetworkAttachmentDefinitions; install Multus")
	case c.MakeNetwork == nil && !exists:
		c.refuse("spec.networkConfig: NetworkAttachmentDefinition %s does not exist; create it, let setup create it (--make-network), or specify it as "+
			"NAMESPACE/NAME%s", nad, c.otherNetworks())
	}
	if ns := key.Namespace; c.MakeNetwork != nil && c.discovered && c.live.Get(site.Namespaces, "", ns) == nil && c.live.Unread(site.Namespaces, ns) == "" {
		c.refuse("spec.networkConfig: namespace %s of the network does not exist; correct it, or create it first", ns)
	}
	ipam, err := cni.IPAM(c.attachment)
	switch {
	case !exists && c.MakeNetwork == nil: // rejected above
	case err != nil:
		c.refuse("NetworkAttachmentDefinition %s: %v", nad, err)
	case ipam == cni.DHCPIPAM && c.Infra.Spec.InfraComponents.DHCP.IsEnabled():
		c.refuse("NetworkAttachmentDefinition %s: %s in spec.config requests a lease for each VM's pod before KubeVirt knows the VM's MAC address, and the "+
			"Infra's DHCP "+
			"does not reply to unknown clients, so VMs would not start; remove it (in a ClusterUserDefinedNetwork: ipam: {mode: Disabled}): VMs request "+
			"their leases themselves", nad, ipam)
	case ipam == cni.DHCPIPAM && cni.IsOVN(c.attachment): // another DHCP server assigns the addresses; KubeVirt does not see them
	case ipam != "" && (!c.standalone() || ipam != cni.StaticIPAM):
		c.refuse("NetworkAttachmentDefinition %s assigns addresses by %s in spec.config, which KubeVirt's DHCP server would offer to "+
			"VMs; remove it (in a ClusterUserDefinedNetwork: ipam: {mode: Disabled})", nad, ipam)
	case c.MakeNetwork != nil && !c.MakeNetwork.ForMachines():
		c.warn("VMs that KubeVirt bridges to macvlan receive no packets: a macvlan interface accepts only its MAC address. Connect VMs to the VLAN by a bridge " +
			"or OVN-Kubernetes; pods can use macvlan")
	}
}

// ownsNetwork reports whether setup created the VMs' network for this Infra.
func (c *change) ownsNetwork() bool {
	key := parseKey(c.network())
	u := c.live.Get(site.NADs, key.Namespace, key.Name)
	return u != nil && u.GetLabels()[v1alpha1.LabelComponent] == render.NetworkComponent && u.GetAnnotations()[v1alpha1.AnnotationInfra] == keyOf(c.Infra)
}

// otherNetworks returns networks of the same name in other namespaces, and how OVN-Kubernetes creates one, for an error.
func (c *change) otherNetworks() (hint string) {
	name := parseKey(c.network()).Name
	for _, nad := range c.is.Facts.List(site.NADs, "") {
		if nad.GetName() == name {
			hint += "; NetworkAttachmentDefinition " + nad.GetNamespace() + "/" + name + " exists"
		}
	}
	if c.live.Get(site.ClusterNetworks, "", name) != nil {
		hint += "; ClusterUserDefinedNetwork " + name + " creates it in the namespaces selected by its spec.namespaceSelector"
	}
	return hint
}
