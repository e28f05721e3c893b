package setup

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// A holder has an address on the VLAN before a change.
type holder struct {
	sets []string // the StatefulSet that has the address, or those between which it moves
	what string   // for messages
}

// holders reads the present VLAN addresses of the Infra's workloads: from the Infra in the cluster, and from the
// network status of its pods, which may still have addresses of an earlier spec.
func (d *discovery) holders() error {
	held, err := d.podAddresses()
	if err != nil || d.known.standalone() {
		return err
	}
	infra := d.known.Infra
	switch before, err := d.Infra(d.ctx, infra.Namespace, infra.Name); {
	case apierrors.IsNotFound(err) || errors.Is(err, read.ErrNotServed) || apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return err
	default:
		before.Default()
		d.known.before = before
	}
	var sets []string
	err = d.In(d.ctx, appsv1.SchemeGroupVersion.WithKind("StatefulSet"), infra.Namespace, func(u *unstructured.Unstructured) {
		if u.GetAnnotations()[v1alpha1.AnnotationInfra] == keyOf(infra) {
			sets = append(sets, u.GetName())
		}
	})
	if err != nil && !apierrors.IsForbidden(err) {
		return err //nolint:wrapcheck // read wraps it
	}
	d.known.UseSets(sets, held)
	for address, sets := range render.Addresses(d.known.before, d.known.sets) {
		d.known.holders = append(d.known.holders, heldAddress{address, holder{sets, "StatefulSet " + strings.Join(sets, " or ")}})
	}
	return nil
}

// podAddresses reads the VLAN addresses of the Infra's pods, and returns them by StatefulSet.
func (d *discovery) podAddresses() (map[string][]netip.Addr, error) {
	infra, label := d.known.Infra, v1alpha1.LabelInfra
	if d.known.standalone() {
		label = v1alpha1.LabelProxyServer
	}
	var pods corev1.PodList
	err := d.Client.List(d.ctx, &pods, client.InNamespace(infra.Namespace), client.MatchingLabels{label: infra.Name})
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("listing the pods of Infra %s: %w", keyOf(infra), err)
	}
	d.known.running, d.known.serving = map[string]bool{}, map[string]bool{}
	held := map[string][]netip.Addr{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		set := pod.Labels["app.kubernetes.io/instance"]
		_, ofInfra := pod.Labels[v1alpha1.LabelInfra]
		if set == "" || ofInfra == d.known.standalone() || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		d.known.running[set] = true
		if pod.DeletionTimestamp == nil {
			d.known.serving[pod.Labels[v1alpha1.LabelComponent]] = true
		}
		addresses, err := read.PodAddresses(pod)
		if err != nil {
			continue // Multus has not attached it yet
		}
		held[set] = append(held[set], addresses...)
		for _, address := range addresses {
			d.known.holders = append(d.known.holders, heldAddress{address, holder{[]string{set}, "pod " + pod.Name}})
		}
	}
	return held, nil
}

// UseSets sets the names of the Infra's present StatefulSets, which replicas keep, and the addresses of their pods, if known.
func (k *Known) UseSets(names []string, held map[string][]netip.Addr) {
	deployed := k.Infra
	if k.before != nil {
		deployed = k.before
	}
	k.sets = render.SetsOf(deployed, names, held)
}

