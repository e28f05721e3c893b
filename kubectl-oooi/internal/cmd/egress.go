package cmd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/audit"
	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/kubectl-oooi/internal/egress"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// hostsFormat is the output format of an allow-list.
const hostsFormat = "hosts"

func (c *command) egress() *cobra.Command {
	f := output.List(read.InfraKind).With(hostsFormat)
	cmd := c.takesTarget(&cobra.Command{
		Use:   "egress INFRA",
		Short: "Show the names outside of the cluster that VMs use",
		Long: "Show names outside of the cluster that an Infra's VMs used or failed to resolve in the last hour, from the proxy and DNS\n" +
			"pods. Connections count when they end. With -o hosts, print the names as a list to review for spec.egress.",
		Example: "  # Show the VMs that used each name, and why connections failed\n  kubectl oooi egress demo -o wide\n\n" +
			"  # Print an allow-list to review\n  kubectl oooi egress demo -o hosts",
	}, func(ctx context.Context, t target) error { return c.runEgress(ctx, f, t.name) }, infraTarget)
	cmd.Args = cobra.ExactArgs(1)
	f.Add(cmd)
	return cmd
}

func (c *command) runEgress(ctx context.Context, f *output.Flags, name string) error {
	if err := f.Check(); err != nil {
		return err
	}
	to, err := c.connect()
	if err != nil {
		return err
	}
	r, namespace := &read.Reader{Client: to.client}, c.namespace()
	infra, err := r.Infra(ctx, namespace, name)
	if err != nil {
		return err
	}
	proxies, err := r.ProxyServers(ctx, namespace)
	if err != nil {
		return err
	}
	proxies = slices.DeleteFunc(proxies, func(p *v1alpha1.ProxyServer) bool { return p.Spec.InfraRef == nil || p.Spec.InfraRef.Name != name })
	pages, missing := c.audits(ctx, to, infra, proxies)
	if len(pages) == 0 && missing != nil {
		return missing
	}
	if len(pages) == 0 {
		const none = "no DNS or proxy pods of Infra %s/%s found; 'kubectl oooi status %s' shows its components"
		return fmt.Errorf(none, namespace, name, name)
	}
	vms, err := vmsByAddress(ctx, r, namespace, name)
	if err != nil {
		c.warning(fmt.Sprintf("cannot read VMs' names: %v", err))
	}
	report := egress.NewReport(output.Metadata{Name: name, Namespace: namespace}, pages, egress.Hosts(infra, proxies), vms)
	if f.Is(hostsFormat) {
		_, err := fmt.Fprint(c.Out, report.AllowList())
		return errors.Join(err, missing)
	}
	table := output.NewTable(egress.Columns(), report.Names, f.Wide())
	if f.Text() && len(table.Rows) == 0 {
		fmt.Fprintf(c.ErrOut, "No VM used or queried a name outside of the cluster since %s.\n", report.Since.UTC().Format(time.RFC3339))
		return missing
	}
	return errors.Join(printList(c, f, namespace, report.Kind, []*egress.Report{report}, table), missing)
}

// audits returns the audit reports of an Infra's DNS and proxy pods, given its ProxyServers. If some pods do not respond, it returns the
// other pods' reports, and an error.
func (c *command) audits(ctx context.Context, to *connection, infra *v1alpha1.Infra, proxies []*v1alpha1.ProxyServer) ([]*audit.Report, error) {
	clients, err := site.NewClients(to.config)
	if err != nil {
		return nil, err
	}
	r := &read.Reader{Client: to.client}
	pods, err := r.Pods(ctx, infra.Namespace)
	if err != nil {
		return nil, err
	}
	pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return p.Labels[v1alpha1.LabelInfra] != infra.Name })
	more, err := r.ProxyPods(ctx, infra.Namespace)
	if err != nil {
		return nil, err
	}
	for _, p := range more {
		own := func(s *v1alpha1.ProxyServer) bool { return s.Name == p.Labels[v1alpha1.LabelProxyServer] }
		if p.Labels[v1alpha1.LabelInfra] == "" && slices.ContainsFunc(proxies, own) { // other pods are listed by the Infra's label
			pods = append(pods, p)
		}
	}
	var group errgroup.Group
	group.SetLimit(envoyConcurrency)
	var mu sync.Mutex
	var pages []*audit.Report
	var failures []error
	for _, p := range pods {
		for i := range p.Spec.Containers {
			container := p.Spec.Containers[i].Name
			if container != "coredns" && container != xdsdContainer {
				continue
			}
			group.Go(func() error {
				page := &audit.Report{}
				err := site.GetJSON(ctx, clients, p.Namespace, p.Name, container, audit.Path, page)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					pages = append(pages, page)
				} else {
					failures = append(failures, fmt.Errorf("pod %s: %w", p.Name, err))
				}
				return nil // read the other pods
			})
		}
	}
	_ = group.Wait() // the functions return no errors
	return pages, errors.Join(failures...)
}

// vmsByAddress returns the names of the VMs with leases of an Infra by address.
func vmsByAddress(ctx context.Context, r *read.Reader, namespace, infra string) (map[netip.Addr]string, error) {
	all, err := r.Leases(ctx, namespace, leases.PoolLabel)
	if apierrors.IsForbidden(err) {
		return nil, err
	}
	vms := map[netip.Addr]string{}
	for _, o := range all {
		if l, err := leases.Read(o, time.Now()); err == nil && l != nil && l.Infra == infra && l.State == dhcplease.StateBound { // 'leases' reports others
			vms[l.Address] = l.VM
		}
	}
	return vms, err
}
