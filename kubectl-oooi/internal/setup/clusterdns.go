package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// ClusterDNS configures the cluster DNS to forward the hosted cluster's domains to the Infra's DNS, so that pods of the management
// cluster resolve them. It changes only the Infra's entry.
type ClusterDNS struct {
	Client client.Client
	// Out receives a line if the cluster DNS changes, with the command that restarts CoreDNS if its Corefile lacks the plugin
	// reload.
	Out   io.Writer
	Infra types.NamespacedName
}

var (
	operatorDNS = inventory.Entry{APIVersion: "operator.openshift.io/v1", Kind: "DNS", Name: "default"}
	// coreConfig is the ConfigMap with the Corefile of clusters that kubeadm and similar tools install.
	coreConfig = inventory.Entry{APIVersion: "v1", Kind: "ConfigMap", Namespace: "kube-system", Name: "coredns"}
)

// Forward adds or updates the Infra's entry, so that the cluster DNS forwards domains to addresses, or removes it without domains.
// It omits domains of other entries, because CoreDNS does not start with duplicates: entries of another Infra of the hosted cluster, or
// of an administrator.
// It edits OpenShift's dns.operator/default, or the Corefile on other clusters. It uses update, because the list of servers is atomic:
// server-side apply would delete other servers.
func (d *ClusterDNS) Forward(ctx context.Context, domains, addresses []string) error {
	var changed *unstructured.Unstructured
	wanted := domains
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		change := d.editServers
		u, err := current(ctx, d.Client, operatorDNS.Object())
		if err == nil && u == nil {
			change = d.editCorefile
			u, err = current(ctx, d.Client, coreConfig.Object())
		}
		switch {
		case err != nil || u == nil && len(domains) == 0:
			return err
		case u == nil:
			return fmt.Errorf("%s with the Corefile of the cluster's DNS does not exist; if the Corefile is elsewhere, edit it manually", coreConfig)
		}
		before := u.DeepCopy()
		domains, err = d.free(u, wanted)
		if err == nil {
			err = change(u, domains, addresses)
		}
		if err != nil {
			return fmt.Errorf("changing %s: %w", inventory.Of(u), err)
		}
		if equality.Semantic.DeepEqual(before, u) {
			return nil
		}
		if err := d.Client.Update(ctx, u, client.FieldOwner(Manager)); err != nil {
			return fmt.Errorf("updating the cluster's DNS: %w", err)
		}
		changed = u
		return nil
	})
	if err == nil && len(domains) < len(wanted) {
		other := slices.DeleteFunc(slices.Clone(wanted), func(domain string) bool { return slices.Contains(domains, domain) })
		_, err = fmt.Fprintf(d.Out, "the cluster's DNS has another server for %s, which setup does not change; unless that server forwards to the DNS "+
			"of the hosted cluster's Infra, let it forward to %s\n", strings.Join(other, ", "), strings.Join(addresses, ", "))
	}
	if err != nil || changed == nil {
		return err
	}
	effect := "no longer forwards to oooi"
	if len(domains) > 0 {
		effect = "forwards " + strings.Join(domains, ", ")
	}
	if corefile, ok, _ := unstructured.NestedString(changed.Object, "data", "Corefile"); ok && !reload.MatchString(corefile) {
		effect += fmt.Sprintf(", once its pods are restarted: the Corefile in %s lacks plugin reload; run 'kubectl -n %s rollout restart deployment %s'",
			coreConfig, coreConfig.Namespace, coreConfig.Name)
	}
	_, err = fmt.Fprintln(d.Out, "the cluster's DNS", effect)
	return err
}

// free returns the domains for which the cluster DNS lacks an entry, apart from the Infra's.
func (d *ClusterDNS) free(u *unstructured.Unstructured, domains []string) ([]string, error) {
	others := slices.DeleteFunc(read.OperatorForwarders(u), func(f read.Forwarder) bool { return f.Name == d.serverName() })
	if corefile, ok, _ := unstructured.NestedString(u.Object, "data", "Corefile"); ok {
		before, after, err := d.cut(corefile)
		if err != nil {
			return nil, err
		}
		others = read.CorefileForwarders(before + after)
	}
	return slices.DeleteFunc(slices.Clone(domains), func(domain string) bool {
		return slices.ContainsFunc(others, func(f read.Forwarder) bool { return slices.Contains(f.Zones, domain) })
	}), nil
}

// reload matches the plugin reload in a Corefile.
var reload = regexp.MustCompile(`(?m)^\s*reload(\s|$)`)