// leases reads the bound DHCP leases of the Infra, and of the other Infras on its network. It ignores Lease objects that cannot be
// parsed, which doctor reports.
func (d *discovery) leases() error {
	k := d.known
	if k.standalone() {
		return nil
	}
	networks, onNetwork := k.networks(), map[string]bool{}
	namespaces := []string{k.Infra.Namespace}
	for _, other := range k.Objects.Infras {
		if networks.Same(other.Spec.NetworkConfig.NetworkAttachment(other.Namespace).String(), k.network().String()) {
			onNetwork[keyOf(other)] = true
			namespaces = append(namespaces, other.Namespace)
		}
	}
	slices.Sort(namespaces)
	for _, namespace := range slices.Compact(namespaces) {
		list, err := d.Leases(d.ctx, namespace, leases.PoolLabel)
		if err != nil && !apierrors.IsForbidden(err) {
			return err
		}
		for _, o := range list {
			l, err := leases.Read(o, time.Now())
			if err != nil || l == nil || l.State != "bound" {
				continue
			}
			switch key := namespace + "/" + l.Infra; {
			case key == keyOf(k.Infra):
				k.leased = append(k.leased, l)
			case onNetwork[key]:
				k.leasedByOthers = append(k.leasedByOthers, l)
			}
		}
	}
	return nil
}

// leasedAddresses returns an error for each new address of a component or of the gateway that a client of DHCP has, and for
// each new address of the ranges that a client of another Infra has.
func (k *Known) leasedAddresses() []error {
	var errs []error
	before, after := map[netip.Addr][]string{}, render.Addresses(k.Infra, k.sets)
	gateway, wasGateway, was := k.Infra.Spec.NetworkConfig.Gateway, "", (*v1alpha1.InfraDHCP)(nil)
	if k.before != nil {
		before, was, wasGateway = render.Addresses(k.before, k.sets), k.before.Spec.InfraComponents.DHCP, k.before.Spec.NetworkConfig.Gateway
	}
	for _, l := range slices.Concat(k.leased, k.leasedByOthers) {
		if sets, wanted := after[l.Address]; wanted && before[l.Address] == nil {
			errs = append(errs, fmt.Errorf("spec.infraComponents: %s of StatefulSet %s is leased to %s; choose an address that 'kubectl oooi leases' does not list", l.Address, strings.Join(sets, " or "), clientOf(l)))
		}
		if l.Address.String() == gateway && gateway != wasGateway {
			errs = append(errs, fmt.Errorf("spec.networkConfig.gateway: %s is leased to %s; set the address of the VLAN's router", gateway, clientOf(l)))
		}
	}
	for _, l := range k.leasedByOthers {
		if dhcp := k.Infra.Spec.InfraComponents.DHCP; dhcp.IsEnabled() && dhcp.Leasable(l.Address) && !was.Leasable(l.Address) {
			errs = append(errs, fmt.Errorf("spec.infraComponents.dhcp: the ranges contain %s, which Infra %s/%s has leased to %s; add it to exclude", l.Address, l.Metadata.Namespace, l.Infra, clientOf(l)))
		}
	}
	return errs
}

// movedDNS returns a warning if DNS keeps none of its addresses, and clients have leases that name them.
func (k *Known) movedDNS() []string {
	dns := k.Infra.Spec.InfraComponents.DNS
	if k.before == nil || len(k.leased) == 0 || !k.before.Spec.InfraComponents.DNS.IsEnabled() || !dns.IsEnabled() {
		return nil
	}
	addresses := func(d *v1alpha1.InfraDNS) (all []string) {
		for _, i := range d.EffectiveInstances() {
			for _, ip := range append([]v1alpha1.IP{i.IP}, i.AdditionalIPs...) {
				if a, err := v1alpha1.ParseAddress(string(ip)); err == nil {
					all = append(all, a.String())
				}
			}
		}
		return all
	}
	was, is := addresses(k.before.Spec.InfraComponents.DNS), addresses(dns)
	if slices.ContainsFunc(was, func(a string) bool { return slices.Contains(is, a) }) {
		return nil
	}
	text := fmt.Sprintf("DNS moves from %s to %s: VMs query the previous address until they renew their leases", strings.Join(was, ", "), strings.Join(is, ", "))
	if d, err := k.Infra.Spec.InfraComponents.DHCP.LeaseDuration(); err == nil {
		text += fmt.Sprintf(", which they do after at most %s", d)
	}
	return []string{text + "; to serve both addresses meanwhile, list both in spec.infraComponents.dns.instances first"}
}

