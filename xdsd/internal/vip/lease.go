package vip

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/densityops/oooi/api/v1alpha1"
)

// macPrefix begins the annotations of the Lease by which instances know each other: the rest is
// an instance's name, the value its MAC address on the VLAN.
const macPrefix = "mac." + v1alpha1.GroupName + "/"

// record is what a Lease says.
type record struct {
	holder      string // empty for nobody
	renewed     string // when, by the holder's clock: only whether it changes matters
	transitions int32
	version     uint64
	macs        map[string]mac // of instances, by name
}

func recordOf(l *coordinationv1.Lease) record {
	r := record{macs: map[string]mac{}}
	if l.Spec.HolderIdentity != nil {
		r.holder = *l.Spec.HolderIdentity
	}
	if l.Spec.RenewTime != nil {
		r.renewed = l.Spec.RenewTime.Format(time.RFC3339Nano)
	}
	if l.Spec.LeaseTransitions != nil {
		r.transitions = *l.Spec.LeaseTransitions
	}
	r.version, _ = strconv.ParseUint(l.ResourceVersion, 10, 64) // as API servers make them; else no news is late
	for key, value := range l.Annotations {
		if name, ok := strings.CutPrefix(key, macPrefix); ok {
			if address, ok := parseMAC(value); ok {
				r.macs[name] = address
			}
		}
	}
	return r
}

// leaseClient changes the Lease.
type leaseClient struct {
	client          coordinationclient.LeaseInterface
	name, identity  string
	self            mac
	duration        time.Duration
	requestDeadline time.Duration

	mu   sync.Mutex
	last *coordinationv1.Lease // as it was read or written last; nil before
}

// errTaken says that somebody else was faster.
var errTaken = errors.New("another replica has the Lease")

// do makes a request, decided on what the Lease was.
func (c *leaseClient) do(ctx context.Context, r request, decided record) outcome {
	o := outcome{request: r, started: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, c.requestDeadline)
	defer cancel()
	lease, err := c.change(ctx, r == take, func(l *coordinationv1.Lease) error { return c.edit(l, r, decided, o.started) })
	switch {
	case errors.Is(err, errTaken):
		o.lease = recordOf(lease)
	case err != nil:
		o.err = err
	default:
		o.lease, o.granted = recordOf(lease), true
	}
	return o
}

// edit does to a Lease what a request is for.
func (c *leaseClient) edit(l *coordinationv1.Lease, r request, decided record, at time.Time) error {
	now := recordOf(l)
	mine := now.holder == c.identity
	switch r {
	case take:
		if !mine && now.holder != "" && (now.holder != decided.holder || now.renewed != decided.renewed) {
			return errTaken
		}
		c.hold(l, at, !mine)
	case renew:
		if !mine {
			return errTaken
		}
		c.hold(l, at, false)
	case release:
		if mine {
			l.Spec.HolderIdentity = nil
		}
	case register, nothing:
	}
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, macPrefix+c.identity, c.self.String())
	return nil
}

// hold makes the Lease ours, anew or as it was.
func (c *leaseClient) hold(l *coordinationv1.Lease, at time.Time, anew bool) {
	now := metav1.NewMicroTime(at)
	l.Spec.HolderIdentity, l.Spec.RenewTime = &c.identity, &now
	l.Spec.LeaseDurationSeconds = new(int32(c.duration / time.Second)) //nolint:gosec // seconds to minutes
	if anew {
		l.Spec.AcquireTime = &now
		l.Spec.LeaseTransitions = new(recordOf(l).transitions + 1)
	}
}

// change writes the Lease, provided that nobody else does between. With fresh, it is read before
// in any case. With errTaken it returns what there is.
func (c *leaseClient) change(ctx context.Context, fresh bool, change func(*coordinationv1.Lease) error) (*coordinationv1.Lease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
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
			if !fresh { // it may be so no longer
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

// read reads the Lease, which is made if it is not there.
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

// news is of the Lease.
type news struct {
	following bool
	lease     *record   // nil for nothing new of it
	asked     time.Time // when the Lease was asked for; zero for a change
	err       error     // why it is not followed
}

const (
	// watchFor is for how long the API server is asked to send changes in one request: who is cut
	// off from it finds out by then.
	watchFor = 30 * time.Second
	// watchGap is the time between two such requests where one failed.
	watchGap = time.Second
)

// follow sends news until the context ends.
func (c *leaseClient) follow(ctx context.Context, send func(news)) {
	for ctx.Err() == nil {
		err := c.followOnce(ctx, send)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			send(news{err: err})
			select {
			case <-ctx.Done():
			case <-time.After(watchGap):
			}
		}
	}
}

// followOnce sends news for as long as the API server sends changes.
func (c *leaseClient) followOnce(ctx context.Context, send func(news)) error {
	ctx, cancel := context.WithTimeout(ctx, watchFor+2*c.requestDeadline)
	defer cancel()
	asked := time.Now()
	reading, done := context.WithTimeout(ctx, c.requestDeadline)
	l, err := c.read(reading)
	done()
	if err != nil {
		return err
	}
	seconds := int64(watchFor / time.Second)
	changes, err := c.client.Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, c.name).String(), ResourceVersion: l.ResourceVersion, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return fmt.Errorf("following Lease %s: %w", c.name, err)
	}
	defer changes.Stop()
	now := recordOf(l)
	send(news{following: true, lease: &now, asked: asked})
	for change := range changes.ResultChan() {
		l, ok := change.Object.(*coordinationv1.Lease)
		if !ok || change.Type == watch.Deleted {
			return nil // expired, or deleted: read it again
		}
		now := recordOf(l)
		send(news{following: true, lease: &now})
	}
	return nil
}
