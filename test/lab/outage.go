package lab

import (
	"context"
	"errors"
	"testing"
	"time"
)

// An Outage is the time for which a control plane is away.
type Outage struct {
	cp   *ControlPlane
	over bool
}

// StartOutage kills a control plane as a power cut would. It comes back when the test says
// so, at its end at the latest.
func StartOutage(tb testing.TB, cp *ControlPlane) *Outage {
	tb.Helper()
	o := &Outage{cp: cp}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout) // the test's own is over
		defer cancel()
		if err := o.restore(ctx); err != nil {
			tb.Error(err)
		}
	})
	if err := errors.Join(cp.KillEtcd(), cp.KillAPIServer()); err != nil {
		tb.Fatal(err)
	}
	return o
}

// End brings the control plane back.
func (o *Outage) End(tb testing.TB) {
	tb.Helper()
	started := time.Now()
	if err := o.restore(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	tb.Logf("etcd and the API server are back, after %s", time.Since(started).Round(time.Millisecond))
}

func (o *Outage) restore(ctx context.Context) error {
	if o.over {
		return nil
	}
	o.over = true
	return errors.Join(o.cp.StartEtcd(ctx), o.cp.StartAPIServer(ctx))
}
