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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// A setup or teardown renews its pending record every lockRenewal. If a record is not renewed for lockDuration, its process was
// killed.
const (
	lockDuration = 10 * time.Second
	lockRenewal  = 2 * time.Second
)

// The annotation of a pending record names the process that applies it, as "COMMAND by process PID on HOST". Renewals change the
// other annotation, and so the resourceVersion.
const (
	annotationHolder  = v1alpha1.GroupName + "/holder"
	annotationRenewed = v1alpha1.GroupName + "/renewed"
	holderFormat      = "%s by process %d on %s"

	commandSetup    = "setup"
	commandTeardown = "teardown"
)

// errLockLost ends a setup or teardown if another process has changed its record: only one may change the objects.
var errLockLost = errors.New("another setup or teardown of this Infra has taken over")

// ErrConcurrent means that another setup or teardown has begun since this one read the cluster.
var ErrConcurrent = errors.New("another setup or teardown of this Infra has begun; run the command again")

// statusDeleted deletes all records.
const statusDeleted = ""

// killed is the message of a record whose process was killed.
func killed(command string) string { return command + " was killed" }

// begin stores a pending record, and renews it until the returned function is called, which sets its status. The returned
// context ends when another process changes the record. The error is ErrConcurrent if another process has stored the revision.
func (h *history) begin(ctx context.Context, r *Record, command string) (context.Context, func(status, message string) error, error) {
	host, err := os.Hostname()
	if err != nil {
		return ctx, nil, fmt.Errorf("locking %s: %w", h.infra, err)
	}
	holder := fmt.Sprintf(holderFormat, command, os.Getpid(), host)
	r.Status = StatusPending
	err = h.add(ctx, r, map[string]string{annotationHolder: holder, annotationRenewed: ""})
	if apierrors.IsAlreadyExists(err) {
		return ctx, nil, ErrConcurrent
	}
	if err != nil {
		return ctx, nil, err
	}
	locked, cancel := context.WithCancelCause(ctx)
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx)) // also during a rollback after Ctrl-C
	done, secret := make(chan struct{}), r.Secret.DeepCopy()
	go func() {
		defer close(done)
		if err := h.renew(renewing, secret, holder); err != nil {
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
			return errors.Join(h.deploy(ctx), h.prune(ctx))
		}
		return errors.Join(h.set(ctx, r, status, message), h.prune(ctx))
	}, nil
}

// renew renews a record until the context is done or the record's namespace is deleted. It returns errLockLost if the record has another
// holder.
func (h *history) renew(ctx context.Context, secret *corev1.Secret, holder string) error {
	path := func(annotation string) string {
		return "/metadata/annotations/" + strings.ReplaceAll(annotation, "/", "~1")
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lockRenewal):
		}
		patch := fmt.Appendf(nil, `[{"op": "test", "path": "/metadata/uid", "value": %q},
			{"op": "test", "path": %q, "value": %q}, {"op": "add", "path": %q, "value": %q}]`,
			secret.UID, path(annotationHolder), holder, path(annotationRenewed), time.Now().UTC().Format(time.RFC3339))
		err := h.client.Patch(ctx, secret.DeepCopy(), client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(Manager))
		switch {
		case err == nil || ctx.Err() != nil || apierrors.IsNotFound(err) && h.namespaceEnds(ctx):
		case apierrors.IsNotFound(err) || apierrors.IsInvalid(err): // deleted, or a test of the patch failed
			return errLockLost
		default:
			return fmt.Errorf("renewing Secret %s/%s: %w", secret.Namespace, secret.Name, err)
		}
	}
}

// namespaceEnds reports whether the namespace of records does not exist or is being deleted, so that no other process holds a record.
func (h *history) namespaceEnds(ctx context.Context) bool {
	namespace := &corev1.Namespace{}
	err := h.client.Get(ctx, client.ObjectKey{Name: recordNamespace}, namespace)
	return apierrors.IsNotFound(err) || err == nil && namespace.DeletionTimestamp != nil
}

// waitIdle reads the history, and waits while another process applies a revision. If that process was killed, waitIdle takes over its
// pending record; a process that only hung then ends. Without a namespace for records, the history is empty.
func waitIdle(ctx context.Context, c client.Client, out io.Writer, infra types.NamespacedName) (*history, error) {
	var h *history
	version, since, previous := "", time.Time{}, time.Time{} // resourceVersion of the pending record; first and last read of it
	err := poll(ctx, out, func(ctx context.Context) (string, error) {
		var err error
		if h, err = readHistory(ctx, c, infra); err != nil || h.holder() == "" {
			return "", err
		}
		now := time.Now()
		// after an outage of the API server the holder could not renew
		if read := h.last("").Secret.ResourceVersion; read != version ||
			now.Sub(previous) > lockRenewal {
			version, since = read, now
		}
		if previous = now; now.Sub(since) >= lockDuration {
			return "", nil
		}
		return "another " + h.holder() + " to finish", nil
	})
	if err != nil {
		return nil, err
	}
	if r := h.last(""); r != nil && r.Status == StatusPending && r.Secret.Annotations[annotationHolder] != "" {
		command, _, _ := strings.Cut(r.Secret.Annotations[annotationHolder], " ")
		err = h.set(ctx, r, StatusPending, killed(command))
	}
	return h, err
}

// CheckIdle returns an error if a setup or teardown of an Infra or standalone ProxyServer runs, or was killed on another host.
// If the user cannot read its records, CheckIdle returns nil.
func (a *Applier) CheckIdle(ctx context.Context, infra types.NamespacedName) error {
	if err := a.readHistory(ctx, infra); err != nil {
		return err
	}
	if holder := a.history.holder(); holder != "" {
		return fmt.Errorf("%w: %s has not finished", ErrConcurrent, holder)
	}
	return nil
}

// holder returns the process that applies the last revision; empty if there is none, or if it ran on this host and has ended.
func (h *history) holder() string {
	r := h.last("")
	if r == nil || r.Status != StatusPending {
		return ""
	}
	holder := r.Secret.Annotations[annotationHolder]
	var command, host string
	var pid int
	if _, err := fmt.Sscanf(holder, holderFormat, &command, &pid, &host); err != nil || runtime.GOOS == "windows" {
		return holder
	}
	if name, err := os.Hostname(); err != nil || name != host {
		return holder
	}
	if process, err := os.FindProcess(pid); err != nil || errors.Is(process.Signal(syscall.Signal(0)), os.ErrProcessDone) {
		return ""
	}
	return holder
}
