package ingress_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/ingresstest"
	"github.com/densityops/oooi/test/lab"
)

// BenchmarkFleet measures many Services and VirtualIngresses: the daemon's memory, the time of a start until all Ingresses exist, and
// the time from the API server's reply, when a mirrored Service was recreated under another name, until a watch reports the updated
// Ingress or HTTPRoute, or the alias that stands for the new Service: for one Service after the other, and for one of each VirtualIngress at once.
//
//	go test -run xxx -bench Fleet -benchtime 1000x -timeout 60m ./test/integration/ingress
func BenchmarkFleet(b *testing.B) {
	for _, size := range []struct {
		services, virtual int
		kind              string // of the object that leads to the Service
	}{{500, 500, "Ingress"}, {500, 500, "alias"}, {500, 500, "HTTPRoute"}, {5000, 1000, "Ingress"}} {
		b.Run(fmt.Sprintf("%d Services, %s", size.services, size.kind), func(b *testing.B) {
			f := newFleet(b, size.services, size.virtual, size.kind)
			f.start(b)
			full := f.resident(b)
			b.ResetTimer() // deletes metrics that were reported before
			report(b, "one-", f.recreate(b, b.N))
			b.StopTimer()
			b.ReportMetric(f.cold.Seconds(), "cold-s")
			b.ReportMetric(f.empty, "empty-MB")
			b.ReportMetric(full, "full-MB")
			report(b, "burst-", f.burst(b))
			b.ReportMetric(f.replica.Metric(b, "process_cpu_seconds_total"), "cpu-s")
			b.ReportMetric(f.resident(b), "after-MB")
		})
	}
}

// report reports the median and the 99th percentile of times in milliseconds.
func report(b *testing.B, prefix string, times []time.Duration) {
	b.Helper()
	slices.Sort(times)
	at := func(share float64) float64 {
		return float64(times[min(len(times)-1, int(share*float64(len(times))))].Microseconds()) / 1000
	}
	b.ReportMetric(at(0.50), prefix+"p50-ms")
	b.ReportMetric(at(0.99), prefix+"p99-ms")
}

// fleet is many Services and VirtualIngresses.
type fleet struct {
	*site

	replica  *lab.Replica
	virtual  int
	kind     string
	current  []string // the Service of each VirtualIngress
	cold     time.Duration
	empty    float64
	mu       sync.Mutex
	expected map[string]chan time.Time // by the Service that an object will lead to
}

// newFleet creates Services of one hosted cluster, and a VirtualIngress for each of the first virtual ones.
func newFleet(b *testing.B, services, virtual int, kind string) *fleet {
	b.Helper()
	cp := lab.New(b, lab.Config{Name: "bench", CRDs: []lab.CRDSet{lab.Oooi, lab.GatewayAPI}})
	f := &fleet{site: &site{ingresstest.New(b, cp)}, virtual: virtual, kind: kind, expected: map[string]chan time.Time{}}
	install(b, cp)
	f.replica = newReplica(b, cp, "ingress", account("oooi-system"))
	f.replica.Lead(b)
	f.empty = f.resident(b)
	f.replica.Terminate(b)
	for i := range services {
		f.current = append(f.current, fmt.Sprintf("a-%d-0", i))
		f.create(f.current[i], i)
	}
	fields := map[string]string{"Ingress": "backendMode: Direct", "alias": "backendMode: Alias", "HTTPRoute": toFront}[kind]
	for i := range virtual {
		f.Apply(virtualIngressOf(fmt.Sprintf("v-%d", i), tenantLabels(i), "number: 80", fields))
	}
	return f
}

// tenantLabels returns the labels of Service number i.
func tenantLabels(i int) string {
	return fmt.Sprintf("cluster.x-k8s.io/cluster-name: demo, cluster.x-k8s.io/tenant-service-name: \"%d\", cluster.x-k8s.io/tenant-service-namespace: shop", i)
}

// create creates Service number i. It is headless, because there are fewer ClusterIPs than Services.
func (f *fleet) create(name string, i int) {
	f.Helper()
	f.Apply(fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s, labels: {%s}}, spec: {clusterIP: None, selector: {vm: guest}, ports: [{name: http, port: 80, targetPort: 30080}]}}",
		name, tenantLabels(i)))
}

