package verify

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/testclient"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// deletionTimeout limits the deletion of one object, and recent is the age of objects whose test may still run.
const (
	deletionTimeout = 30 * time.Second
	recent          = 5 * time.Minute
)

// errDeleted means that another client deleted an object that the command has created, while it ran.
var errDeleted = errors.New("another client, such as 'kubectl oooi test --cleanup', deleted objects of this command while it ran; run it again")

// create creates an object, which cleanUp deletes.
func (t *test) create(ctx context.Context, o client.Object) error {
	if err := t.Client.Create(ctx, o); err != nil {
		return fmt.Errorf("creating object %s of the test: %w", o.GetName(), err)
	}
	t.created = append(t.created, o)
	return nil
}

// cleanUp deletes everything that create has created, and the lease of the DHCP client, even if ctx has ended. It returns
// errDeleted if another client has deleted an object. It does not wait for DHCP, which releases an address only a minute after its VM
// was deleted.
func (t *test) cleanUp(ctx context.Context) (err error) {
	ctx = context.WithoutCancel(ctx)
	for _, o := range slices.Backward(t.created) {
		err = errors.Join(err, t.remove(ctx, o))
	}
	t.created = nil
	list, unread := t.leasesOf(ctx, t.site.Infra.Namespace, func(l *leases.Lease) bool {
		return l.VM == t.site.Infra.Namespace+"/"+testclient.VM(t.site.hostname)
	})
	err = errors.Join(err, unread)
	for _, o := range list {
		if failed := t.remove(ctx, o); !errors.Is(failed, errDeleted) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// remove deletes an object and waits until it no longer exists. It returns errDeleted if another client has deleted it before. The
// pods of a Job are deleted before it.
func (r *Runner) remove(ctx context.Context, o client.Object) error {
	ctx, cancel := context.WithTimeout(ctx, deletionTimeout)
	defer cancel()
	uid, propagation := o.GetUID(), metav1.DeletePropagationBackground
	if kind, _ := r.Client.GroupVersionKindFor(o); kind == jobKind { // foreground deletion of others would only wait for the garbage collector
		propagation = metav1.DeletePropagationForeground
	}
	err := r.Client.Delete(ctx, o, client.PropagationPolicy(propagation), client.Preconditions{UID: &uid})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return errDeleted
	}
	if err == nil {
		err = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			err := r.Client.Get(ctx, client.ObjectKeyFromObject(o), o)
			return err == nil && o.GetUID() != uid, err
		})
	}
	if err := client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("deleting object %s of the test, which expires within some minutes: %w", o.GetName(), err)
	}
	return nil
}

var jobKind = site.Kind{Group: "batch", Version: "v1", Kind: "Job"}

// CleanUp deletes the objects of interrupted tests of an Infra and returns their number. A test that still runs would fail:
// if there may be one, CleanUp calls confirm with the time since its last object was created, and deletes nothing unless that
// returns true.
func (r *Runner) CleanUp(ctx context.Context, namespace, infra string, confirm func(time.Duration) (bool, error)) (int, error) {
	var list []client.Object
	var last metav1.Time
	add := func(u *unstructured.Unstructured) {
		list = append(list, u)
		if created := u.GetCreationTimestamp(); created.After(last.Time) {
			last = created
		}
	}
	reader, own := &read.Reader{Client: r.Client}, client.MatchingLabels{v1alpha1.LabelInfra: infra, v1alpha1.LabelComponent: testclient.Component}
	for _, kind := range []site.Kind{jobKind, site.NADs, site.Leases} {
		if err := reader.In(ctx, kind, namespace, add, own); err != nil && !errors.Is(err, read.ErrNotServed) {
			return 0, err
		}
	}
	if age := time.Since(last.Time); !last.IsZero() && age < recent {
		if confirmed, err := confirm(age); !confirmed || err != nil {
			return 0, err
		}
	}
	addresses, err := r.leasesOf(ctx, namespace, func(l *leases.Lease) bool {
		return l.Infra == infra && (l.Client == reservationHolder() || strings.HasPrefix(l.VM, namespace+"/"+testclient.VM("")))
	})
	if err != nil {
		return 0, err
	}
	list = append(list, addresses...) // last: DHCP may still write those of registered clients
	for i, o := range list {
		if err := r.remove(ctx, o); err != nil && !errors.Is(err, errDeleted) {
			return i, err
		}
	}
	return len(list), nil
}

// leasesOf returns the selected Leases of addresses in a namespace.
func (r *Runner) leasesOf(ctx context.Context, namespace string, selected func(*leases.Lease) bool) ([]client.Object, error) {
	all := &coordinationv1.LeaseList{}
	if err := r.Client.List(ctx, all, client.InNamespace(namespace), client.HasLabels{leases.PoolLabel}); err != nil {
		return nil, fmt.Errorf("listing the Leases of addresses: %w", err)
	}
	var list []client.Object
	for i := range all.Items {
		if l, err := leases.Read(&all.Items[i], time.Now()); err == nil && l != nil && selected(l) {
			list = append(list, &all.Items[i])
		}
	}
	return list, nil
}

// register registers the DHCP client for a time.
func (t *test) register(ctx context.Context, age time.Duration) error {
	mac, err := net.ParseMAC(t.site.client)
	if err != nil {
		return err
	}
	o := testclient.Object(t.site.Infra.Namespace, t.site.Infra.Name, t.site.hostname, mac, age)
	o.OwnerReferences = []metav1.OwnerReference{t.site.ownerReference()}
	return t.create(ctx, o)
}

// randomMAC returns a locally administered unicast address.
func randomMAC() string {
	mac := make(net.HardwareAddr, 6)
	_, _ = rand.Read(mac) // never fails
	mac[0] = mac[0]&^1 | 2
	return mac.String()
}

// hostname returns the name of the DHCP client: a valid label with the name of the Infra.
func hostname(infra string) string {
	const longest = 45
	infra, _, _ = strings.Cut(infra, ".")
	return infra[:min(len(infra), longest)] + "-" + testclient.Component + "-" + utilrand.String(5)
}
