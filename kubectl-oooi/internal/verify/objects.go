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

// deletionTimeout limits the deletion of one object.
const deletionTimeout = 30 * time.Second

// errDeleted means that another client deleted an object that the command has created, while it ran.
var errDeleted = errors.New("another client, such as 'kubectl oooi test --cleanup', deleted objects of this command while it ran; run it again")

// create creates an object, which cleanUp deletes. It may be called concurrently.
func (t *test) create(ctx context.Context, o client.Object) error {
	if err := t.Client.Create(ctx, o); err != nil {
		return fmt.Errorf("creating object %s of the test: %w", o.GetName(), err)
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	t.created = append(t.created, o)
	return nil
}

// cleanUp deletes everything that create has created, and the lease of the DHCP client, even if ctx has ended. It returns
// errDeleted if another client has deleted an object. It does not wait for DHCP, which releases an address only a minute after its VM
// was deleted.
func (t *test) cleanUp(ctx context.Context) (err error) {
	ctx = context.WithoutCancel(ctx)
	for _, o := range slices.Backward(slices.Clone(t.created)) {
		err = errors.Join(err, t.discard(ctx, o))
	}
	list, _, unread := t.leasesOfClient(ctx)
	err = errors.Join(err, unread)
	for _, o := range list {
		err = errors.Join(err, t.remove(ctx, o))
	}
	return err
}

// discard deletes an object that create has created. It returns errDeleted if another client has deleted it.
func (t *test) discard(ctx context.Context, o client.Object) (err error) {
	t.lock.Lock()
	t.created = slices.DeleteFunc(t.created, func(other client.Object) bool { return other.GetUID() == o.GetUID() })
	t.lock.Unlock()
	if t.isDeleted(ctx, o) {
		err = errDeleted
	}
	return errors.Join(err, t.remove(ctx, o))
}

// isDeleted reports whether an object that was created no longer exists, or is about to be deleted.
func (r *Runner) isDeleted(ctx context.Context, o client.Object) bool {
	now, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return false
	}
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(o), now)
	return apierrors.IsNotFound(err) || err == nil && (now.GetUID() != o.GetUID() || now.GetDeletionTimestamp() != nil)
}

// remove deletes an object and waits until it no longer exists. The pods of a Job are deleted before it.
func (r *Runner) remove(ctx context.Context, o client.Object) error {
	ctx, cancel := context.WithTimeout(ctx, deletionTimeout)
	defer cancel()
	uid, propagation := o.GetUID(), metav1.DeletePropagationBackground
	if kind, _ := r.Client.GroupVersionKindFor(o); kind == jobKind { // foreground deletion of others would only wait for the garbage collector
		propagation = metav1.DeletePropagationForeground
	}
	err := r.Client.Delete(ctx, o, client.PropagationPolicy(propagation), client.Preconditions{UID: &uid})
	if err == nil {
		err = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			err := r.Client.Get(ctx, client.ObjectKeyFromObject(o), o)
			return err == nil && o.GetUID() != uid, err
		})
	}
	if err := client.IgnoreNotFound(err); err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting object %s of the test, which expires within some minutes: %w", o.GetName(), err)
	}
	return nil
}

var jobKind = site.Kind{Group: "batch", Version: "v1", Kind: "Job"}

// CleanUp deletes the objects of interrupted tests of an Infra and returns their number. A test that still runs would fail:
// if there may be one, CleanUp calls confirm with the time since its last object was created, and deletes nothing unless that
// returns true.
func (r *Runner) CleanUp(ctx context.Context, namespace, infra string, confirm func(time.Duration) (bool, error)) (int, error) {
	var list, addresses []client.Object // addresses are deleted last: DHCP may still write those of registered clients
	var last metav1.Time
	add := func(u *unstructured.Unstructured) {
		owner := u.GetAnnotations()[v1alpha1.AnnotationInfra]
		if u.GroupVersionKind() == machineKind && owner != namespace+"/"+infra {
			return
		}
		list = append(list, u)
		if created := u.GetCreationTimestamp(); created.After(last.Time) {
			last = created
		}
	}
	reader, own := &read.Reader{Client: r.Client}, client.MatchingLabels{v1alpha1.LabelInfra: infra, v1alpha1.LabelComponent: testclient.Component}
	for _, of := range []struct {
		kind      site.Kind
		namespace string
	}{{site.Policies, namespace}, {machineKind, ""}, {jobKind, namespace}, {site.NADs, namespace}, {site.Leases, namespace}} {
		err := reader.In(ctx, of.kind, of.namespace, add, own)
		required := of.kind != site.Policies && of.kind != machineKind // a user who cannot list others has created none
		if err != nil && !errors.Is(err, read.ErrNotServed) && (required || !apierrors.IsForbidden(err)) {
			return 0, err
		}
	}
	if age := time.Since(last.Time); !last.IsZero() && age < bootTimeout {
		if confirmed, err := confirm(age); !confirmed || err != nil {
			return 0, err
		}
	}
	err := r.leased(ctx, namespace, func(o *coordinationv1.Lease, l *leases.Lease) {
		if l.Infra == infra && (l.Client == reservationHolder() || strings.HasPrefix(l.VM, namespace+"/"+testclient.VM(""))) {
			addresses = append(addresses, o)
		}
	})
	if err != nil {
		return 0, err
	}
	list = append(list, addresses...)
	for i, o := range list {
		if err := r.remove(ctx, o); err != nil {
			return i, err
		}
	}
	return len(list), nil
}

// randomMAC returns a locally administered unicast address.
func randomMAC() (string, error) {
	mac := make(net.HardwareAddr, 6)
	if _, err := rand.Read(mac); err != nil {
		return "", fmt.Errorf("choosing a MAC address: %w", err)
	}
	mac[0] = mac[0]&^1 | 2
	return mac.String(), nil
}

// hostname returns the name of the DHCP client: a valid label with the name of the Infra.
func hostname(infra string) string {
	const longest = 45
	infra, _, _ = strings.Cut(infra, ".")
	return infra[:min(len(infra), longest)] + "-" + testclient.Component + "-" + utilrand.String(5)
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

// leasesOfClient returns the Leases of addresses that the DHCP client, or the VM with its name, has or had, and the one that is still
// bound; nil if none is.
func (t *test) leasesOfClient(ctx context.Context) (list []*coordinationv1.Lease, bound *leases.Lease, err error) {
	err = t.leased(ctx, t.site.Infra.Namespace, func(o *coordinationv1.Lease, l *leases.Lease) {
		_, vm, _ := strings.Cut(l.VM, "/")
		if vm != testclient.VM(t.site.hostname) && vm != t.site.hostname { // DHCP may also know the VM of a test client
			return
		}
		list = append(list, o)
		if l.State == "bound" {
			bound = l
		}
	})
	return list, bound, err
}

// leased calls take with the Leases of addresses in a namespace.
func (r *Runner) leased(ctx context.Context, namespace string, take func(*coordinationv1.Lease, *leases.Lease)) error {
	all := &coordinationv1.LeaseList{}
	if err := r.Client.List(ctx, all, client.InNamespace(namespace), client.HasLabels{leases.PoolLabel}); err != nil {
		return fmt.Errorf("listing the Leases of addresses: %w", err)
	}
	for i := range all.Items {
		if l, err := leases.Read(&all.Items[i], time.Now()); err == nil && l != nil {
			take(&all.Items[i], l)
		}
	}
	return nil
}