// start starts the daemon, and waits until all VirtualIngresses are resolved.
func (f *fleet) start(b *testing.B) {
	b.Helper()
	f.watch(b)
	began := time.Now()
	f.replica.Start(b)
	lab.Await(b, "all VirtualIngresses to be resolved", func() string {
		list, resolved := &v1alpha1.VirtualIngressList{}, 0
		lab.Must(b, f.Client.List(b.Context(), list, client.InNamespace(f.Namespace)))
		for _, v := range list.Items {
			if len(v.Status.Conditions) > 0 && slices.Contains([]string{v1alpha1.ReasonResolved, v1alpha1.ReasonPending}, v.Status.Conditions[0].Reason) { // there is no Gateway
				resolved++
			}
		}
		if resolved < f.virtual {
			return fmt.Sprintf("%d of %d are resolved", resolved, f.virtual)
		}
		return ""
	})
	f.cold = time.Since(began)
}

// watch watches the objects that lead to Services, and sends the time to the channel of recreateService when one does.
func (f *fleet) watch(b *testing.B) {
	b.Helper()
	c, err := client.NewWithWatch(f.ControlPlane.RESTConfig(), client.Options{Scheme: f.Client.Scheme()})
	lab.Must(b, err)
	list := map[string]client.ObjectList{"Ingress": &networkingv1.IngressList{}, "alias": &corev1.ServiceList{}, "HTTPRoute": &gatewayv1.HTTPRouteList{}}[f.kind]
	ctx, cancel := context.WithCancel(b.Context())
	w, err := c.Watch(ctx, list, client.InNamespace(f.Namespace))
	lab.Must(b, err)
	ended := make(chan struct{})
	b.Cleanup(func() { cancel(); w.Stop(); <-ended })
	go func() {
		defer close(ended)
		for e := range w.ResultChan() {
			name := ""
			switch o := e.Object.(type) {
			case *networkingv1.Ingress:
				name = f.Namespace + "/" + o.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Name
			case *gatewayv1.HTTPRoute:
				name = f.Namespace + "/" + string(o.Spec.Rules[0].BackendRefs[0].Name)
			case *corev1.Service:
				name = o.Annotations[v1alpha1.AnnotationAliasOf]
			}
			f.mu.Lock()
			if ch := f.expected[name]; ch != nil {
				ch <- time.Now()
				delete(f.expected, name)
			}
			f.mu.Unlock()
		}
	}()
}

// recreateService recreates a Service under another name. It returns the time of the API server's reply, and a channel that
// receives the time at which an object leads to it.
func (f *fleet) recreateService(i, round int) (time.Time, chan time.Time) {
	f.Helper()
	f.RemoveService(f.current[i])
	f.current[i] = fmt.Sprintf("a-%d-%d", i, round)
	ch := make(chan time.Time, 1)
	f.mu.Lock()
	f.expected[f.Namespace+"/"+f.current[i]] = ch
	f.mu.Unlock()
	f.create(f.current[i], i)
	return time.Now(), ch
}

func (f *fleet) recreate(b *testing.B, n int) []time.Duration {
	b.Helper()
	var times []time.Duration
	for k := range n {
		at, ch := f.recreateService(k%f.virtual, 1+k/f.virtual)
		times = append(times, f.await(b, at, ch))
	}
	return times
}

func (f *fleet) await(b *testing.B, at time.Time, ch chan time.Time) time.Duration {
	b.Helper()
	select {
	case updated := <-ch:
		return max(0, updated.Sub(at)) // the watch may be faster than the reply
	case <-time.After(lab.WaitTimeout):
		b.Fatalf("no %s leads to the Service", f.kind)
		return 0
	}
}

// burst recreates all Services as fast as the API server accepts requests.
func (f *fleet) burst(b *testing.B) (times []time.Duration) {
	b.Helper()
	began, updated := make([]time.Time, f.virtual), make([]chan time.Time, f.virtual)
	for i := range began {
		began[i], updated[i] = f.recreateService(i, 1_000_000)
	}
	for i, at := range began {
		times = append(times, f.await(b, at, updated[i]))
	}
	return times
}

// resident returns the daemon's resident memory in MB.
func (f *fleet) resident(b *testing.B) float64 {
	b.Helper()
	return f.replica.Metric(b, "process_resident_memory_bytes") / 1e6
}
