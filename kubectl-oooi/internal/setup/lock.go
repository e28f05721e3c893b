package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// A setup or teardown renews its Lease every lockRenewal. A Lease that is not renewed for lockDuration belongs to a
// process that was killed.
const (
	lockDuration = 10 * time.Second
	lockRenewal  = 2 * time.Second
)

// errLockLost ends a setup or teardown after another one has taken over its Lease: two must not change the same
// objects.
var errLockLost = errors.New("another setup or teardown of this Infra has taken over its lock")

// An infraLock is the Lease that excludes other setups and teardowns of an Infra.
type infraLock struct {
	client client.Client
	// out receives a line for what acquire waits for, and warnings.
	out   io.Writer
	infra types.NamespacedName
	// command is the one that acquires the Lease: commandSetup or commandTeardown.
	command string
}

const (
	commandSetup    = "setup"
	commandTeardown = "teardown"
)

// lock acquires the lock of the Infra for a setup; see infraLock.acquire.
func (a *Applier) lock(ctx context.Context, p *Plan) (context.Context, func(), error) {
	l := &infraLock{client: a.Client, out: a.Out, infra: client.ObjectKeyFromObject(p.Infra), command: commandSetup}
	return l.acquire(ctx)
}

// acquire acquires the Lease until the returned function is called. The returned context ends when the Lease is lost.
// Without the right to create Leases, acquire prints a warning and the command continues. So does a teardown whose
// namespace does not exist, without a warning.
func (l *infraLock) acquire(ctx context.Context) (context.Context, func(), error) {
	host, err := os.Hostname()
	if err != nil {
		return ctx, nil, fmt.Errorf("locking Infra %s: %w", l.infra, err)
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: lockOf(l.infra).Namespace, Name: lockOf(l.infra).Name, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new(fmt.Sprintf("%s %d %s %s", host, os.Getpid(), rand.String(5), l.command)), LeaseDurationSeconds: new(int32(lockDuration / time.Second)),
			RenewTime: new(metav1.NowMicro()),
		},
	}
	observation := &lockObservation{}
	noLock := false
	err = poll(ctx, l.out, func(ctx context.Context) (string, error) {
		switch err := l.client.Create(ctx, lease.DeepCopy()); {
		case err == nil:
			return "", nil
		case apierrors.IsForbidden(err):
			noLock = true
			_, err := fmt.Fprintf(l.out, "Warning: Infra %s is not locked against other setups and teardowns: %v\n", l.infra, err)
			return "", err
		case apierrors.IsNotFound(err) && l.command == commandTeardown:
			noLock = true
			return "", nil
		case !apierrors.IsAlreadyExists(err):
			return "", fmt.Errorf("locking Infra %s: %w", l.infra, err)
		}
		return l.takeOver(ctx, lease, observation)
	})
	if err != nil && ctx.Err() != nil {
		_ = l.release(ctx, lease, lockRenewal) // the API server may have received the last request
	}
	if err != nil || noLock {
		return ctx, func() {}, err
	}
	lockContext, cancel := context.WithCancelCause(ctx)
	renewing, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := l.renew(renewing, lease); err != nil {
			cancel(err)
		}
	}()
	return lockContext, func() {
		stop()
		<-done
		cancel(nil)
		if err := l.release(ctx, lease, lockDuration); err != nil {
			fmt.Fprintf(l.out, "Warning: deleting Lease %s/%s, which expires in %s: %v\n", lease.Namespace, lease.Name, lockDuration, err)
		}
	}, nil
}

// A lockObservation records for how long a Lease has had the same resourceVersion. A gap of more than lockRenewal
// between two reads restarts it.
type lockObservation struct {
	version     string    // resourceVersion
	since, last time.Time // of the first and the last read of this version
}

