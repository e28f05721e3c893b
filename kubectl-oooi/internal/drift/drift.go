// Package drift compares a site's deployed objects with the objects that 'kubectl oooi setup' would apply. The API server computes
// the differences by server-side apply as a dry run, as for 'kubectl oooi diff'.
package drift

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// Values of Difference.Change: setup would create, change or delete the object. The Infra or ProxyServer is outdated if an older
// version of the plugin deployed it. Then, other differences are reported only if another client made the change.
const (
	Missing  = "missing"
	Changed  = "changed"
	Extra    = "extra"
	Outdated = "outdated"
)

// Difference is the difference of one object.
type Difference struct {
	Object model.Ref `json:"object"`
	Change string    `json:"change"`
	// Component is the component of the object; empty for an object that all sites share, an Infra and a ProxyServer.
	Component string `json:"component,omitempty"`
	// Fields are the fields that setup would change, sorted. For an outdated Infra, the only field is the plugin's version.
	Fields []Field `json:"fields,omitempty"`
}

// Field is a field that setup would change.
type Field struct {
	// Path is the field in the notation of managed fields, such as .spec.template.spec.containers[name="dns"].image.
	Path string `json:"path"`
	// Found is the present value, and Rendered the value that setup would apply, shortened; empty if the field is absent, and "(hidden)" if
	// the value may be secret. For texts, they are the first line that differs.
	Found    string `json:"found,omitempty"`
	Rendered string `json:"rendered,omitempty"`
	// Manager is the field manager that set the present value, and when: "NAME at TIME". It is empty if no client manages the field.
	Manager string `json:"manager,omitempty"`
}

// RefusedError is why setup would reject the site, such as an invalid Infra, or an inventory that cannot be decoded.
type RefusedError struct{ error }

// Unwrap returns setup's error.
func (e *RefusedError) Unwrap() error { return e.error }

// Read compares a site. It sends at most 8 requests at a time, and changes nothing. It ignores fields
// that other clients have added. It returns a RefusedError if setup would reject the site, and another error if the API server does not
// respond, if a permission is missing, which the error names, or while setup or teardown of the site runs.
func Read(ctx context.Context, c client.Client, s *site.Site) ([]Difference, error) {
	key := types.NamespacedName{Namespace: s.Infra.Namespace, Name: s.Infra.Name}
	applier := &setup.Applier{Client: c, Out: io.Discard, Force: true, Adopt: true}
	if err := applier.CheckIdle(ctx, key); err != nil {
		return nil, refusal(ctx, err)
	}
	known, err := setup.Deployed(s)
	if err != nil {
		return nil, refusal(ctx, err)
	}
	plan, err := applier.Plan(ctx, known, nil, func(string) error { return nil })
	if err != nil {
		return nil, refusal(ctx, err)
	}
	changes, err := applier.Preview(ctx, plan)
	if err != nil {
		return nil, refusal(ctx, err)
	}
	var list []Difference
	outdated := setup.Older(applier.Previous, applier.Remember.Version)
	if outdated {
		version := Field{Path: "version", Found: applier.Previous, Rendered: applier.Remember.Version}
		list = append(list, Difference{Object: s.Ref(), Change: Outdated, Fields: []Field{version}})
	}
	for _, c := range changes {
		d := differenceOf(c, outdated || c.Shared)
		if d.Change == Changed || d.Change != "" && !outdated { // versions render different objects
			list = append(list, d)
		}
	}
	live, applied, since := applier.LastApplied(plan, changes)
	if live == nil || applied == nil || outdated || len(list) == 0 { // an edit that changes no object needs no setup
		return list, nil
	}
	if fields := editedFields(live, applied, since); fields != nil { // before its consequences
		list = slices.Insert(list, 0, Difference{Object: s.Ref(), Change: Changed, Fields: fields})
	}
	return list, nil
}

// refusal returns an error as a RefusedError, unless a request failed. Setup rejects objects that the API server finds invalid.
func refusal(ctx context.Context, err error) error {
	isResponse, isNetwork := errors.As(err, new(apierrors.APIStatus)), errors.As(err, new(net.Error))
	if ctx.Err() != nil || isResponse && !apierrors.IsInvalid(err) || isNetwork || errors.Is(err, io.EOF) ||
		errors.Is(err, read.ErrNotServed) || errors.Is(err, setup.ErrConcurrent) {
		return err
	}
	return &RefusedError{err}
}

// differenceOf returns the difference of an object; without a Change if there is none. With foreignOnly, it ignores fields that
// only setup manages, because setup of another version or site has applied them.
func differenceOf(change *setup.ObjectChange, foreignOnly bool) Difference {
	d := Difference{Object: model.Ref{Kind: change.Kind, Namespace: change.Namespace, Name: change.Name}}
	u := change.Merged
	switch change.Verb {
	case setup.Created:
		d.Change = Missing
	case setup.Deleted:
		d.Change, u = Extra, change.Live
	case setup.Configured:
		if d.Fields = fieldsOf(change.Live, change.Merged, foreignOnly); d.Fields != nil {
			d.Change = Changed
		}
	}
	if !change.Shared {
		d.Component = u.GetLabels()[v1alpha1.LabelComponent]
	}
	return d
}