// clientOf returns the client of a lease, for messages.
func clientOf(l *leases.Lease) string {
	if l.VM != "" {
		return "VM " + l.VM
	}
	return "client " + cmp.Or(l.Hostname, l.MAC, l.Client)
}

// secondDHCP returns an error if another Infra of the same HostedCluster serves DHCP to the same VMs: each of the two
// servers would refuse the addresses that the other one has leased.
func (k *Known) secondDHCP() []error {
	cluster := k.hostedClusterRef()
	if k.standalone() || cluster.Name == "" || !k.Infra.Spec.InfraComponents.DHCP.IsEnabled() {
		return nil
	}
	network, networks := k.network(), k.networks()
	var errs []error
	for _, other := range k.Objects.Infras {
		if keyOf(other) != keyOf(k.Infra) && other.Spec.InfraComponents.DHCP.IsEnabled() && other.DeletionTimestamp == nil &&
			networks.Same(other.Spec.NetworkConfig.NetworkAttachment(other.Namespace).String(), network.String()) && k.namedHostedCluster(other) == cluster {
			errs = append(errs, fmt.Errorf("spec.infraComponents.dhcp: Infra %s already serves DHCP to the VMs of HostedCluster %s on network %s; disable DHCP in one of the two Infras", keyOf(other), cluster, network))
		}
	}
	return errs
}

// A heldAddress is a VLAN address and its holder.
type heldAddress struct {
	address netip.Addr
	by      holder
}

// movedAddresses returns an error for each address that moves from one workload to another, if both are kept: the new
// pod would start before the old one ends, so that two pods use the address.
func (k *Known) movedAddresses() []error {
	if k.standalone() {
		return nil
	}
	after := render.Addresses(k.Infra, k.sets)
	kept := func(set string) bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(after)), func(sets []string) bool { return slices.Contains(sets, set) })
	}
	var conflicts []string
	for _, h := range k.holders {
		sets, wanted := after[h.address]
		if wanted && !slices.ContainsFunc(h.by.sets, func(set string) bool { return slices.Contains(sets, set) }) && slices.ContainsFunc(h.by.sets, kept) {
			conflicts = append(conflicts, fmt.Sprintf("%s uses %s until it is replaced, and StatefulSet %s would start with the same address before that; assign a free address to %s, run setup, then assign %s to %s and run setup again",
				h.by.what, h.address, strings.Join(sets, " or "), strings.Join(h.by.sets, " or "), h.address, strings.Join(sets, " or ")))
		}
	}
	slices.Sort(conflicts)
	var errs []error
	for _, text := range slices.Compact(conflicts) {
		errs = append(errs, errors.New("spec.infraComponents: "+text))
	}
	return errs
}

// proxyServers reads the ProxyServer before the change, and the others without an Infra, which may be on the same VLAN.
// Without the right to list them in all namespaces it reads those in the Infra's namespace.
func (d *discovery) proxyServers() error {
	servers, err := d.list(read.ProxyServerKind, "")
	if apierrors.IsForbidden(err) {
		servers, err = d.list(read.ProxyServerKind, d.known.Infra.Namespace)
	}
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	for _, u := range servers {
		server, ok := objects.Decode[v1alpha1.ProxyServer](u).(*v1alpha1.ProxyServer)
		own := d.known.ProxyServer
		switch {
		case !ok:
		case own != nil && server.Namespace == own.Namespace && server.Name == own.Name:
			server.Default()
			d.known.proxyBefore = server
		case server.Spec.InfraRef == nil:
			d.known.Objects.ProxyServers = append(d.known.Objects.ProxyServers, server)
		}
	}
	return nil
}

