package setup

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ClusterDNS configures the cluster DNS to forward the hosted cluster's domains to the Infra's DNS, so that pods of the
// management cluster resolve them. It changes only the entry of this Infra.
type ClusterDNS struct {
	Client client.Client
	Infra  types.NamespacedName
}

var operatorDNS = schema.GroupVersionKind{Group: "operator.openshift.io", Version: "v1", Kind: "DNS"}

// coreConfig is the ConfigMap with the Corefile of clusters that kubeadm and similar tools install.
var coreConfig = client.ObjectKey{Namespace: "kube-system", Name: "coredns"}

// Change is the result of an update of the cluster DNS.
type Change struct {
	Changed bool
	// NeedsRestart is set if the Corefile lacks the plugin reload, so that CoreDNS reads the change only when it
	// restarts.
	NeedsRestart bool
}

// Report writes one line to w: "the cluster's DNS", the predicate does, such as "forwards example.com", and the command
// that restarts CoreDNS if NeedsRestart is set. It writes nothing if Changed is not set.
func (c Change) Report(w io.Writer, does string) error {
	if !c.Changed {
		return nil
	}
	if c.NeedsRestart {
		does += fmt.Sprintf(", once its pods are restarted: the Corefile in ConfigMap %s has no plugin reload; run 'kubectl -n %s rollout restart deployment %s'",
			coreConfig, coreConfig.Namespace, coreConfig.Name)
	}
	_, err := fmt.Fprintln(w, "the cluster's DNS", does)
	return err
}

// entry returns the name of the Infra's server in dns.operator/default of OpenShift.
func (d *ClusterDNS) entry() string { return "oooi-" + d.Infra.Namespace + "-" + d.Infra.Name }

// Forward adds or updates the Infra's entry, so that the cluster DNS forwards domains to addresses. It returns an error
// if domains or addresses is empty, or if the configuration of the cluster DNS does not exist or cannot be updated.
func (d *ClusterDNS) Forward(ctx context.Context, domains, addresses []string) (Change, error) {
	if len(domains) == 0 || len(addresses) == 0 {
		return Change{}, fmt.Errorf("the cluster's DNS cannot forward to the DNS of Infra %s yet: its domains or its cluster IPs are unknown; run setup again", d.Infra)
	}
	return d.edit(ctx, func(servers []any) []any {
		server := map[string]any{
			"name": d.entry(), "zones": toAnySlice(domains),
			"forwardPlugin": map[string]any{"upstreams": toAnySlice(addresses), "policy": "Random"},
		}
		at := slices.IndexFunc(servers, d.ours)
		if at < 0 {
			return append(servers, server)
		}
		old, _ := servers[at].(map[string]any)
		for key, value := range server {
			if key != "forwardPlugin" {
				old[key] = value
				continue
			}
			plugin, _ := old[key].(map[string]any) // keep fields that an administrator added
			if plugin == nil {
				plugin = map[string]any{"policy": "Random"}
			}
			plugin["upstreams"] = toAnySlice(addresses)
			old[key] = plugin
		}
		return servers
	}, block(d.Infra, domains, addresses))
}

// Withdraw removes the Infra's entry. It changes nothing, and returns no error, if that entry or the configuration of
// the cluster DNS does not exist.
func (d *ClusterDNS) Withdraw(ctx context.Context) (Change, error) {
	return d.edit(ctx, func(servers []any) []any { return slices.DeleteFunc(servers, d.ours) }, "")
}

func (d *ClusterDNS) ours(server any) bool {
	s, ok := server.(map[string]any)
	return ok && s["name"] == d.entry()
}

// edit changes dns.operator/default of OpenShift, or the Corefile on other clusters. It updates the object that it
// has read, because the list of servers is atomic: server-side apply would delete the servers of others.
func (d *ClusterDNS) edit(ctx context.Context, servers func([]any) []any, corefile string) (change Change, err error) {
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(operatorDNS)
		err := d.Client.Get(ctx, client.ObjectKey{Name: "default"}, u)
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			change, err = d.editCorefile(ctx, corefile)
			return err
		}
		if err != nil {
			return fmt.Errorf("reading dns.operator/default: %w", err)
		}
		before := u.DeepCopy()
		list, _, err := unstructured.NestedSlice(u.Object, "spec", "servers")
		if err != nil {
			return fmt.Errorf("reading spec.servers of dns.operator/default: %w", err)
		}
		if list = servers(list); len(list) == 0 {
			unstructured.RemoveNestedField(u.Object, "spec", "servers")
		} else if err := unstructured.SetNestedSlice(u.Object, list, "spec", "servers"); err != nil {
			return fmt.Errorf("setting spec.servers of dns.operator/default: %w", err)
		}
		change.Changed, err = d.update(ctx, before, u)
		return err
	})
	return change, err
}

// update updates an object if it differs from before. It returns a conflict if the object has changed since it was
// read.
func (d *ClusterDNS) update(ctx context.Context, before, now client.Object) (bool, error) {
	if fmt.Sprint(before) == fmt.Sprint(now) {
		return false, nil
	}
	if err := d.Client.Update(ctx, now, client.FieldOwner(Manager)); err != nil {
		return false, fmt.Errorf("updating the cluster's DNS: %w", err)
	}
	return true, nil
}

