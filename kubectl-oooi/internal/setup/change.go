package setup

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// change is the input of a plan's checks.
type change struct {
	*Known
	present

	images   render.Images
	problems []problem
	// is and was are the site after and before the change; was is nil if the Infra and the ProxyServer are new. hosted and served are the
	// HostedClusters after and before the change; empty without one.
	is, was        *site.Site
	hosted, served types.NamespacedName
	// attachment is the CNI configuration of the VMs' network, and errAttachment why --make-network cannot create one.
	attachment    string
	errAttachment error
	// refs are the references of the hosted cluster's NodePools and VMs to the Infra's network, if Multus isolates namespaces.
	// Without references, wanted is the reference that NodePools need.
	isolation model.Isolation
	refs      []model.AttachmentRef
	wanted    model.AttachmentRef
}

// present is the state before the change.
type present struct {
	sets       render.Sets                  // the Infra's StatefulSets
	running    map[string]bool              // the StatefulSets that have a pod
	serving    map[string]bool              // the components that have a pod, even if the present spec disables them
	holders    []heldAddress                // the VLAN addresses of the Infra's workloads
	podNetwork string                       // identifies the network of the Infra's pods; empty if unknown
	leased     []*leases.Lease              // the Infra's bound DHCP leases
	attached   []*unstructured.Unstructured // the VMs on the Infra's network
}

// A heldAddress is a VLAN address and its holder.
type heldAddress struct {
	address netip.Addr
	by      holder
}

type holder struct {
	sets []string // the StatefulSet with the address, or the StatefulSets between which it moves
	what string   // for messages
}

// change compares the Infra or standalone ProxyServer with its live state.
func (k *Known) change(images render.Images) *change {
	c := &change{Known: k, images: images, is: k.site(), was: k.siteBefore()}
	c.hosted, c.attachment = c.is.Named(), c.is.NetworkConfig()
	if c.was != nil {
		c.served = c.was.Named()
	}
	if k.MakeNetwork != nil {
		c.attachment, c.errAttachment = k.MakeNetwork.Config(parseKey(k.network()))
	}
	c.findPods()
	if k.standalone() || !k.discovered {
		return c
	}
	for _, o := range site.All[coordinationv1.Lease](c.is, site.Leases, site.AtInfra) {
		if l, err := leases.Read(o, time.Now()); err == nil && l != nil && l.State == "bound" && l.Infra == k.Infra.Name { // doctor reports invalid ones
			c.leased = append(c.leased, l)
		}
	}
	c.findVMs()
	c.findRefs()
	return c
}

// otherInfras returns the cluster's Infras except the changed one, sorted by namespace and name.
func (c *change) otherInfras() []*v1alpha1.Infra {
	return slices.DeleteFunc(c.is.Facts.Infras(), func(i *v1alpha1.Infra) bool { return keyOf(i) == c.Key().String() })
}

// findPods sets the present VLAN addresses of the Infra's workloads: from the Infra in the cluster, and from the
// network status of its pods, which may still have addresses of an earlier spec.
func (c *change) findPods() {
	c.running, c.serving = map[string]bool{}, map[string]bool{}
	held := map[string][]netip.Addr{}
	for _, pod := range site.All[corev1.Pod](c.is, site.Pods, site.AtInfra) {
		set := pod.Labels["app.kubernetes.io/instance"]
		if set == "" || !c.is.Owns(pod.Labels) || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		c.running[set] = true
		if pod.DeletionTimestamp == nil {
			c.serving[pod.Labels[v1alpha1.LabelComponent]] = true
		}
		interfaces, _ := read.PodInterfaces(pod) // empty until Multus has attached the pod
		for _, i := range interfaces {
			held[set] = append(held[set], i.Addresses...)
			for _, address := range i.Addresses {
				c.holders = append(c.holders, heldAddress{address, holder{[]string{set}, "pod " + pod.Name}})
			}
			c.podNetwork = cmp.Or(c.is.Networks[i.Network], c.podNetwork)
		}
	}
	if c.before == nil {
		return
	}
	var sets []string
	for _, u := range c.is.List(site.StatefulSets, site.AtInfra) {
		if u.GetAnnotations()[v1alpha1.AnnotationInfra] == keyOf(c.Infra) {
			sets = append(sets, u.GetName())
		}
	}
	c.sets = render.SetsOf(c.before, sets, held)
	for address, sets := range render.Addresses(c.before, c.sets) {
		c.holders = append(c.holders, heldAddress{address, holder{sets, "StatefulSet " + strings.Join(sets, " or ")}})
	}
	slices.SortFunc(c.holders, func(a, b heldAddress) int {
		return cmp.Or(a.address.Compare(b.address), strings.Compare(a.by.what, b.by.what))
	})
}

// findVMs sets the VMs on the Infra's network before the change or, for a new Infra, on its network, in the namespace of the hosted
// cluster's VMs.
func (c *change) findVMs() {
	s := c.is
	if c.before != nil {
		s = c.was
	}
	infraID := cmp.Or(s.Facts.HostedCluster(s.Named()), &objects.HostedCluster{}).Spec.InfraID
	for _, u := range s.Facts.List(site.VMIs, s.VMNamespace()) {
		phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
		other := u.GetLabels()[objects.LabelInfraID]
		ended, foreign := phase == "Succeeded" || phase == "Failed", other != "" && infraID != "" && other != infraID
		if s.VMNamespace() != "" && !ended && !foreign && len(read.MachineInterfaces(u, c.is.Networks, s.Network().Key())) > 0 {
			c.attached = append(c.attached, u)
		}
	}
}

// poolRefs returns the references to networks in a HostedCluster's NodePools, whose VMs run in the given namespace.
func poolRefs(facts *site.Facts, hosted types.NamespacedName, vms string) []model.AttachmentRef {
	var refs []model.AttachmentRef
	for _, u := range facts.List(site.NodePools, hosted.Namespace) {
		if cluster, _, _ := unstructured.NestedString(u.Object, "spec", "clusterName"); cluster == hosted.Name {
			refs = append(refs, read.AttachmentRefs(u, vms)...)
		}
	}
	return refs
}

// findRefs sets Multus' isolation of namespaces and, if it is enabled, the references to the Infra's network.
func (c *change) findRefs() {
	isolation := model.OpenShiftIsolation
	if !c.OpenShift {
		isolation = read.Isolation(site.All[corev1.ConfigMap](c.is, site.ConfigMaps, site.AtMultus))
	}
	vms, hc := c.is.VMNamespace(), c.is.Facts.HostedCluster(c.hosted)
	if !isolation.Enabled || vms == "" || hc != nil && hc.Spec.Platform.HasExternalVMs() {
		return
	}
	c.isolation = isolation
	own := c.network()
	other := func(r model.AttachmentRef) bool { return r.Attachment != own && !c.is.Networks.Same(r.Attachment, own) }
	c.refs = poolRefs(c.is.Facts, c.hosted, vms)
	for _, u := range c.is.Facts.List(site.VMIs, vms) {
		c.refs = append(c.refs, read.AttachmentRefs(u, vms)...)
	}
	c.refs = slices.DeleteFunc(c.refs, other)
	c.wanted = model.NewAttachmentRef(model.Ref{}, vms, own)
	if local := model.NewAttachmentRef(model.Ref{}, vms, parseKey(own).Name); c.rejects(c.wanted) && !other(local) {
		c.wanted = local
	}
}

// rejects reports whether Multus rejects the pods of a reference.
func (c *change) rejects(r model.AttachmentRef) bool {
	return len(c.isolation.Rejected([]model.AttachmentRef{r})) > 0
}
