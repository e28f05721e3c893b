package kubevirt

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/internal/testclient"
	"github.com/densityops/oooi/internal/watch"
)

// testClients serves the registered test clients of an Infra like VMs, until their Leases are deleted or expire. Only
// users with permissions in the Infra's namespace can create these Leases. VMs take precedence, and neither readiness nor the
// known VMs depend on test clients.
type testClients struct {
	directory *directory
	follower  *watch.Follower

	mu     sync.Mutex
	timers map[key]*time.Timer
}

func followTestClients(d *directory, client dynamic.Interface, log *slog.Logger) *testClients {
	namespace, infra, _ := strings.Cut(d.config.testClients, "/")
	c := &testClients{directory: d, timers: map[key]*time.Timer{}}
	c.follower = watch.NewFollower(client, watch.Following{
		Resource: coordinationv1.SchemeGroupVersion.WithResource("leases"), Kind: "Lease", Namespace: namespace, Selector: testclient.Selector(infra),
		Decode: decodeTestClient,
		Changed: func(o objects.Object) {
			if o == nil {
				list, _ := c.follower.List()
				c.replace(list)
				return
			}
			at := key{o.GetNamespace(), o.GetName()}
			if _, listed := c.follower.Get(at.namespace, at.name); listed {
				c.receive(o)
				return
			}
			c.remove(at)
		},
	}, log)
	return c
}

// decodeTestClient decodes the Lease of a test client.
func decodeTestClient(u *unstructured.Unstructured) objects.Object {
	o := &coordinationv1.Lease{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o)
	var decoded *testclient.Client
	if err == nil {
		decoded, err = testclient.Decode(o)
	}
	if err != nil {
		return &objects.Broken{ObjectMeta: metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName()}, Kind: u.GetKind(), Error: err.Error()}
	}
	return &registration{
		lease: o.Name,
		instance: instance{
			Namespace: o.Namespace, Name: testclient.VM(o.Name), UID: o.UID, Created: o.CreationTimestamp, Hostname: hostname("", o.Name), test: true,
			Interfaces: []nic{{Name: testclient.Component, MAC: decoded.MAC.String()}},
		},
		expires: decoded.Expires,
	}
}

// A registration is a test client with the time at which it expires.
type registration struct {
	instance

	lease   string // name of the Lease
	expires time.Time
}

// GetName implements objects.Object.
func (r *registration) GetName() string { return r.lease }

func (c *testClients) run(ctx context.Context) {
	c.follower.Run(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, timer := range c.timers {
		timer.Stop()
	}
}

// receive serves a test client until it expires. It ignores Leases that are not valid.
func (c *testClients) receive(o objects.Object) {
	r, ok := o.(*registration)
	if !ok {
		return
	}
	at, left := key{r.Namespace, r.lease}, time.Until(r.expires)
	if left <= 0 {
		c.remove(at)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if timer := c.timers[at]; timer != nil {
		timer.Stop()
	}
	c.timers[at] = time.AfterFunc(left, func() { c.remove(at) })
	c.directory.put(&r.instance)
}

// replace serves the test clients of a list, and no others.
func (c *testClients) replace(list []objects.Object) {
	listed := map[key]bool{}
	for _, o := range list {
		listed[key{o.GetNamespace(), o.GetName()}] = true
		c.receive(o)
	}
	c.mu.Lock()
	var missing []key
	for at := range c.timers {
		if !listed[at] {
			missing = append(missing, at)
		}
	}
	c.mu.Unlock()
	for _, at := range missing {
		c.remove(at)
	}
}

// remove unregisters a test client and frees its address.
func (c *testClients) remove(at key) {
	c.mu.Lock()
	timer := c.timers[at]
	delete(c.timers, at)
	c.mu.Unlock()
	if timer != nil {
		timer.Stop()
		c.directory.remove(key{at.namespace, testclient.VM(at.name)}, true)
	}
}
