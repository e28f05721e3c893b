package cmd

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/page"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/release"
	"github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// Output formats with a drawing of each site.
const (
	htmlFormat    = "html"
	dotFormat     = "dot"
	mermaidFormat = "mermaid"
)

// drawnSites returns what drawings show about the subjects, in the order of the reports. Without the right to read Leases,
// it prints a warning, and no VM is drawn.
func drawnSites(ctx context.Context, r *read.Reader, of *subjects, reports []*status.Report, namespace string) ([]*page.Site, error) {
	all := &model.Objects{Infras: of.infras}
	if len(of.infras) > 0 {
		if err := r.HostedClusters(ctx, all); err != nil {
			return nil, err //nolint:wrapcheck // error of an internal package
		}
	}
	snapshot := model.Build(all, model.Options{})
	objects, err := r.Leases(ctx, namespace, leases.PoolLabel)
	if apierrors.IsForbidden(err) {
		r.Warn("VMs are not drawn: " + err.Error())
	} else if err != nil {
		return nil, err //nolint:wrapcheck // error of an internal package
	}
	byInfra := map[string][]*leases.Lease{}
	for _, o := range objects {
		if l, err := leases.Read(o, time.Now()); err == nil && l != nil { // 'leases' reports invalid ones
			key := o.Namespace + "/" + l.Infra
			byInfra[key] = append(byInfra[key], l)
		}
	}
	var sites []*page.Site
	for _, report := range reports {
		s := &page.Site{Status: report}
		if report.Metadata.Kind == "" {
			key := report.Metadata.Namespace + "/" + report.Metadata.Name
			s.Leases = byInfra[key]
			leases.Sort(s.Leases)
			if i := snapshot.Infra(key); i != nil {
				s.Cluster = i.Cluster
				if gateway := i.Gateway(); gateway.IsValid() {
					s.Gateway = gateway.String()
				}
			}
		}
		sites = append(sites, s)
	}
	return sites, nil
}

// readSites reads the sites of a namespace for drawings, or one of them.
func (c *command) readSites(ctx context.Context, namespace string, t target) ([]*page.Site, error) {
	r, err := c.reader()
	if err != nil {
		return nil, err
	}
	of, err := readSubjects(ctx, r, namespace, t)
	if err != nil {
		return nil, err
	}
	reports, err := makeReports(ctx, r, of, namespace, true)
	if err != nil {
		return nil, err
	}
	return drawnSites(ctx, r, of, reports, namespace)
}

// printSites prints drawings of sites in the output format, which is one of dot, mermaid and html.
func (c *command) printSites(f *output.Flags, sites []*page.Site) error {
	if f.Is(htmlFormat) {
		return page.HTML(c.Out, sites, release.Version(), time.Now()) //nolint:wrapcheck // error of an internal package
	}
	var graphs []*page.Graph
	for _, s := range sites {
		graphs = append(graphs, page.NewGraph(s))
	}
	if f.Is(dotFormat) {
		return page.Dot(c.Out, graphs) //nolint:wrapcheck // error of an internal package
	}
	return page.Mermaid(c.Out, graphs) //nolint:wrapcheck // error of an internal package
}