// networks reads which NetworkAttachmentDefinitions are of one network. Without the right to list all, it reads those in the
// namespaces of Infras, ProxyServers and VMs.
func (d *discovery) networks() error {
	k := d.known
	namespaces := []string{k.network().Namespace, k.Infra.Namespace}
	for _, nad := range k.otherNetworks() {
		namespace, _, _ := strings.Cut(nad, "/")
		namespaces = append(namespaces, namespace)
	}
	if cluster := k.hostedClusterRef(); cluster.Name != "" {
		namespaces = append(namespaces, model.ControlPlaneNamespace(cluster.Namespace, cluster.Name))
	}
	found, err := d.Networks(d.ctx, namespaces...)
	k.found = found
	return err //nolint:wrapcheck // read wraps it
}

// networks returns the networks of the known NetworkAttachmentDefinitions.
func (k *Known) networks() cni.Networks {
	all := cni.Networks{}
	maps.Copy(all, k.found)
	for nad, config := range k.Attachments {
		all[nad] = cni.Identity(config)
	}
	return all
}

// otherNetworks returns the NetworkAttachmentDefinitions of the other Infras and of the standalone ProxyServers, sorted.
func (k *Known) otherNetworks() []string {
	var list []string
	for _, i := range k.Objects.Infras {
		list = append(list, i.Spec.NetworkConfig.NetworkAttachment(i.Namespace).String())
	}
	for _, p := range k.Objects.ProxyServers {
		list = append(list, p.Spec.NetworkConfig.NetworkAttachment(p.Namespace).String())
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// aliases returns the NetworkAttachmentDefinitions of other Infras and ProxyServers that are of the Infra's network.
func (k *Known) aliases() []string {
	own, networks := k.network().String(), k.networks()
	return slices.DeleteFunc(k.otherNetworks(), func(nad string) bool { return nad == own || !networks.Same(nad, own) })
}

// snapshotBefore returns the model of the objects before the change; nil if the Infra and the ProxyServer are new.
func (k *Known) snapshotBefore() *model.Snapshot {
	if k.before == nil && k.proxyBefore == nil {
		return nil
	}
	all := k.Objects
	if k.before != nil {
		all.Infras = append(slices.Clone(all.Infras), k.before)
	}
	if k.proxyBefore != nil {
		all.ProxyServers = append(slices.Clone(all.ProxyServers), k.proxyBefore)
	} else if k.before.Spec.InfraComponents.Proxy.IsEnabled() {
		all.ProxyServers = append(slices.Clone(all.ProxyServers), render.OwnProxyServer(k.before))
	}
	return k.build(&all)
}

// newConflicts returns the name conflicts that a change of the Infra or of its ProxyServer adds. The names and ports may
// be served now, and the change would end that. It returns none if the change removes as many as it adds: that may be
// one backend, whose index changes.
func (k *Known) newConflicts(before, after *model.Snapshot) []model.Problem {
	changed := map[model.Ref]bool{
		{Kind: "Infra", Namespace: k.Infra.Namespace, Name: k.Infra.Name}: k.before != nil,
	}
	if k.ProxyServer != nil {
		changed[model.Ref{Kind: "ProxyServer", Namespace: k.ProxyServer.Namespace, Name: k.ProxyServer.Name}] = k.proxyBefore != nil
	}
	conflicts := func(s *model.Snapshot) []model.Problem {
		return slices.DeleteFunc(slices.Clone(s.Problems), func(p model.Problem) bool {
			return !changed[p.Object] || p.Reason != model.ReasonNameConflict
		})
	}
	was, is := conflicts(before), conflicts(after)
	if len(is) <= len(was) {
		return nil
	}
	return slices.DeleteFunc(is, func(p model.Problem) bool { return slices.Contains(was, p) })
}

// lostRoutes returns an error for each Service that the proxy routes names to, and that the change replaces by one
// that does not exist.
func (k *Known) lostRoutes(before, after *model.Snapshot) []error {
	key := keyOf(k.Infra)
	if k.ProxyServer != nil {
		key = k.ProxyServer.Namespace + "/" + k.ProxyServer.Name
	}
	is := routesOf(after.ProxyServer(key))
	lost := map[string][]string{} // names by error
	for route, u := range routesOf(before.ProxyServer(key)) {
		if now := is[route]; now != nil && u.Missing == "" && now.Missing != "" {
			text := fmt.Sprintf("led to Service %s before the change, and now %s; create the Service first, or correct its name", u.Service, now.Missing)
			lost[text] = append(lost[text], route)
		}
	}
	var errs []error
	for _, text := range slices.Sorted(maps.Keys(lost)) {
		names := lost[text]
		slices.Sort(names)
		more := ""
		if len(names) > 1 {
			more = fmt.Sprintf(" and %d more names", len(names)-1)
		}
		errs = append(errs, fmt.Errorf("ProxyServer %s: %s%s %s", key, names[0], more, text))
	}
	return errs
}

// routesOf returns the upstream of each route of a ProxyServer, which may be nil, by "name:port", with "/UDP" for
// UDP.
func routesOf(p *model.ProxyServer) map[string]*model.Upstream {
	all := map[string]*model.Upstream{}
	if p == nil {
		return all
	}
	upstreams := map[string]*model.Upstream{}
	for _, u := range p.Upstreams {
		upstreams[u.Name] = u
	}
	for _, l := range p.Listeners {
		format := "%s:%d"
		if l.UDP {
			format += "/UDP"
		}
		for _, r := range l.Routes {
			if u := upstreams[r.Upstream]; u != nil {
				all[fmt.Sprintf(format, r.Host, l.Port)] = u
			}
		}
	}
	return all
}

// InNamespace returns an error if the Infra and the ProxyServer of the files are in different namespaces, or in a
// namespace other than flag, the value of --namespace. An empty flag means that --namespace is not set.
func (k *Known) InNamespace(flag string) error {
	namespace := ""
	for _, o := range []*unstructured.Unstructured{k.Written, k.WrittenProxyServer} {
		switch {
		case o == nil:
		case flag != "" && o.GetNamespace() != flag:
			return fmt.Errorf("the namespace from the provided object %q does not match the namespace %q: %s %s. You must pass '--namespace=%s' to perform this operation", o.GetNamespace(), flag, o.GetKind(), o.GetName(), o.GetNamespace())
		case namespace != "" && o.GetNamespace() != namespace:
			return fmt.Errorf("%s %s is in namespace %s, and its Infra in namespace %s; create both in the same namespace", o.GetKind(), o.GetName(), o.GetNamespace(), namespace)
		}
		if o != nil {
			namespace = o.GetNamespace()
		}
	}
	return nil
}

// unknownHostedCluster returns an error for an Infra whose HostedCluster does not exist, unless the Infra defines the
// names to serve until it does. That exception does not apply if a HostedCluster of that name is in the Infra's own
// namespace: then the namespace of the reference is most likely wrong.
func (k *Known) unknownHostedCluster(snapshot *model.Snapshot, problem model.Problem) error {
	named := k.hostedClusterRef()
	if named.Name == "" {
		return nil
	}
	if k.before != nil {
		if served := k.namedHostedCluster(k.before); served.Name != "" && served != named && k.findHostedCluster(served) != nil {
			return fmt.Errorf("%s: %s; the Infra serves HostedCluster %s, which would lose its names and its proxy: create the new HostedCluster first, or delete the Infra with teardown", problem.Reason, problem.Message, served)
		}
	}
	wrongNamespace := k.findHostedCluster(client.ObjectKey{Namespace: k.Infra.Namespace, Name: named.Name}) != nil
	if i := snapshot.Infra(keyOf(k.Infra)); !wrongNamespace && i != nil && i.Cluster != nil {
		return nil
	}
	remedy := ""
	if !wrongNamespace {
		remedy = "; correct spec.hostedClusterRef, create the HostedCluster first, or set spec.infraComponents.dns.clusterName and baseDomain to serve its names before it exists"
	}
	return fmt.Errorf("%s: %s%s", problem.Reason, problem.Message, remedy)
}