// editCorefile replaces the Infra's server block at the end of the Corefile, or removes it if block is empty.
func (d *ClusterDNS) editCorefile(ctx context.Context, block string) (Change, error) {
	m := &corev1.ConfigMap{}
	if err := d.Client.Get(ctx, coreConfig, m); err != nil {
		if apierrors.IsNotFound(err) && block == "" {
			return Change{}, nil
		}
		return Change{}, fmt.Errorf("reading the Corefile of the cluster's DNS: %w; if the Corefile is elsewhere, edit it manually", err)
	}
	before := m.DeepCopy()
	text, ok := m.Data["Corefile"]
	if !ok && block == "" {
		return Change{}, nil
	}
	if !ok {
		return Change{}, fmt.Errorf("ConfigMap %s has no key Corefile; edit the Corefile of the cluster's DNS manually", coreConfig)
	}
	begin, end := marks(d.Infra)
	if at := strings.Index(text, begin); at >= 0 {
		rest := strings.Index(text[at:], end)
		if rest < 0 {
			return Change{}, fmt.Errorf("the Corefile in ConfigMap %s has the line %q, but not the line %q after it; correct it manually", coreConfig, strings.TrimSpace(begin), strings.TrimSpace(end))
		}
		text = text[:at] + text[at+rest+len(end):]
	}
	if block != "" {
		text = strings.TrimRight(text, "\n") + "\n" + block
	}
	m.Data["Corefile"] = text
	made, err := d.update(ctx, before, m)
	return Change{Changed: made, NeedsRestart: made && !reloads(text)}, err
}

// reloads reports whether a Corefile has the plugin reload.
func reloads(corefile string) bool {
	for line := range strings.Lines(corefile) {
		if words := strings.Fields(line); len(words) > 0 && words[0] == "reload" {
			return true
		}
	}
	return false
}

// marks returns the comments that enclose the Infra's server block.
func marks(infra types.NamespacedName) (begin, end string) {
	return fmt.Sprintf("# begin of oooi %s\n", infra), fmt.Sprintf("# end of oooi %s\n", infra)
}

// block returns the server block that forwards the domains to the Infra's DNS, with its marks.
func block(infra types.NamespacedName, domains, addresses []string) string {
	begin, end := marks(infra)
	return fmt.Sprintf("%s%s {\n    errors\n    cache 30\n    forward . %s\n}\n%s", begin, strings.Join(domains, " "), strings.Join(addresses, " "), end)
}

// Addresses returns the cluster IPs of the Infra's DNS Service. It returns an error if it does not exist, cannot be
// read, or has none, as a headless Service.
func (d *ClusterDNS) Addresses(ctx context.Context) ([]string, error) {
	s := &corev1.Service{}
	key := client.ObjectKey{Namespace: d.Infra.Namespace, Name: d.Infra.Name + "-dns"}
	if err := d.Client.Get(ctx, key, s); err != nil {
		return nil, fmt.Errorf("reading Service %s: %w", key, err)
	}
	addresses := slices.DeleteFunc(slices.Clone(s.Spec.ClusterIPs), func(a string) bool { return net.ParseIP(a) == nil })
	if len(addresses) == 0 {
		return nil, fmt.Errorf("Service %s has no cluster IP; run setup again", key) //nolint:staticcheck // a kind begins with a capital
	}
	return addresses, nil
}

func toAnySlice(list []string) []any {
	all := make([]any, len(list))
	for i, s := range list {
		all[i] = s
	}
	return all
}

// ClusterResolvers returns the names that the Service of the cluster DNS usually has on Kubernetes and OpenShift. The
// cluster IPs of these Services must not be upstream resolvers of an Infra.
func ClusterResolvers() []types.NamespacedName {
	return []types.NamespacedName{
		{Namespace: "kube-system", Name: "kube-dns"}, {Namespace: "kube-system", Name: "coredns"}, {Namespace: "openshift-dns", Name: "dns-default"},
	}
}

// resolverLoop returns an error if an upstream resolver is the cluster DNS, which may forward to the Infra's DNS:
// unknown names would loop.
func (d *discovery) resolverLoop() error {
	for _, key := range ClusterResolvers() {
		s := &corev1.Service{}
		if err := d.Client.Get(d.ctx, key, s); err != nil {
			if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
				continue
			}
			return fmt.Errorf("reading Service %s: %w", key, err)
		}
		for _, upstream := range d.known.Infra.Spec.NetworkConfig.DNSServers {
			if slices.Contains(s.Spec.ClusterIPs, upstream) {
				return fmt.Errorf("spec.networkConfig.dnsServers: %s is the cluster's own DNS (Service %s), which may forward to the DNS of the Infra, so that queries for unknown names would loop; specify other upstream resolvers, or none to use those of the node", upstream, key)
			}
		}
	}
	return nil
}
