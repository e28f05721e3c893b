package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
)

// journal is what a component was before setup changed it. It is in the cluster while the
// component changes, so that the next setup can restore it after this one was killed.
type journal struct {
	Component string `json:"component"`
	// Before are the objects as they were, in the order in which they are applied.
	Before []map[string]any `json:"before,omitempty"`
	// Absent are those that did not exist.
	Absent []inventory.Entry `json:"absent,omitempty"`
}

// journalKey is where the journal is, in the ConfigMap with the inventory.
const journalKey = "rollout.yaml"

func loadJournal(ctx context.Context, c client.Client, infra types.NamespacedName) (*journal, error) {
	text, err := keptText(ctx, c, infra, journalKey)
	if err != nil || text == "" {
		return nil, err
	}
	j := &journal{}
	if err := yaml.Unmarshal([]byte(text), j); err != nil {
		return nil, fmt.Errorf("reading key %s of ConfigMap %s: %w; delete that key", journalKey, inventory.Name(infra), err)
	}
	return j, nil
}

// drop removes the journal from the cluster.
func (j *journal) drop(ctx context.Context, c client.Client, infra types.NamespacedName) error {
	return keepText(ctx, c, infra, journalKey, "")
}

// find is an object of the journal; nil for none.
func (j *journal) find(e inventory.Entry) *unstructured.Unstructured {
	if j == nil {
		return nil
	}
	for _, fields := range j.Before {
		if o := (&unstructured.Unstructured{Object: fields}); bare(o).Same(e) {
			return o
		}
	}
	return nil
}

// note writes down what a step is about to change. What an unfinished rollout has noted of the
// same objects stands: nobody has proven what is there now.
func (r *rollout) note(ctx context.Context, s step) (*journal, error) {
	j := &journal{Component: s.component}
	add := func(o *unstructured.Unstructured) error {
		if noted := r.unfinished.find(bare(o)); noted != nil {
			j.Before = append(j.Before, noted.Object)
			return nil
		}
		there, err := r.current(ctx, o)
		if err != nil {
			return err
		}
		if there == nil || r.unfinished != nil && slices.ContainsFunc(r.unfinished.Absent, bare(o).Same) {
			j.Absent = append(j.Absent, bare(o))
			return nil
		}
		j.Before = append(j.Before, appliable(there).Object)
		return nil
	}
	for _, o := range s.objects {
		if kind := o.GetKind(); r.leaves(r.plan, o) || kind == "Namespace" || kind == "CustomResourceDefinition" {
			continue
		}
		if err := add(o); err != nil {
			return nil, err
		}
	}
	for _, e := range s.retired {
		if err := add(e.Object()); err != nil {
			return nil, err
		}
	}
	text, err := yaml.Marshal(j)
	if err != nil {
		return nil, fmt.Errorf("encoding the journal of %s: %w", s.component, err)
	}
	return j, keepText(ctx, r.Client, r.infra, journalKey, string(text))
}

// appliable is an object without what the API server and controllers write into it.
func appliable(o *unstructured.Unstructured) *unstructured.Unstructured {
	c := o.DeepCopy()
	delete(c.Object, "status")
	for _, field := range []string{"managedFields", "uid", "resourceVersion", "generation", "creationTimestamp", "selfLink"} {
		unstructured.RemoveNestedField(c.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(c.Object, "metadata", "annotations", "deployment.kubernetes.io/revision")
	unstructured.RemoveNestedField(c.Object, "spec", "template", "metadata", "creationTimestamp")
	return c
}

// normal is an object as it is read from YAML, with the same types of numbers.
func normal(o *unstructured.Unstructured) map[string]any {
	fields := map[string]any{}
	text, err := json.Marshal(o.Object)
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		return nil // it came from JSON
	}
	return fields
}

// restore puts everything back to what the journal has, and with wait waits until it is ready.
func (r *rollout) restore(ctx context.Context, j *journal, wait bool) error {
	for _, e := range j.Absent {
		if e.Kind != "StatefulSet" {
			continue // nobody else has its address
		}
		removed, err := e.Remove(ctx, r.Client)
		if err == nil && removed {
			err = r.gone(ctx, e)
		}
		if err != nil {
			return err
		}
	}
	entries, err := inventory.Load(ctx, r.Client, r.infra)
	if err != nil {
		return err
	}
	var workloads []*unstructured.Unstructured
	for _, fields := range j.Before {
		o := &unstructured.Unstructured{Object: fields}
		if there, err := r.current(ctx, o); err != nil {
			return err
		} else if there != nil && equality.Semantic.DeepEqual(normal(appliable(there)), normal(o)) {
			if isWorkload(o) {
				workloads = append(workloads, o)
			}
			continue // which leaves its fields to their managers
		}
		made := o.DeepCopy()
		if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(made), client.FieldOwner(Manager), client.ForceOwnership); err != nil {
			return r.explain(o, err)
		}
		if at := slices.IndexFunc(entries, inventory.Of(made).Same); at >= 0 {
			entries[at].UID = made.GetUID() // one that was retired is another now
		}
		if isWorkload(o) {
			workloads = append(workloads, o)
		}
	}
	if err := inventory.Save(ctx, r.Client, r.infra, entries, Manager); err != nil {
		return err
	}
	var errs []error
	for _, o := range workloads {
		until := r.ready
		if !wait {
			until = r.replaced
		}
		errs = append(errs, until(ctx, o))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return j.drop(ctx, r.Client, r.infra)
}
