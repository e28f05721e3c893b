package cmd

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/page"
	"github.com/densityops/oooi/kubectl-oooi/internal/registry"
	"github.com/densityops/oooi/kubectl-oooi/internal/release"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// Output formats with a drawing of each site.
const (
	htmlFormat    = "html"
	dotFormat     = "dot"
	mermaidFormat = "mermaid"
)

// readSites reads the sites of a namespace, or one of them, for drawings. If some objects cannot be read, it returns the sites without
// them, and an error. If the user cannot read Leases, it prints a warning, and no VMs are drawn.
func (c *command) readSites(ctx context.Context, namespace string, t target) ([]*page.Site, error) {
	r, err := c.reader()
	if err != nil {
		return nil, err
	}
	reports, infras, snapshot, err := readReports(ctx, r, namespace, t, true)
	if len(reports) == 0 {
		return nil, err
	}
	objects, leasesErr := r.Leases(ctx, namespace, leases.PoolLabel)
	if apierrors.IsForbidden(leasesErr) {
		r.Warn("VMs are not drawn: " + leasesErr.Error())
		leasesErr = nil
	}
	byInfra := map[string][]*leases.Lease{}
	for _, o := range objects {
		if l, err := leases.Read(o, time.Now()); err == nil && l != nil { // 'leases' reports invalid Leases
			key := o.Namespace + "/" + l.Infra
			byInfra[key] = append(byInfra[key], l)
		}
	}
	var sites []*page.Site
	for _, report := range reports {
		s := &page.Site{Status: report}
		sites = append(sites, s)
		if report.Metadata.Kind != "" {
			continue // a standalone proxy
		}
		key := report.Metadata.Namespace + "/" + report.Metadata.Name
		s.Leases = byInfra[key]
		leases.Sort(s.Leases)
		if i := snapshot.Infra(key); i != nil {
			s.Cluster = i.Cluster
		}
		s.Infra = infras[slices.IndexFunc(infras, func(i *v1alpha1.Infra) bool { return i.Namespace+"/"+i.Name == key })]
	}
	return sites, errors.Join(err, leasesErr)
}

// registriesOf returns the registries of the release image that the VMs of an Infra use; none for a standalone proxy.
func registriesOf(facts *site.Facts, infra output.Metadata) []*registry.Registry {
	s := site.New(facts, infra.Namespace+"/"+infra.Name, nil)
	if s == nil || s.Standalone != nil {
		return nil
	}
	list, _ := registry.OfSite(s)
	return list
}

// printSites prints drawings of sites in the output format, which is one of dot, mermaid and html.
func (c *command) printSites(f *output.Flags, sites []*page.Site) error {
	if f.Is(htmlFormat) {
		return page.HTML(c.Out, sites, release.Version(), time.Now())
	}
	var graphs []*page.Graph
	for _, s := range sites {
		graphs = append(graphs, page.NewGraph(s))
	}
	if f.Is(dotFormat) {
		return page.Dot(c.Out, graphs)
	}
	return page.Mermaid(c.Out, graphs)
}
