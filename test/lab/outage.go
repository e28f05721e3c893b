package lab

import (
	"context"
	"errors"
	"testing"
	"time"
)

// An Outage is a period in which a control plane does not run.
type Outage struct {
	cp   *ControlPlane
	over bool
}

// StartOutage kills etcd and the API server of a control plane. They are started again by End, at the latest
// at the end of the test.
func StartOutage(tb testing.TB, cp *ControlPlane) *Outage {
	tb.Helper()
	o := &Outage{cp: cp}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout) // the test's context is done
		defer cancel()
		Report(tb, o.restore(ctx))
	})
	Must(tb, errors.Join(cp.KillEtcd(), cp.KillAPIServer()))
	return o
}

// End starts etcd and the API server again.
func (o *Outage) End(tb testing.TB) {
	tb.Helper()
	started := time.Now()
	Must(tb, o.restore(tb.Context()))
	tb.Logf("etcd and the API server started in %s", time.Since(started).Round(time.Millisecond))
}

func (o *Outage) restore(ctx context.Context) error {
	if o.over {
		return nil
	}
	o.over = true
	return errors.Join(o.cp.StartEtcd(ctx), o.cp.StartAPIServer(ctx))
}
