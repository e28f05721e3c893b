package kubevirt

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/objects"
)

// networks has the identities of the networks of NetworkAttachmentDefinitions, and compares them with the plugin's
// network. With the zero value, only interfaces that name the plugin's NetworkAttachmentDefinition are on it.
type networks struct {
	// own is the plugin's NetworkAttachmentDefinition, "namespace/name".
	own string
	// unused is set if no VMs are served.
	unused bool
	// identity is the last known identity of the plugin's network; empty if it has never been known. It remains if the
	// NetworkAttachmentDefinition is deleted or invalid, because that detaches no VM.
	identity string
	// identities are the identities of existing NetworkAttachmentDefinitions, by "namespace/name"; empty for one that
	// does not identify its network.
	identities map[string]string
}

// compare reports whether an interface with a NetworkAttachmentDefinition is on the plugin's network, and whether that is
// known.
func (n *networks) compare(nad string) (on, known bool) {
	if nad == n.own {
		return true, true
	}
	identity := n.identities[nad]
	known = n.identity != "" && identity != ""
	return known && identity == n.identity, known
}

// set replaces the identity of a NetworkAttachmentDefinition, and reports whether it differs.
func (n *networks) set(nad, identity string) bool {
	before, known := n.identities[nad]
	if known && before == identity {
		return false
	}
	if n.identities == nil {
		n.identities = map[string]string{}
	}
	n.identities[nad] = identity
	if nad == n.own && identity != "" {
		n.identity = identity
	}
	return true
}

// remove removes a NetworkAttachmentDefinition, and reports whether it was known.
func (n *networks) remove(nad string) bool {
	_, known := n.identities[nad]
	delete(n.identities, nad)
	return known
}

// problem describes why the plugin's network cannot be identified by its NetworkAttachmentDefinition; empty if it is.
func (n *networks) problem() string {
	identity, exists := n.identities[n.own]
	switch {
	case identity != "" || n.unused:
		return ""
	case exists:
		return fmt.Sprintf("spec.config of NetworkAttachmentDefinition %s does not identify its network", n.own)
	default:
		return fmt.Sprintf("NetworkAttachmentDefinition %s does not exist, or may not be read", n.own)
	}
}

// on returns the interfaces of an instance that are on the network. An interface that was on it in before, an earlier
// state of the same instance or nil, still is: a changed NetworkAttachmentDefinition detaches no VM that runs.
func (n *networks) on(i, before *instance) []nic {
	if before != nil && before.UID != i.UID {
		before = nil
	}
	var list []nic
	for _, a := range i.attachments {
		on, _ := n.compare(a.network)
		if on || before.had(a) {
			if a.MAC == "" {
				a.MAC = before.mac(a.Name) // KubeVirt's status can lack it for a moment
			}
			list = append(list, a.nic)
		}
	}
	return list
}

// mac returns the MAC address of an interface on the network; "" if it has none, or i is nil.
func (i *instance) mac(name string) string {
	if i == nil {
		return ""
	}
	for _, n := range i.Interfaces {
		if n.Name == name {
			return n.MAC
		}
	}
	return ""
}

// had reports whether an instance, which may be nil, had an interface on the network with the same
// NetworkAttachmentDefinition, which is unknown for an instance from the snapshot file.
func (i *instance) had(a attachment) bool {
	if i == nil || !slices.ContainsFunc(i.Interfaces, func(n nic) bool { return n.Name == a.Name }) {
		return false
	}
	at := slices.IndexFunc(i.attachments, func(b attachment) bool { return b.Name == a.Name })
	return at < 0 || i.attachments[at].network == a.network
}

// networkNamespaces returns the namespaces whose NetworkAttachmentDefinitions are read: the VMs' namespaces and the
// namespace of the plugin's network, or one empty string for all.
func (c config) networkNamespaces() []string {
	if c.namespaces == "" {
		return []string{""}
	}
	own, _, _ := strings.Cut(c.network, "/")
	list := append(strings.Split(c.namespaces, ","), own)
	slices.Sort(list)
	return slices.Compact(list)
}

// listNetworks reads the identities of the networks. Without permission to read them, or without their API, interfaces are
// compared by name.
func listNetworks(ctx context.Context, client dynamic.Interface, c config) (*networks, error) {
	n := &networks{own: c.network}
	for _, namespace := range c.networkNamespaces() {
		list, err := client.Resource(cni.Resource).Namespace(namespace).List(ctx, metav1.ListOptions{})
		switch {
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("kubevirt: listing NetworkAttachmentDefinitions: %w", err)
		}
		for i := range list.Items {
			n.set(nadOf(objects.DecodeNetworkAttachment(&list.Items[i])))
		}
	}
	return n, nil
}

// nadOf returns a NetworkAttachmentDefinition, "namespace/name", and the identity of its network.
func nadOf(o objects.Object) (nad, identity string) {
	if a, ok := o.(*objects.NetworkAttachment); ok {
		identity = a.Network
	}
	return o.GetNamespace() + "/" + o.GetName(), identity
}

// followNetworks returns a watch of the NetworkAttachmentDefinitions of a namespace, or of all namespaces if it is empty.
func followNetworks(d *directory, client dynamic.Interface, namespace string, log *slog.Logger) *optionalFollower {
	f := &optionalFollower{
		refusal: "cannot read NetworkAttachmentDefinitions; interfaces are on the network only if they name its NetworkAttachmentDefinition",
		remedy:  "grant list and watch for network-attachment-definitions",
	}
	f.follow(d, client, following{
		resource: cni.Resource, kind: "NetworkAttachmentDefinition", namespace: namespace, decode: objects.DecodeNetworkAttachment,
		replace: d.replaceNetworks,
		changed: func(o objects.Object, exists bool) {
			d.updateNetworks(func(n *networks) bool {
				nad, identity := nadOf(o)
				if !exists {
					return n.remove(nad)
				}
				return n.set(nad, identity)
			})
		},
	}, log)
	return f
}

// replaceNetworks adds the NetworkAttachmentDefinitions of a list and removes all others of the namespace.
func (d *directory) replaceNetworks(namespace string, list []objects.Object) {
	d.updateNetworks(func(n *networks) bool {
		changed, listed := false, map[string]bool{}
		for _, o := range list {
			nad, identity := nadOf(o)
			listed[nad] = true
			changed = n.set(nad, identity) || changed
		}
		for nad := range n.identities {
			if of, _, _ := strings.Cut(nad, "/"); !listed[nad] && (namespace == "" || of == namespace) {
				changed = n.remove(nad) || changed
			}
		}
		return changed
	})
}

// updateNetworks changes the known networks and the interfaces on the network accordingly, if update reports a change.
func (d *directory) updateNetworks(update func(*networks) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.networks.identity
	if !update(&d.networks) {
		return
	}
	if now := d.networks.identity; now != before {
		d.changes++
		d.log.Info("the network is identified", "network", d.config.network, "identity", now, "before", before)
	}
	for _, i := range d.instances {
		if i.attachments != nil && !slices.Equal(d.networks.on(i, i), i.Interfaces) {
			d.replace(i)
		}
	}
}
