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

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/internal/testclient"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
)

// deletionTimeout limits the deletion of one object.
const deletionTimeout = 30 * time.Second

// create creates an object, which cleanUp deletes. If the command is killed, Kubernetes deletes the object with its owner, and Jobs
// after their TTL.
func (t *test) create(ctx context.Context, o client.Object, owner ...metav1.OwnerReference) error {
	o.SetOwnerReferences(owner)
	if err := t.Client.Create(ctx, o); err != nil {
		return fmt.Errorf("creating object %s of the test: %w", o.GetName(), err)
	}
	t.created = append(t.created, o)
	return nil
}

// cleanUp deletes all created objects and the DHCP client's lease, even if ctx is done. It does not wait for DHCP, which releases an
// address a minute after its VM was deleted.
func (t *test) cleanUp(ctx context.Context) (err error) {
	ctx = context.WithoutCancel(ctx)
	for _, o := range slices.Backward(t.created) {
		err = errors.Join(err, t.remove(ctx, o))
	}
	t.created = nil
	all := &coordinationv1.LeaseList{}
	if unread := t.Client.List(ctx, all, client.InNamespace(t.site.Infra.Namespace), client.HasLabels{leases.PoolLabel}); unread != nil {
		return errors.Join(err, fmt.Errorf("listing the Leases of addresses: %w", unread))
	}
	for i := range all.Items {
		l, invalid := leases.Read(&all.Items[i], time.Now())
		if invalid == nil && l != nil && l.VM == t.site.Infra.Namespace+"/"+testclient.VM(t.site.hostname) {
			err = errors.Join(err, t.remove(ctx, &all.Items[i]))
		}
	}
	return err
}

// remove deletes an object and waits until it no longer exists. A Job's pods are deleted first.
func (t *test) remove(ctx context.Context, o client.Object) error {
	ctx, cancel := context.WithTimeout(ctx, deletionTimeout)
	defer cancel()
	uid, propagation := o.GetUID(), metav1.DeletePropagationBackground
	if _, isJob := o.(*batchv1.Job); isJob { // for other objects, foreground deletion would only delay
		propagation = metav1.DeletePropagationForeground
	}
	err := t.Client.Delete(ctx, o, client.PropagationPolicy(propagation), client.Preconditions{UID: &uid})
	if err == nil {
		err = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			err := t.Client.Get(ctx, client.ObjectKeyFromObject(o), o)
			return err == nil && o.GetUID() != uid, err
		})
	}
	if err := client.IgnoreNotFound(err); err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting object %s of the test, which expires within some minutes: %w", o.GetName(), err)
	}
	return nil
}

// randomMAC returns a locally administered unicast address.
func randomMAC() net.HardwareAddr {
	mac := make(net.HardwareAddr, 6)
	_, _ = rand.Read(mac) // never fails
	mac[0] = mac[0]&^1 | 2
	return mac
}

// hostname returns the DHCP client's name: a valid label that contains the Infra's name.
func hostname(infra string) string {
	const longest = 45
	infra, _, _ = strings.Cut(infra, ".")
	return infra[:min(len(infra), longest)] + "-" + testclient.Component + "-" + utilrand.String(5)
}
