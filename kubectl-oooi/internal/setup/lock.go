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

// A lock that is not renewed for lockDuration is that of a setup that was killed. It is renewed every
// lockRenewal.
const (
	lockDuration = 10 * time.Second
	lockRenewal  = 2 * time.Second
)

// errLockLost is why a setup ends whose lock another has taken: it must not touch anything any more.
var errLockLost = errors.New("another setup of this Infra has taken over")

// lock keeps other setups of the Infra away, by a Lease, until the function that it returns is called.
// The context ends when the lock is lost. Who may not write Leases goes on without.
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
	seen := &sighting{}
	free := false
	err = poll(ctx, a.Out, func(ctx context.Context) (string, error) {
		switch err := a.Client.Create(ctx, lease.DeepCopy()); {
		case err == nil:
			return "", nil
		case apierrors.IsForbidden(err):
			free = true
			_, err := fmt.Fprintf(a.Out, "Warning: other setups of Infra %s are not locked out: %v\n", keyOf(p.Infra), err)
			return "", err
		case !apierrors.IsAlreadyExists(err):
			return "", fmt.Errorf("locking Infra %s: %w", keyOf(p.Infra), err)
		}
		return a.takeOver(ctx, lease, seen)
	})
	if err != nil || free {
		return ctx, func() {}, err
	}
	held, lose := context.WithCancelCause(ctx)
	renewing, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := a.renew(renewing, lease); err != nil {
			lose(err)
		}
	}()
	return held, func() {
		stop()
		<-done
		lose(nil)
		a.unlock(ctx, lease)
	}, nil
}

// sighting is since when a lock has not been renewed, as far as was seen without a gap.
type sighting struct {
	version     string
	since, last time.Time
}

// takeOver deletes the lock of a setup that was killed. It returns what is waited for otherwise.
func (a *Applier) takeOver(ctx context.Context, own *coordinationv1.Lease, seen *sighting) (string, error) {
	there := &coordinationv1.Lease{}
	err := a.Client.Get(ctx, client.ObjectKeyFromObject(own), there)
	if apierrors.IsNotFound(err) {
		return "its lock", nil // which is free now
	}
	if err != nil {
		return "", fmt.Errorf("reading Lease %s/%s: %w", own.Namespace, own.Name, err)
	}
	holder := ""
	if there.Spec.HolderIdentity != nil {
		holder = *there.Spec.HolderIdentity
	}
	now := time.Now()
	if there.ResourceVersion != seen.version || now.Sub(seen.last) > lockRenewal { // an API server that was away has let nobody renew
		seen.version, seen.since = there.ResourceVersion, now
	}
	seen.last = now
	if now.Sub(seen.since) < lockDuration && !dead(holder) {
		return "another setup of the Infra to finish: " + describe(holder), nil
	}
	err = a.Client.Delete(ctx, there, client.Preconditions{UID: &there.UID, ResourceVersion: &there.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return "", fmt.Errorf("deleting Lease %s/%s of a setup that was killed: %w", own.Namespace, own.Name, err)
	}
	return "the lock of a setup that was killed", nil
}

// describe is a holder for people.
func describe(holder string) string {
	words := strings.Fields(holder)
	if len(words) < 2 {
		return holder
	}
	return "process " + words[1] + " on " + words[0]
}

// dead reports whether a holder was a process of this machine that is not there any more.
func dead(holder string) bool {
	var host string
	var number int
	if _, err := fmt.Sscanf(holder, "%s %d", &host, &number); err != nil || runtime.GOOS == "windows" {
		return false
	}
	if name, err := os.Hostname(); err != nil || name != host {
		return false
	}
	process, err := os.FindProcess(number)
	return err != nil || errors.Is(process.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

// renew renews the lock until the context ends, and returns an error if it is lost.
func (a *Applier) renew(ctx context.Context, own *coordinationv1.Lease) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lockRenewal):
		}
		there := &coordinationv1.Lease{}
		err := a.Client.Get(ctx, client.ObjectKeyFromObject(own), there)
		if err == nil && (there.Spec.HolderIdentity == nil || *there.Spec.HolderIdentity != *own.Spec.HolderIdentity) || apierrors.IsNotFound(err) {
			return errLockLost
		}
		if err == nil {
			there.Spec.RenewTime = new(metav1.NowMicro())
			err = a.Client.Update(ctx, there)
		}
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			continue // look who has it
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("renewing Lease %s/%s: %w", own.Namespace, own.Name, err)
		}
	}
}

// unlock lets others go on. A lock that is left lapses.
func (a *Applier) unlock(ctx context.Context, own *coordinationv1.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockDuration)
	defer cancel()
	there := &coordinationv1.Lease{}
	err := a.Client.Get(ctx, client.ObjectKeyFromObject(own), there)
	if err == nil && there.Spec.HolderIdentity != nil && *there.Spec.HolderIdentity == *own.Spec.HolderIdentity {
		err = a.Client.Delete(ctx, there, client.Preconditions{UID: &there.UID})
	}
	if client.IgnoreNotFound(err) != nil {
		fmt.Fprintf(a.Out, "Warning: deleting Lease %s/%s, which expires in %s: %v\n", own.Namespace, own.Name, lockDuration, err)
	}
}
