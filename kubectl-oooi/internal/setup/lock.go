package setup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// A setup renews its Lease every lockRenewal. A Lease that is not renewed for lockDuration belongs to a setup that
// was killed.
const (
	lockDuration = 10 * time.Second
	lockRenewal  = 2 * time.Second
)

// errLockLost ends a setup after another one has taken over its Lease: two setups must not change the same objects.
var errLockLost = errors.New("another setup of this Infra has taken over")

// lock acquires a Lease that excludes other setups of the Infra, until the returned function is called. The returned
// context ends when the Lease is lost. Without the right to create Leases, lock prints a warning and setup continues.
func (a *Applier) lock(ctx context.Context, p *Plan) (context.Context, func(), error) {
	host, err := os.Hostname()
	if err != nil {
		return ctx, nil, fmt.Errorf("locking Infra %s: %w", keyOf(p.Infra), err)
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Infra.Namespace, Name: p.Infra.Name + "-oooi-setup", Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new(fmt.Sprintf("%s %d %s", host, os.Getpid(), rand.String(5))), LeaseDurationSeconds: new(int32(lockDuration / time.Second)),
			RenewTime: new(metav1.NowMicro()),
		},
	}
	observation := &lockObservation{}
	noLock := false
	err = poll(ctx, a.Out, func(ctx context.Context) (string, error) {
		switch err := a.Client.Create(ctx, lease.DeepCopy()); {
		case err == nil:
			return "", nil
		case apierrors.IsForbidden(err):
			noLock = true
			_, err := fmt.Fprintf(a.Out, "Warning: Infra %s is not locked against other setups: %v\n", keyOf(p.Infra), err)
			return "", err
		case !apierrors.IsAlreadyExists(err):
			return "", fmt.Errorf("locking Infra %s: %w", keyOf(p.Infra), err)
		}
		return a.takeOver(ctx, lease, observation)
	})
	if err != nil || noLock {
		return ctx, func() {}, err
	}
	lockContext, cancel := context.WithCancelCause(ctx)
	renewing, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := a.renew(renewing, lease); err != nil {
			cancel(err)
		}
	}()
	return lockContext, func() {
		stop()
		<-done
		cancel(nil)
		a.unlock(ctx, lease)
	}, nil
}

// A lockObservation records for how long a Lease has had the same resourceVersion. A gap of more than lockRenewal
// between two reads restarts it.
type lockObservation struct {
	version     string    // resourceVersion
	since, last time.Time // of the first and the last read of this version
}

// takeOver deletes the Lease of a setup that was killed. It returns what lock waits for, for poll.
func (a *Applier) takeOver(ctx context.Context, own *coordinationv1.Lease, observation *lockObservation) (string, error) {
	existing := &coordinationv1.Lease{}
	err := a.Client.Get(ctx, client.ObjectKeyFromObject(own), existing)
	if apierrors.IsNotFound(err) {
		return "the lock of the Infra", nil // released; poll tries again
	}
	if err != nil {
		return "", fmt.Errorf("reading Lease %s/%s: %w", own.Namespace, own.Name, err)
	}
	holder := ""
	if existing.Spec.HolderIdentity != nil {
		holder = *existing.Spec.HolderIdentity
	}
	now := time.Now()
	if existing.ResourceVersion != observation.version || now.Sub(observation.last) > lockRenewal { // after an outage of the API server the holder could not renew
		observation.version, observation.since = existing.ResourceVersion, now
	}
	observation.last = now
	if now.Sub(observation.since) < lockDuration && !holderEnded(holder) {
		return "another setup of the Infra to finish: " + describeHolder(holder), nil
	}
	err = a.Client.Delete(ctx, existing, client.Preconditions{UID: &existing.UID, ResourceVersion: &existing.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return "", fmt.Errorf("deleting Lease %s/%s of a setup that was killed: %w", own.Namespace, own.Name, err)
	}
	return "the lock of a setup that was killed", nil
}

// describeHolder formats a holder identity as "process PID on HOST".
func describeHolder(holder string) string {
	words := strings.Fields(holder)
	if len(words) < 2 {
		return holder
	}
	return "process " + words[1] + " on " + words[0]
}

// holderEnded reports whether a holder is a process of this host that has ended.
func holderEnded(holder string) bool {
	var host string
	var pid int
	if _, err := fmt.Sscanf(holder, "%s %d", &host, &pid); err != nil || runtime.GOOS == "windows" {
		return false
	}
	if name, err := os.Hostname(); err != nil || name != host {
		return false
	}
	process, err := os.FindProcess(pid)
	return err != nil || errors.Is(process.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

// renew renews the Lease until the context ends. It returns an error if the Lease is lost or cannot be renewed.
func (a *Applier) renew(ctx context.Context, own *coordinationv1.Lease) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lockRenewal):
		}
		existing := &coordinationv1.Lease{}
		err := a.Client.Get(ctx, client.ObjectKeyFromObject(own), existing)
		if err == nil && (existing.Spec.HolderIdentity == nil || *existing.Spec.HolderIdentity != *own.Spec.HolderIdentity) || apierrors.IsNotFound(err) {
			return errLockLost
		}
		if err == nil {
			existing.Spec.RenewTime = new(metav1.NowMicro())
			err = a.Client.Update(ctx, existing)
		}
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			continue // read the holder again
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("renewing Lease %s/%s: %w", own.Namespace, own.Name, err)
		}
	}
}

// unlock deletes the Lease. If that fails, it prints a warning: the Lease expires.
func (a *Applier) unlock(ctx context.Context, own *coordinationv1.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockDuration)
	defer cancel()
	existing := &coordinationv1.Lease{}
	err := a.Client.Get(ctx, client.ObjectKeyFromObject(own), existing)
	if err == nil && existing.Spec.HolderIdentity != nil && *existing.Spec.HolderIdentity == *own.Spec.HolderIdentity {
		err = a.Client.Delete(ctx, existing, client.Preconditions{UID: &existing.UID})
	}
	if client.IgnoreNotFound(err) != nil {
		fmt.Fprintf(a.Out, "Warning: deleting Lease %s/%s, which expires in %s: %v\n", own.Namespace, own.Name, lockDuration, err)
	}
}
