package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A setup or teardown renews its pending record every lockRenewal. One that is not renewed for lockDuration belongs to a process
// that was killed.
const (
	lockDuration = 10 * time.Second
	lockRenewal  = 2 * time.Second
)

// errLockLost ends a setup or teardown whose record another one has changed: two must not change the same objects.
var errLockLost = errors.New("another setup or teardown of this Infra has taken over")

// ErrConcurrent means that another setup or teardown has begun since this one read the cluster.
var ErrConcurrent = errors.New("another setup or teardown of this Infra has begun; run the command again")

// statusDeleted deletes all records.
const statusDeleted = ""

const (
	commandSetup    = "setup"
	commandTeardown = "teardown"
)

// begin stores a pending record, and renews it until the returned function is called, which sets its status. The returned
// context ends when another process changes the record. The error is ErrConcurrent if another process has stored the revision.
func (h *history) begin(ctx context.Context, r *Record, command string) (context.Context, func(status, message string) error, error) {
	host, err := os.Hostname()
	if err != nil {
		return ctx, nil, fmt.Errorf("locking %s: %w", h.infra, err)
	}
	holder := fmt.Sprintf("%s %d %s %s", host, os.Getpid(), rand.String(5), command)
	r.Status = StatusPending
	err = h.add(ctx, r, map[string]string{annotationHolder: holder, annotationRenewed: time.Now().UTC().Format(time.RFC3339)})
	if apierrors.IsAlreadyExists(err) {
		return ctx, nil, ErrConcurrent
	}
	if err != nil {
		return ctx, nil, err
	}
	locked, cancel := context.WithCancelCause(ctx)
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx)) // also during a rollback after Ctrl-C
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := h.renew(renewing, r.secret.DeepCopy(), holder); err != nil {
			cancel(err)
		}
	}()
	return locked, func(status, message string) error {
		stop()
		<-done
		defer cancel(nil)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockDuration)
		defer cancel()
		switch status {
		case statusDeleted:
			return h.drop(ctx)
		case StatusDeployed:
			return h.deploy(ctx, r)
		}
		return h.set(ctx, r, status, message)
	}, nil
}

// renew renews a record until the context or the record's namespace ends. It returns errLockLost if the record has another holder.
func (h *history) renew(ctx context.Context, secret *corev1.Secret, holder string) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lockRenewal):
		}
		now := &corev1.Secret{}
		err := h.client.Get(ctx, client.ObjectKeyFromObject(secret), now)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the request ended with the context
		case apierrors.IsNotFound(err) && h.namespaceEnds(ctx):
			return nil
		case apierrors.IsNotFound(err) || err == nil && now.Annotations[annotationHolder] != holder:
			return errLockLost
		case err != nil:
			return fmt.Errorf("reading Secret %s/%s: %w", secret.Namespace, secret.Name, err)
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"resourceVersion": now.ResourceVersion, "annotations": map[string]string{annotationRenewed: time.Now().UTC().Format(time.RFC3339)},
		}})
		if err == nil {
			err = h.client.Patch(ctx, now, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(Manager))
		}
		if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return fmt.Errorf("renewing Secret %s/%s: %w", secret.Namespace, secret.Name, err)
		}
	}
}

// namespaceEnds reports whether the namespace of records does not exist or is being deleted: no other process can have a record.
func (h *history) namespaceEnds(ctx context.Context) bool {
	namespace := &corev1.Namespace{}
	err := h.client.Get(ctx, client.ObjectKey{Name: recordNamespace}, namespace)
	return apierrors.IsNotFound(err) || err == nil && namespace.DeletionTimestamp != nil
}

// waitIdle reads the history, and waits while another process applies a revision. The last record of the result is pending only
// if its process was killed. Without a namespace for records there are none.
func waitIdle(ctx context.Context, c client.Client, out io.Writer, infra types.NamespacedName) (*history, error) {
	version, since, previous := "", time.Time{}, time.Time{} // resourceVersion of the pending record; first and last read of it
	err := poll(ctx, out, func(ctx context.Context) (string, error) {
		h, err := listRecords(ctx, c, infra)
		if err != nil {
			return "", err
		}
		r := h.last("")
		if r == nil || r.Status != StatusPending {
			return "", nil
		}
		now, holder := time.Now(), r.secret.Annotations[annotationHolder]
		if r.secret.ResourceVersion != version || now.Sub(previous) > lockRenewal { // after an outage of the API server the holder could not renew
			version, since = r.secret.ResourceVersion, now
		}
		previous = now
		if now.Sub(since) >= lockDuration || holderEnded(holder) {
			return "", nil
		}
		return fmt.Sprintf("another %s of the Infra to finish: %s", holderCommand(holder), describeHolder(holder)), nil
	})
	if err != nil {
		return nil, err
	}
	return readHistory(ctx, c, infra)
}

// CheckIdle returns an error while a setup or teardown of an Infra or standalone ProxyServer runs. Without the right to read its
// records, that is unknown.
func CheckIdle(ctx context.Context, c client.Client, infra types.NamespacedName) error {
	h, err := listRecords(ctx, c, infra)
	if apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return err
	}
	r := h.last("")
	if r == nil || r.Status != StatusPending {
		return nil
	}
	holder := r.secret.Annotations[annotationHolder]
	renewed, err := time.Parse(time.RFC3339, r.secret.Annotations[annotationRenewed])
	if err != nil || time.Since(renewed) > leaseExpiry || holderEnded(holder) {
		return nil //nolint:nilerr // of a process that was killed
	}
	return fmt.Errorf("%s of %s runs: %s", holderCommand(holder), infra, describeHolder(holder))
}

// holderCommand returns the command of a holder: setup, unless it says teardown.
func holderCommand(holder string) string {
	if words := strings.Fields(holder); len(words) > 3 && words[3] == commandTeardown {
		return commandTeardown
	}
	return commandSetup
}

// describeHolder formats a holder as "process PID on HOST".
func describeHolder(holder string) string {
	words := strings.Fields(holder)
	if len(words) < 2 {
		return holder
	}
	return "process " + words[1] + " on " + words[0]
}

// holderEnded reports whether a holder is a process of this host that has ended. Without a holder, setup could not restore a
// revision.
func holderEnded(holder string) bool {
	if holder == "" {
		return true
	}
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
