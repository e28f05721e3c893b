package watch

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/test/lab"
)

// scriptedSource is a source whose tables it fills itself, instead of watches.
type scriptedSource func(context.Context)

func (s scriptedSource) run(ctx context.Context) { s(ctx) }

func (scriptedSource) status() []ResourceStatus { return nil }

// TestBurst changes a Service every 100 us for 100 ms, while a snapshot takes 3 ms with its subscribers. Time is the time of
// the test's clock.
func TestBurst(t *testing.T) {
	const (
		cost     = 3 * time.Millisecond
		interval = 100 * time.Microsecond
		changes  = 1000
	)
	for name, tc := range map[string]struct {
		proxies bool
		pause   time.Duration
	}{
		"DNS":     {false, pauseFactor * cost},
		"proxies": {true, maxPause},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := Config{Proxies: tc.proxies}
				addressOf := func(change int) netip.Addr { return netip.AddrFrom4([4]byte{10, 96, byte(change >> 8), byte(change)}) }
				var started, ended time.Time
				s := &Store{config: config, log: slog.New(slog.DiscardHandler), dirty: make(chan struct{}, 1)}
				s.file = s.snapshotFile()
				lab.Must(t, s.watchAPI(&rest.Config{Host: "http://192.0.2.1"}))
				s.source = scriptedSource(func(ctx context.Context) {
					var services *table
					for _, table := range s.tables {
						if table.resource.gvr == objects.ServiceResource {
							services = table
						}
						table.replace(map[string]objects.Object{})
					}
					time.Sleep(time.Second)
					started = time.Now()
					for change := range changes {
						service := objects.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "proxy"}}
						service.Spec.ClusterIPs = []string{addressOf(change).String()}
						services.set(&service)
						ended = time.Now()
						time.Sleep(interval)
					}
					<-ctx.Done()
				})
				type snapshot struct {
					at      time.Time
					address string
				}
				var built []snapshot
				s.Subscribe(func() {
					built = append(built, snapshot{time.Now(), fmt.Sprint(s.Snapshot().ServiceIPs("clusters/proxy"))})
					time.Sleep(cost)
				})
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				s.Run(ctx)

				first := 0
				for built[first].at.Before(started) {
					first++
				}
				burst := built[first:]
				if burst[0].at != started || burst[0].address != fmt.Sprint([]netip.Addr{addressOf(0)}) {
					t.Errorf("the first change was served as %s after %s, want at once", burst[0].address, burst[0].at.Sub(started))
				}
				for i := range burst[1:] {
					if gap := burst[i+1].at.Sub(burst[i].at); gap != cost+tc.pause {
						t.Errorf("snapshot %d of the burst follows the previous one after %s, want %s", i+1, gap, cost+tc.pause)
					}
				}
				last := burst[len(burst)-1]
				if late := last.at.Sub(ended); late > cost+tc.pause || last.address != fmt.Sprint([]netip.Addr{addressOf(changes - 1)}) {
					t.Errorf("the last change was served as %s after %s, want within %s", last.address, late, cost+tc.pause)
				}
			})
		})
	}
}
