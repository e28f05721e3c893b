package setup

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// holder is what has an address on the VLAN before a change.
type holder struct {
	sets []string // StatefulSets among which the address moves, or the one that has it
	what string   // for messages
}

// holders reads which of the Infra's workloads have which address now: by the Infra as it is in the cluster,
// and by what Multus has given its pods, which may be those of an Infra before that.
func (d *discovery) holders() error {
	if d.known.alone() {
		return nil
	}
	infra := d.known.Infra
	r := &read.Reader{Client: d.client}
	switch before, err := r.Infra(d.ctx, infra.Namespace, infra.Name); {
	case apierrors.IsNotFound(err) || errors.Is(err, read.ErrNotServed) || apierrors.IsForbidden(err):
	case err != nil:
		return err
	default:
		before.Default()
		for address, sets := range render.Addresses(before) {
			d.known.holders = append(d.known.holders, held{address, holder{sets, "StatefulSet " + strings.Join(sets, " or ")}})
		}
	}
	var pods corev1.PodList
	err := d.client.List(d.ctx, &pods, client.InNamespace(infra.Namespace), client.MatchingLabels{v1alpha1.LabelInfra: infra.Name})
	if err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("listing the pods of Infra %s: %w", keyOf(infra), err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		set := pod.Labels["app.kubernetes.io/instance"]
		if set == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		addresses, err := read.PodAddresses(pod)
		if err != nil {
			continue // it has none yet
		}
		for _, address := range addresses {
			d.known.holders = append(d.known.holders, held{address, holder{[]string{set}, "pod " + pod.Name}})
		}
	}
	return nil
}

// held is an address with its holder.
type held struct {
	address netip.Addr
	by      holder
}

// moved returns an error for each address that goes from one workload to another while both stay. A pod
// starts with it before the other has ended: two pods would have it.
func (k *Known) moved() []error {
	if k.alone() {
		return nil
	}
	after := render.Addresses(k.Infra)
	stays := func(set string) bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(after)), func(sets []string) bool { return slices.Contains(sets, set) })
	}
	var against []string
	for _, h := range k.holders {
		sets, wanted := after[h.address]
		if wanted && !slices.ContainsFunc(h.by.sets, func(set string) bool { return slices.Contains(sets, set) }) && slices.ContainsFunc(h.by.sets, stays) {
			against = append(against, fmt.Sprintf("%s uses %s until it is replaced, and StatefulSet %s would start with the same address before that; assign a free address to %s, run setup, then assign this one to %s",
				h.by.what, h.address, strings.Join(sets, " or "), strings.Join(h.by.sets, " or "), strings.Join(sets, " or ")))
		}
	}
	slices.Sort(against)
	var errs []error
	for _, text := range slices.Compact(against) {
		errs = append(errs, errors.New("spec.infraComponents: "+text))
	}
	return errs
}

// loneProxies are other ProxyServers without an Infra, which may be on the same VLAN. Who may not list them
// in all namespaces sees those of the Infra's.
func (d *discovery) loneProxies() error {
	servers, err := d.list(read.ProxyServerKind, "")
	if apierrors.IsForbidden(err) {
		servers, err = d.list(read.ProxyServerKind, d.known.Infra.Namespace)
	}
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	for _, u := range servers {
		server, ok := objects.Decode[v1alpha1.ProxyServer](u).(*v1alpha1.ProxyServer)
		if own := d.known.ProxyServer; ok && server.Spec.InfraRef == nil && (own == nil || server.Namespace != own.Namespace || server.Name != own.Name) {
			d.known.Objects.ProxyServers = append(d.known.Objects.ProxyServers, server)
		}
	}
	return nil
}

// InNamespace refuses files whose Infra and ProxyServer are not in one namespace, or not in that of the flag
// --namespace; empty for no flag.
func (k *Known) InNamespace(flag string) error {
	namespace := ""
	for _, o := range []*unstructured.Unstructured{k.Written, k.WrittenProxyServer} {
		switch {
		case o == nil:
		case flag != "" && o.GetNamespace() != flag:
			return fmt.Errorf("the namespace from the provided object %q does not match the namespace %q: %s %s. You must pass '--namespace=%s' to perform this operation", o.GetNamespace(), flag, o.GetKind(), o.GetName(), o.GetNamespace())
		case namespace != "" && o.GetNamespace() != namespace:
			return fmt.Errorf("%s %s is in the namespace %s, and the Infra in %s: a ProxyServer must be in the namespace of its Infra", o.GetKind(), o.GetName(), o.GetNamespace(), namespace)
		}
		if o != nil {
			namespace = o.GetNamespace()
		}
	}
	return nil
}

// unknownHostedCluster refuses an Infra whose hosted cluster is not there, unless the Infra itself says which
// names to serve meanwhile. Where the reference has the namespace that it has by default, one of that name in
// the Infra's own namespace is what its author meant.
func (k *Known) unknownHostedCluster(snapshot *model.Snapshot, problem model.Problem) error {
	named := k.named()
	if named.Name == "" {
		return nil
	}
	meant := slices.ContainsFunc(k.Objects.HostedClusters, func(hc *objects.HostedCluster) bool {
		return named.Namespace == v1alpha1.DefaultHostedClusterNamespace && hc.Namespace == k.Infra.Namespace && hc.Name == named.Name
	})
	if i := snapshot.Infra(keyOf(k.Infra)); !meant && i != nil && i.Cluster != nil {
		return nil
	}
	remedy := ""
	if !meant {
		remedy = ": correct spec.hostedClusterRef, create the HostedCluster first, or set spec.infraComponents.dns.clusterName and baseDomain to serve its names before it exists"
	}
	return fmt.Errorf("%s: %s%s", problem.Reason, problem.Message, remedy)
}