// serverName returns the name of the Infra's server in dns.operator.
func (d *ClusterDNS) serverName() string { return "oooi-" + d.Infra.Namespace + "-" + d.Infra.Name }

// editServers changes the Infra's server in dns.operator/default. It keeps fields that an administrator added to it.
func (d *ClusterDNS) editServers(u *unstructured.Unstructured, domains, addresses []string) error {
	servers, _, err := unstructured.NestedSlice(u.Object, "spec", "servers")
	if err != nil {
		return err
	}
	name := d.serverName()
	isInfraServer := func(s any) bool { server, _ := s.(map[string]any); return server["name"] == name }
	if len(domains) == 0 {
		servers = slices.DeleteFunc(servers, isInfraServer)
	} else {
		at := slices.IndexFunc(servers, isInfraServer)
		if at < 0 {
			at, servers = len(servers), append(servers, map[string]any{"name": name, "forwardPlugin": map[string]any{"policy": "Random"}})
		}
		server, _ := servers[at].(map[string]any)
		err = errors.Join(unstructured.SetNestedStringSlice(server, domains, "zones"),
			unstructured.SetNestedStringSlice(server, addresses, "forwardPlugin", "upstreams"))
	}
	if len(servers) == 0 {
		unstructured.RemoveNestedField(u.Object, "spec", "servers")
		return err
	}
	return errors.Join(err, unstructured.SetNestedSlice(u.Object, servers, "spec", "servers"))
}

// editCorefile replaces the Infra's server block, between two comments at the end of the Corefile, or removes it.
func (d *ClusterDNS) editCorefile(u *unstructured.Unstructured, domains, addresses []string) error {
	corefile, ok, err := unstructured.NestedString(u.Object, "data", "Corefile")
	switch {
	case err != nil || !ok && len(domains) == 0:
		return err
	case !ok:
		return errors.New("key Corefile is missing; edit the Corefile of the cluster's DNS manually")
	}
	before, after, err := d.cut(corefile)
	if err != nil {
		return err
	}
	corefile = before + after
	if len(domains) > 0 {
		corefile = fmt.Sprintf("%s\n%s%s {\n    errors\n    cache 30\n    forward . %s\n}\n%s",
			strings.TrimRight(corefile, "\n"), d.comment("begin"), strings.Join(domains, " "), strings.Join(addresses, " "), d.comment("end"))
	}
	return unstructured.SetNestedField(u.Object, corefile, "data", "Corefile")
}

// comment returns the line at the begin or end of the Infra's server block.
func (d *ClusterDNS) comment(what string) string {
	return fmt.Sprintf("# %s of oooi %s\n", what, d.Infra)
}

// cut returns the parts of a Corefile before and after the Infra's server block.
func (d *ClusterDNS) cut(corefile string) (before, after string, err error) {
	before, rest, found := strings.Cut(corefile, d.comment("begin"))
	if !found {
		return corefile, "", nil
	}
	_, after, ended := strings.Cut(rest, d.comment("end"))
	if !ended {
		return "", "", fmt.Errorf("the Corefile contains line %q, but line %q after it is missing; correct it manually",
			strings.TrimSpace(d.comment("begin")), strings.TrimSpace(d.comment("end")))
	}
	return before, after, nil
}

// Addresses returns the cluster IPs of the Infra's DNS Service. It returns an error if the Service does not exist, cannot be read, or is
// headless.
func (d *ClusterDNS) Addresses(ctx context.Context) ([]string, error) {
	s := &corev1.Service{}
	key := client.ObjectKey{Namespace: d.Infra.Namespace, Name: d.Infra.Name + "-dns"}
	if err := d.Client.Get(ctx, key, s); err != nil {
		return nil, fmt.Errorf("reading Service %s: %w", key, err)
	}
	if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone {
		return nil, fmt.Errorf("Service %s has no cluster IP; run setup again", key) //nolint:staticcheck // a kind begins with a capital
	}
	return s.Spec.ClusterIPs, nil
}

// ClusterResolvers returns the usual names of the cluster DNS Service on Kubernetes and OpenShift. Cluster IPs of these Services must not
// be upstream resolvers of an Infra.
func ClusterResolvers() []types.NamespacedName {
	return []types.NamespacedName{
		{Namespace: "kube-system", Name: "kube-dns"}, {Namespace: "kube-system", Name: "coredns"}, {Namespace: "openshift-dns", Name: "dns-default"},
	}
}
