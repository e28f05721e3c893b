package leasedb

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
)

// BenchmarkNewKubernetes measures DISCOVER and REQUEST of 128 concurrent clients without an address. A Lease object is created before
// each ACK.
func BenchmarkNewKubernetes(b *testing.B) {
	cp := plane.Get(b)
	i := serve(b, nil, fmt.Sprintf("store=kubernetes namespace=%s pool=bench kubeconfig=%s cidr=10.0.0.0/8 server=10.255.0.2 range=10.0.0.1-10.15.255.255",
		cp.Namespace(b), cp.Kubeconfig()))
	var next, failed atomic.Int64
	b.SetParallelism(64) // handlers mostly wait for the store
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			hw := mac(int(next.Add(1)))
			offer, ok := exchange(i, message(dhcpv4.MessageTypeDiscover, hw))
			if !ok {
				failed.Add(1)
				continue
			}
			ack, ok := exchange(i, message(dhcpv4.MessageTypeRequest, hw, withServer("10.255.0.2"), withWanted(offer.YourIPAddr)))
			if !ok || ack.MessageType() != dhcpv4.MessageTypeAck {
				failed.Add(1)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "DORA/s")
	b.ReportMetric(float64(failed.Load()), "failed")
}

// BenchmarkLeaseFloor measures the creation of Leases alone, 32 at a time: the upper limit for
// BenchmarkNewKubernetes.
func BenchmarkLeaseFloor(b *testing.B) {
	cp := plane.Get(b)
	client, err := coordination.NewForConfig(withoutRateLimit(cp.RESTConfig()))
	if err != nil {
		b.Fatal(err)
	}
	leases := client.Leases(cp.Namespace(b))
	var next, failed atomic.Int64
	b.SetParallelism(16)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			n := next.Add(1)
			o := &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("floor.", n), Labels: map[string]string{"a": "b", "c": mac(int(n)).String()[:2]}},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: new(fmt.Sprint(n)), LeaseDurationSeconds: new(int32(3600))},
			}
			if _, err := leases.Create(b.Context(), o, metav1.CreateOptions{}); err != nil {
				failed.Add(1)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
	b.ReportMetric(float64(failed.Load()), "failed")
}

func withoutRateLimit(c *rest.Config) *rest.Config {
	c.QPS, c.ContentType = -1, runtime.ContentTypeProtobuf
	return c
}
