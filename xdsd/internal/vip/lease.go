package vip

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/densityops/oooi/api/v1alpha1"
)

// macPrefix is the prefix of the Lease's annotations by which replicas recognize each other on the VLAN: the key is a
// replica's name, the value its MAC address.
const macPrefix = "mac." + v1alpha1.GroupName + "/"

// A leaseRecord is the content of a Lease.
type leaseRecord struct {
	holder      string // empty without a holder
	renewed     string // time by the holder's clock; it is only compared for equality
	transitions int32
	version     uint64         // resourceVersion
	macs        map[string]mac // MAC addresses of replicas, by name
}

func newLeaseRecord(l *coordinationv1.Lease) leaseRecord {
	r := leaseRecord{macs: map[string]mac{}}
	if l.Spec.HolderIdentity != nil {
		r.holder = *l.Spec.HolderIdentity
	}
	if l.Spec.RenewTime != nil {
		r.renewed = l.Spec.RenewTime.Format(time.RFC3339Nano)
	}
	if l.Spec.LeaseTransitions != nil {
		r.transitions = *l.Spec.LeaseTransitions
	}
	r.version, _ = strconv.ParseUint(l.ResourceVersion, 10, 64) // 0 if it is not a number: then no record counts as older
	for key, value := range l.Annotations {
		if name, ok := strings.CutPrefix(key, macPrefix); ok {
			var address mac
			if address.UnmarshalText([]byte(value)) == nil {
				r.macs[name] = address
			}
		}
	}
	return r
}

// A leaseClient reads, watches and updates the Lease.
type leaseClient struct {
	client          coordinationclient.LeaseInterface
	name, identity  string
	self            mac
	requestDeadline time.Duration

	last *coordinationv1.Lease // as last read or written by do; nil before the first read
}

// errLeaseHeld is the error of a request that was not granted because this replica does not have the Lease.
var errLeaseHeld = errors.New("another replica has the Lease")

// do carries out a request. observed is the record on which the request was decided. One request is carried out at a time.
func (c *leaseClient) do(ctx context.Context, r request, observed leaseRecord) requestResult {
	res := requestResult{request: r, started: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, c.requestDeadline)
	defer cancel()
	lease, err := c.update(ctx, r == acquire, func(l *coordinationv1.Lease) error { return c.modify(l, r, observed, res.started) })
	switch {
	case errors.Is(err, errLeaseHeld):
		res.lease = newLeaseRecord(lease)
	case err != nil:
		res.err = err
	default:
		res.lease, res.granted = newLeaseRecord(lease), true
	}
	return res
}

// modify applies a request to a Lease. For renew, it returns errLeaseHeld unless this replica is the holder. For
// acquire, it returns errLeaseHeld if another replica has acquired or renewed the Lease since observed.
func (c *leaseClient) modify(l *coordinationv1.Lease, r request, observed leaseRecord, at time.Time) error {
	current := newLeaseRecord(l)
	isHolder := current.holder == c.identity
	switch r {
	case acquire:
		if !isHolder && current.holder != "" && (current.holder != observed.holder || current.renewed != observed.renewed) {
			return errLeaseHeld
		}
		c.setHolder(l, at, !isHolder)
	case renew:
		if !isHolder {
			return errLeaseHeld
		}
		c.setHolder(l, at, false)
	case release:
		if isHolder {
			l.Spec.HolderIdentity = nil
		}
	case register, noRequest:
	}
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, macPrefix+c.identity, c.self.String())
	return nil
}

// setHolder sets this replica as the holder of the Lease, and renews the Lease. transition is set if the replica was
// not the holder before.
func (c *leaseClient) setHolder(l *coordinationv1.Lease, at time.Time, transition bool) {
	now := metav1.NewMicroTime(at)
	l.Spec.HolderIdentity, l.Spec.RenewTime = &c.identity, &now
	l.Spec.LeaseDurationSeconds = new(int32(leaseDuration / time.Second))
	if transition {
		l.Spec.AcquireTime = &now
		l.Spec.LeaseTransitions = new(newLeaseRecord(l).transitions + 1)
	}
}

// update changes and writes the Lease, and retries after a conflict. It uses the last known Lease, or if fresh is true
// reads it first. If change returns an error for the current Lease, update returns that Lease and the error.
func (c *leaseClient) update(ctx context.Context, fresh bool, change func(*coordinationv1.Lease) error) (*coordinationv1.Lease, error) {
	for {
		if c.last == nil || fresh {
			l, err := c.read(ctx)
			if err != nil {
				return nil, err
			}
			c.last = l
		}
		next := c.last.DeepCopy()
		if err := change(next); err != nil {
			if !fresh { // c.last may be outdated
				fresh = true
				continue
			}
			return c.last, err
		}
		written, err := c.client.Update(ctx, next, metav1.UpdateOptions{})
		switch {
		case err == nil:
			c.last = written
			return written, nil
		case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
			fresh = true
		default:
			return nil, fmt.Errorf("writing Lease %s: %w", c.name, err)
		}
	}
}

// read returns the Lease, and creates it if it does not exist.
func (c *leaseClient) read(ctx context.Context) (*coordinationv1.Lease, error) {
	l, err := c.client.Get(ctx, c.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		l, err = c.client.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: c.name}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			l, err = c.client.Get(ctx, c.name, metav1.GetOptions{})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading Lease %s: %w", c.name, err)
	}
	return l, nil
}

// A leaseEvent is a new state of the Lease, or of the watch of it.
type leaseEvent struct {
	watching bool
	lease    *leaseRecord // nil if the watch failed
	readAt   time.Time    // when the read that returned lease was started; zero if lease comes from the watch
	err      error        // why the watch failed
}

const (
	// watchTimeout is the timeout of one watch request, by which a lost connection to the API server is detected.
	watchTimeout = 30 * time.Second
	// watchRetryInterval is the time before the watch is retried after an error.
	watchRetryInterval = time.Second
)

// watch reads and watches the Lease, and sends events until ctx is done.
func (c *leaseClient) watch(ctx context.Context, send func(leaseEvent)) {
	for ctx.Err() == nil {
		err := c.watchOnce(ctx, send)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			send(leaseEvent{err: err})
			select {
			case <-ctx.Done():
			case <-time.After(watchRetryInterval):
			}
		}
	}
}

// watchOnce reads the Lease and sends events until one watch request ends.
func (c *leaseClient) watchOnce(ctx context.Context, send func(leaseEvent)) error {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout+2*c.requestDeadline)
	defer cancel()
	readAt := time.Now()
	readCtx, cancelRead := context.WithTimeout(ctx, c.requestDeadline)
	l, err := c.read(readCtx)
	cancelRead()
	if err != nil {
		return err
	}
	seconds := int64(watchTimeout / time.Second)
	changes, err := c.client.Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, c.name).String(), ResourceVersion: l.ResourceVersion, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return fmt.Errorf("watching Lease %s: %w", c.name, err)
	}
	defer changes.Stop()
	current := newLeaseRecord(l)
	send(leaseEvent{watching: true, lease: &current, readAt: readAt})
	for change := range changes.ResultChan() {
		l, ok := change.Object.(*coordinationv1.Lease)
		if !ok || change.Type == watch.Deleted {
			return nil // the watch failed or the Lease was deleted: read it again
		}
		current := newLeaseRecord(l)
		send(leaseEvent{watching: true, lease: &current})
	}
	return nil
}
