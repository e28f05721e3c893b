package model

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/densityops/oooi/api/v1alpha1"
)

// TestUnchangedUpstreamsAreShared adds a backend to a ProxyServer. The upstreams of the others must be the same ones.
func TestUnchangedUpstreamsAreShared(t *testing.T) {
	server := &v1alpha1.ProxyServer{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}
	server.Spec.NetworkConfig.ServerIP = "192.0.2.3"
	add := func(name string) {
		server = server.DeepCopy()
		server.Spec.Backends = append(server.Spec.Backends, v1alpha1.ProxyBackend{
			Name: name, Hostname: name + ".example.com", Port: 443, TargetService: name, TargetPort: intstr.FromInt32(443), TargetNamespace: "n",
		})
	}
	add("b")
	add("d")
	b := NewBuilder(Options{Proxies: true}, nil)
	build := func() []*Upstream {
		return b.Update((&Objects{ProxyServers: []*v1alpha1.ProxyServer{server}}).Additions()).ProxyServers[0].Upstreams
	}
	before := build()
	add("a")
	add("c")
	after := build()
	if len(before) != 2 || len(after) != 4 || after[1] != before[0] || after[3] != before[1] {
		t.Errorf("upstreams %v and then %v", before, after)
	}
	server = server.DeepCopy()
	server.Spec.Backends[0].MaxConnections = new(int32(7))
	if again := build(); again[1] == after[1] || again[3] != after[3] {
		t.Errorf("upstreams %v after the change to one, before %v", again, after)
	}
}
