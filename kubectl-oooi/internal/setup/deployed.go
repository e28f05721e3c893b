package setup

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/documents"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/release"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// DefaultImages returns the images of the release. oooi's image is empty unless 'make release' built the plugin.
func DefaultImages() render.Images {
	return render.Images{Oooi: release.Image, Envoy: release.EnvoyImage}
}

// WithImages is ResolveFlags with the images of this plugin. It returns an error if oooi's image is unknown.
func WithImages(given map[string]string, before *Remembered) (*Remembered, []string, error) {
	remembered, lines := ResolveFlags(given, before, DefaultImages())
	if remembered.Image == "" {
		return nil, nil, fmt.Errorf("kubectl-oooi %s is not a release and has no default image; specify --image (see 'make image'), or install a "+
			"release", release.Version())
	}
	return remembered, lines, nil
}

// knownFrom returns the input of a plan with the Infra or ProxyServer in objects instead of files. It allows losses.
func knownFrom(objects ...*unstructured.Unstructured) (*Known, error) {
	k := newKnown()
	k.AllowLoss = true
	for _, o := range objects {
		if o.GetKind() == read.InfraKind.Kind || o.GetKind() == read.ProxyServerKind.Kind {
			if err := k.add(&documents.Object{Unstructured: documents.Manifest(o)}); err != nil {
				return nil, err
			}
		}
	}
	if k.Infra == nil && k.ProxyServer == nil {
		return nil, errors.New("no Infra or ProxyServer found")
	}
	if k.standalone() {
		if err := k.deriveInfra(); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// Deployed returns the input of a plan for a deployed site instead of a file. The plan does not change the Infra or standalone
// ProxyServer. Discover reads only data that the site's facts lack.
func Deployed(s *site.Site) (*Known, error) {
	ref := s.Ref()
	kind := site.Infras
	if s.Standalone != nil {
		kind = site.ProxyServers
	}
	k, err := knownFrom(s.Facts.Get(kind, ref.Namespace, ref.Name))
	if err == nil {
		k.Kept, k.live = []string{kind.Kind}, s.Facts
	}
	return k, err
}

// Plan calls Discover, and makes the plan with given flags, flags of the previous setup, or defaults. It calls show with a line for an
// Infra that flags describe and the cluster completes, and for each flag that is not given and whose value is kept or changes.
func (a *Applier) Plan(ctx context.Context, k *Known, given map[string]string, show func(string) error) (*Plan, error) {
	if err := k.Discover(ctx, a.Client); err != nil {
		return nil, err
	}
	if err := a.readHistory(ctx, k.Key()); err != nil {
		return nil, err
	}
	previous, err := a.history.recall(ctx, k.Infra)
	if err != nil {
		return nil, err
	}
	var lines []string
	if a.Remember, lines, err = WithImages(given, previous); err != nil {
		return nil, err
	}
	if k.completed != "" {
		lines = append([]string{k.completed}, lines...)
	}
	for _, line := range lines {
		if err := show(line); err != nil {
			return nil, err
		}
	}
	a.Remember.Version = release.Version()
	if previous != nil && previous.Source == "" {
		a.Previous = previous.Version
	}
	k.OpenShift = a.Remember.UsesOpenShift(k.OpenShift)
	p, err := Make(k, a.Remember.Images())
	if err == nil {
		p.stampVersion(a.Remember.Version)
	}
	return p, err
}

// Plan returns a plan with the objects of the record, without objects that all Infras share. The checks are the same as for a setup
// with the Infra or ProxyServer of the record.
func (r *Record) Plan(ctx context.Context, c client.Client, allowLoss bool) (*Plan, error) {
	objects, err := r.objects()
	if err != nil {
		return nil, err
	}
	k, err := knownFrom(objects...)
	if err == nil && r.Flags == nil {
		err = errors.New("it was not applied by setup; run setup with its Infra instead")
	}
	if err != nil {
		return nil, fmt.Errorf("revision %d of %s: %w", r.Revision, r.infra, err)
	}
	k.AllowLoss = allowLoss
	if err := k.Discover(ctx, c); err != nil {
		return nil, err
	}
	k.OpenShift = r.Flags.UsesOpenShift(k.OpenShift)
	p, err := Make(k, r.Flags.Images())
	if err != nil {
		return nil, err
	}
	p.Objects = objects
	return p, nil
}
