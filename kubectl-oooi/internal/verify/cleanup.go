package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/testclient"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// CleanUp deletes the objects of interrupted tests of an Infra and returns their number. A test that still runs would fail:
// if there may be one, CleanUp calls confirm with the time since its last Job was created, and deletes nothing unless that
// returns true.
func (r *Runner) CleanUp(ctx context.Context, namespace, infra string, confirm func(time.Duration) (bool, error)) (int, error) {
	var list []client.Object
	var last metav1.Time
	own := client.MatchingLabels{v1alpha1.LabelInfra: infra, v1alpha1.LabelComponent: testclient.Component}
	jobs := &batchv1.JobList{}
	if err := r.Prober.Client.List(ctx, jobs, client.InNamespace(namespace), own); err != nil {
		return 0, fmt.Errorf("listing Jobs of tests: %w", err)
	}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		list = append(list, job)
		if job.Status.CompletionTime == nil && job.Status.Failed == 0 && job.CreationTimestamp.After(last.Time) {
			last = job.CreationTimestamp
		}
	}
	if age := time.Since(last.Time); !last.IsZero() && age < bootDeadline {
		if confirmed, err := confirm(age); !confirmed || err != nil {
			return 0, err
		}
	}
	policies := &networkingv1.NetworkPolicyList{}
	err := r.Prober.Client.List(ctx, policies, client.InNamespace(namespace), own)
	if err != nil && !apierrors.IsForbidden(err) { // who cannot list them has created none
		return 0, fmt.Errorf("listing NetworkPolicies of tests: %w", err)
	}
	for i := range policies.Items {
		list = slices.Insert(list, 0, client.Object(&policies.Items[i]))
	}
	reader := &read.Reader{Client: r.Prober.Client}
	err = reader.In(ctx, machineKind, "", func(u *unstructured.Unstructured) {
		if u.GetAnnotations()[v1alpha1.AnnotationInfra] == namespace+"/"+infra {
			list = append(list, u)
		}
	}, own)
	if err != nil && !errors.Is(err, read.ErrNotServed) && !apierrors.IsForbidden(err) { // who cannot list them has created none
		return 0, err
	}
	err = reader.In(ctx, read.AttachmentKind, namespace, func(u *unstructured.Unstructured) { list = append(list, u) }, own)
	if err != nil && !errors.Is(err, read.ErrNotServed) {
		return 0, err
	}
	all := &coordinationv1.LeaseList{}
	if err := r.Prober.Client.List(ctx, all, client.InNamespace(namespace)); err != nil {
		return 0, fmt.Errorf("listing Leases of tests: %w", err)
	}
	var addresses []client.Object // deleted last: DHCP may still write those of registered clients
	for i := range all.Items {
		o := &all.Items[i]
		l, err := leases.Read(o, time.Now())
		switch {
		case o.Labels[v1alpha1.LabelInfra] == infra && o.Labels[v1alpha1.LabelComponent] == testclient.Component:
			list = append(list, o)
		case err != nil || l == nil || l.Infra != infra:
		case l.Client == reservationHolder() || strings.HasPrefix(l.VM, namespace+"/"+testclient.VM("")):
			addresses = append(addresses, o)
		}
	}
	list = append(list, addresses...)
	for i, o := range list {
		if err := r.Prober.remove(ctx, o); err != nil {
			return i, err
		}
	}
	return len(list), nil
}
