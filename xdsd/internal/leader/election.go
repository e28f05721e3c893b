package leader

import (
	"context"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// An Election remembers why this process could not read or write the Lease. The zero value is ready for use, also
// concurrently.
type Election struct {
	mu          sync.Mutex
	read, write string // time and error of the last request; empty if it succeeded
	// last is the Lease as read last, and renewed the time at which it was read first.
	last    resourcelock.LeaderElectionRecord
	renewed time.Time
}

// LastRenewed returns the holder of the Lease, and the time at which a renewal of it was read last, or at which this process
// first requested the Lease. A leader renews it several times within its duration. The time is zero before the first request.
func (e *Election) LastRenewed() (holder string, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last.HolderIdentity, e.renewed
}

// Failure returns the time and the error of the last request for the Lease that failed, empty if none did since the
// last success. A conflict is not a failure: another process wrote first.
func (e *Election) Failure() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.read != "" {
		return e.read
	}
	return e.write
}

func (e *Election) record(last *string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	*last = ""
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		*last = time.Now().UTC().Format(time.RFC3339) + ": " + err.Error()
	}
}

// observe records the Lease as read; nil if it could not be read.
func (e *Election) observe(record *resourcelock.LeaderElectionRecord) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if record != nil && !reflect.DeepEqual(*record, e.last) {
		e.last, e.renewed = *record, time.Now()
	}
	if e.renewed.IsZero() {
		e.renewed = time.Now()
	}
}

// observedLock records the results of requests for the Lease.
type observedLock struct {
	resourcelock.Interface

	election *Election
}

// Get implements resourcelock.Interface.
func (l *observedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	l.election.record(&l.election.read, err)
	l.election.observe(record)
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *observedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Create(ctx, record)
	l.election.record(&l.election.write, err)
	return err
}

// Update implements resourcelock.Interface.
func (l *observedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Update(ctx, record)
	l.election.record(&l.election.write, err)
	return err
}
