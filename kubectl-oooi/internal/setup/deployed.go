package setup

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/documents"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/release"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// DefaultImages returns the images of the release. A plugin that 'make release' did not build has no image of oooi.
func DefaultImages() render.Images {
	return render.Images{Oooi: release.Image, Envoy: release.EnvoyImage}
}

// WithImages is ResolveFlags with the images of this plugin. It returns an error if there is no image of oooi.
func WithImages(given map[string]string, before *Remembered) (*Remembered, []string, error) {
	remembered, lines := ResolveFlags(given, before, DefaultImages())
	if remembered.Image == "" {
		return nil, nil, fmt.Errorf("kubectl-oooi %s is not a release, so it has no image to deploy; specify --image (see 'make image'), or install a release", release.Version())
	}
	return remembered, lines, nil
}

// Deployed returns the input of a plan for an Infra or standalone ProxyServer as it is in the cluster, instead of its file.
// The plan keeps it.
func Deployed(ctx context.Context, c client.Client, kind schema.GroupVersionKind, key types.NamespacedName) (*Known, error) {
	u, err := (&read.Reader{Client: c}).Object(ctx, kind, key)
	if err != nil {
		return nil, err
	}
	k := &Known{Attachments: map[string]string{}, Kept: []string{kind.Kind}, AllowLoss: true}
	if err := k.add(&documents.Object{Unstructured: documents.Manifest(u)}); err != nil {
		return nil, err
	}
	if k.standalone() {
		err = k.deriveInfra()
	}
	return k, err
}

// Plan adds what Discover finds in the cluster, and makes the plan with the flags to use: those that are given, those of the
// previous setup, or the defaults. It also returns these flags. It calls show with a line for each flag that is not given and
// whose value is kept or changes.
func (k *Known) Plan(ctx context.Context, c client.Client, given map[string]string, show func(string) error) (*Plan, *Remembered, error) {
	if err := k.Discover(ctx, c); err != nil {
		return nil, nil, err
	}
	previous, err := Recall(ctx, c, k.Infra, DefaultImages())
	if err != nil {
		return nil, nil, err
	}
	remembered, lines, err := WithImages(given, previous)
	if err != nil {
		return nil, nil, err
	}
	for _, line := range lines {
		if err := show(line); err != nil {
			return nil, nil, err
		}
	}
	k.OpenShift = remembered.UsesOpenShift(k.OpenShift)
	remembered.Version = release.Version()
	if previous != nil {
		remembered.Previous = previous.Version
	}
	plan, err := Make(k, remembered.Images())
	return plan, remembered, err
}

// Plan returns a plan with the objects of the record, without those that all Infras share. It is checked like the plan of a setup
// with the Infra or ProxyServer of the record.
func (r *Record) Plan(ctx context.Context, c client.Client, infra types.NamespacedName, allowLoss bool) (*Plan, error) {
	objects, err := r.objects(infra)
	if err != nil {
		return nil, err
	}
	k := &Known{Attachments: map[string]string{}, AllowLoss: allowLoss}
	for _, o := range objects {
		if o.GetKind() == read.InfraKind.Kind || o.GetKind() == read.ProxyServerKind.Kind {
			if err := k.add(&documents.Object{Unstructured: documents.Manifest(o)}); err != nil {
				return nil, fmt.Errorf("revision %d: %w", r.Revision, err)
			}
		}
	}
	if k.Infra == nil && k.ProxyServer == nil {
		return nil, fmt.Errorf("revision %d of %s has no Infra and no ProxyServer", r.Revision, infra)
	}
	if k.standalone() {
		if err := k.deriveInfra(); err != nil {
			return nil, err
		}
	}
	if r.Flags == nil {
		return nil, fmt.Errorf("revision %d of %s was not applied by setup; run setup with its Infra instead", r.Revision, infra)
	}
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
