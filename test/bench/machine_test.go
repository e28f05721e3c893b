package bench

import (
	"context"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/densityops/oooi/test/lab"
)

// separateCPUs returns a CPU for measured servers and one for their load: the first and the last allowed one, which are the
// least likely to share a core.
func separateCPUs(t *testing.T) (server, load *int) {
	t.Helper()
	var set unix.CPUSet
	lab.Must(t, unix.SchedGetaffinity(0, &set))
	var cpus []int
	for cpu := range 64 * len(set) {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	if len(cpus) < 2 {
		return nil, nil
	}
	return &cpus[0], &cpus[len(cpus)-1]
}

// pinSelf pins all threads of this process to the load's CPU. New threads inherit it. restore undoes it.
func (b *bench) pinSelf() (restore func()) {
	b.Helper()
	if b.loadCPU == nil {
		return func() {}
	}
	var one, all unix.CPUSet
	b.check(unix.SchedGetaffinity(0, &all))
	one.Set(*b.loadCPU)
	set := func(cpus *unix.CPUSet) {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			b.Error(err)
		}
		for _, thread := range threads {
			if id, err := strconv.Atoi(thread.Name()); err == nil {
				_ = unix.SchedSetaffinity(id, cpus) // the thread may have ended
			}
		}
	}
	set(&one)
	return func() { set(&all) }
}

// cpuTime returns the CPU time that a process has used. It returns 0 for PID 0.
func (b *bench) cpuTime(pid int) time.Duration {
	b.Helper()
	if pid == 0 {
		return 0
	}
	return lab.CPUTime(b, pid)
}

// memory returns the resident memory of a process in MB (2^20 bytes).
func (b *bench) memory(pid int) float64 {
	b.Helper()
	resident, _ := lab.Memory(b, pid)
	return resident
}

// memoryAtRest returns the resident memory of a process after the settle time.
func (b *bench) memoryAtRest(pid int) float64 {
	b.Helper()
	time.Sleep(b.settle)
	return b.memory(pid)
}

// pause sleeps by nanosleep(2). Go's timers have a resolution of a millisecond in an otherwise idle process.
func pause(d time.Duration) {
	request := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&request, nil) // a signal may end it early
}

// objects creates and changes objects in the API server.
type objects struct{ client dynamic.Interface }

func newObjects(t *testing.T, management *lab.ControlPlane) objects {
	t.Helper()
	client, err := dynamic.NewForConfig(management.RESTConfig())
	lab.Must(t, err)
	return objects{client}
}

// create creates the objects of a YAML stream.
func (o objects) create(ctx context.Context, stream string) error {
	list, err := lab.ParseYAML([]byte(stream))
	for _, u := range list {
		if err == nil {
			resource, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
			_, err = o.client.Resource(resource).Namespace(u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{})
		}
	}
	return err
}

// patch merges a JSON object into an object.
func (o objects) patch(ctx context.Context, resource schema.GroupVersionResource, namespace, name, patch string) error {
	_, err := o.client.Resource(resource).Namespace(namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// fill calls create for each number in [from, to), concurrently.
func (b *bench) fill(from, to int, create func(ctx context.Context, number int) error) {
	b.Helper()
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(4 * runtime.NumCPU())
	for number := from; number < to && ctx.Err() == nil; number++ {
		group.Go(func() error { return create(ctx, number) })
	}
	b.check(group.Wait())
}

const (
	// maxChangePause is the longest pause between two changes. Pauses are random, so that some changes fall into the time in
	// which a daemon collects changes, and others do not.
	maxChangePause = 60 * time.Millisecond
	// changeDeadline limits the wait for one change.
	changeDeadline = time.Minute
)

// A change changes an object. Its effect has arrived when right returns nil.
type change struct {
	apply func(ctx context.Context) error
	right func() error
}

// timeChanges makes changes one at a time, and returns the times from the API server's replies until the changes have arrived, which
// it checks with a pause of poll between two checks.
func (b *bench) timeChanges(what string, changes int, poll time.Duration, next func(i int) change) []time.Duration {
	b.Helper()
	b.Logf("%s: %d changes", what, changes)
	var delays []time.Duration
	for i := range changes {
		c := next(i)
		arrived := make(chan time.Time, 1)
		go func() {
			defer close(arrived)
			for end := time.Now().Add(changeDeadline); time.Now().Before(end); pause(poll) {
				if c.right() == nil {
					arrived <- time.Now()
					return
				}
			}
		}()
		err := c.apply(b.Context())
		replied := time.Now()
		b.check(err)
		at, ok := <-arrived
		if !ok {
			b.Fatalf("%s, change %d: %v after %s", what, i, c.right(), changeDeadline)
		}
		delays = append(delays, max(0, at.Sub(replied)))
		time.Sleep(rand.N(maxChangePause))
	}
	return delays
}