// takeOver deletes the Lease of a process that was killed. It returns what acquire waits for, for poll.
func (l *infraLock) takeOver(ctx context.Context, own *coordinationv1.Lease, observation *lockObservation) (string, error) {
	existing := &coordinationv1.Lease{}
	err := l.client.Get(ctx, client.ObjectKeyFromObject(own), existing)
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
		return fmt.Sprintf("another %s of the Infra to finish: %s", holderCommand(holder), describeHolder(holder)), nil
	}
	err = l.client.Delete(ctx, existing, client.Preconditions{UID: &existing.UID, ResourceVersion: &existing.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return "", fmt.Errorf("deleting Lease %s/%s of a %s that was killed: %w", own.Namespace, own.Name, holderCommand(holder), err)
	}
	return fmt.Sprintf("the lock of a %s that was killed", holderCommand(holder)), nil
}

// CheckIdle returns an error while a setup or teardown of an Infra or standalone ProxyServer runs. Without the right to read its
// Lease, that is unknown.
func CheckIdle(ctx context.Context, c client.Client, infra types.NamespacedName) error {
	lease := &coordinationv1.Lease{}
	err := c.Get(ctx, lockOf(infra), lease)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Lease %s: %w", lockOf(infra), err)
	}
	spec := &lease.Spec
	if spec.HolderIdentity == nil || spec.RenewTime == nil || time.Since(spec.RenewTime.Time) > leaseExpiry || holderEnded(*spec.HolderIdentity) {
		return nil // of a process that was killed
	}
	return fmt.Errorf("%s of %s runs: %s", holderCommand(*spec.HolderIdentity), infra, describeHolder(*spec.HolderIdentity))
}

// lockOf returns the name of the Lease of an Infra.
func lockOf(infra types.NamespacedName) types.NamespacedName {
	return types.NamespacedName{Namespace: infra.Namespace, Name: infra.Name + "-oooi-setup"}
}

// holderCommand returns the command of a holder identity: setup, unless it says teardown.
func holderCommand(holder string) string {
	if words := strings.Fields(holder); len(words) > 3 && words[3] == commandTeardown {
		return commandTeardown
	}
	return commandSetup
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

// renew renews the Lease until the context or its namespace ends. It returns an error if the Lease is lost or cannot be
// renewed.
func (l *infraLock) renew(ctx context.Context, own *coordinationv1.Lease) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lockRenewal):
		}
		existing := &coordinationv1.Lease{}
		err := l.client.Get(ctx, client.ObjectKeyFromObject(own), existing)
		if apierrors.IsNotFound(err) && l.namespaceEnded(ctx, own) {
			return nil
		}
		if err == nil && (existing.Spec.HolderIdentity == nil || *existing.Spec.HolderIdentity != *own.Spec.HolderIdentity) || apierrors.IsNotFound(err) {
			return errLockLost
		}
		if err == nil {
			existing.Spec.RenewTime = new(metav1.NowMicro())
			err = l.client.Update(ctx, existing)
		}
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			continue // read the holder again
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("renewing Lease %s/%s: %w", own.Namespace, own.Name, err)
		}
	}
}

// namespaceEnded reports whether the namespace of the Lease does not exist or is being deleted, so that no other
// process can have a Lease there.
func (l *infraLock) namespaceEnded(ctx context.Context, own *coordinationv1.Lease) bool {
	err := l.client.Create(ctx, own.DeepCopy(), client.DryRunAll)
	return apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// release deletes the Lease, unless another process holds it.
func (l *infraLock) release(ctx context.Context, own *coordinationv1.Lease, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	existing := &coordinationv1.Lease{}
	err := l.client.Get(ctx, client.ObjectKeyFromObject(own), existing)
	if err == nil && existing.Spec.HolderIdentity != nil && *existing.Spec.HolderIdentity == *own.Spec.HolderIdentity {
		err = l.client.Delete(ctx, existing, client.Preconditions{UID: &existing.UID})
	}
	return client.IgnoreNotFound(err) //nolint:wrapcheck // the caller names the Lease
}
