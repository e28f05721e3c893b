package dns_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/test/lab"
)

func TestBrokenObjectsDoNotAffectOthers(t *testing.T) {
	cp := management.Get(t)
	green := green
	apply(t, cp, blue.yaml()+green.yaml())
	addHostedCluster(t, cp)
	c := startCoreDNS(t, `.:$DNS {
		bind 127.0.0.1
		errors
		prometheus 127.0.0.1:$METRICS
		hcpviews {
			kubeconfig $KUBECONFIG
		}
		hcpapps
		cache
		forward . $UPSTREAM
	}`, map[string]string{"KUBECONFIG": cp.Kubeconfig(), "UPSTREAM": newUpstreamResolver(t).address})
	questions := everyKindOfQuestion()
	c.await(t, questions...)
	if n := c.metric(t, "coredns_oooi_problems"); n != 0 {
		t.Fatalf("%.0f problems without broken objects", n)
	}

	// They lose conflicts with blue: they are created later, or sort after it if they are created in the same
	// second.
	nameless := cluster{name: "nameless", net: "127.70.0", proxy: "127.70.0.3", pod: "127.96.1.70", apps: "{enabled: false}"}
	thief := cluster{name: "thief", net: "127.80.0", proxy: "127.80.0.3", pod: "127.96.1.80", apps: "{enabled: false}"}
	locked := cluster{name: "locked", net: "127.90.0", proxy: "127.90.0.3", pod: "127.96.1.90", apps: "{enabled: true, metallb: {loadBalancerClass: metallb.io/vlan}}"}
	broken := []struct {
		reason, about, yaml string
		resource            schema.GroupVersionResource // resource of the broken object
		name                string
	}{
		{
			reason: "NoBaseDomain", about: "HostedCluster clusters/nameless",
			yaml:     strings.Replace(nameless.yaml(), "baseDomain: "+domain, `baseDomain: ""`, 1),
			resource: objects.HostedClusterResource, name: "nameless",
		},
		{
			reason: "NameConflict", about: "HostedCluster clusters/thief",
			yaml:     strings.Replace(thief.yaml(), "hostname: api.thief", "hostname: api.blue", 1),
			resource: objects.HostedClusterResource, name: "thief",
		},
		{
			reason: "KubeconfigRejected", about: "Infra clusters/locked",
			yaml:     locked.yaml() + readerSecret("locked", "current-context: nowhere"),
			resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, name: "locked-apps-reader",
		},
	}
	for _, b := range broken {
		apply(t, cp, b.yaml)
	}
	problems := func(reason string) float64 {
		return c.metric(t, "coredns_oooi_problems", fmt.Sprintf("reason=%q", reason))
	}
	for _, b := range broken {
		lab.Poll(t, "the problem "+b.reason, func() bool { return problems(b.reason) == 1 })
	}
	if n := c.metric(t, "coredns_oooi_problems"); n != float64(len(broken)) {
		t.Errorf("%.0f problems, want %d", n, len(broken))
	}

	// Each broken object is updated repeatedly, and valid objects change in between.
	const touches = 25
	for n := range touches {
		for _, b := range broken {
			touch(t, cp, b.resource, b.name, n)
		}
		moved := green
		moved.proxy = fmt.Sprintf("127.60.0.%d", 30+n)
		update(t, cp, moved.infra())
		c.await(t, question{from: greenVM, name: "api.green." + domain, want: moved.proxy})
	}
	update(t, cp, green.infra())
	c.await(t, questions...)
	c.expect(t,
		question{from: "127.80.0.10", name: "api.thief." + domain, want: thief.proxy},
		question{from: "127.90.0.10", name: "api.locked." + domain, want: locked.proxy},
		question{from: "127.90.0.10", name: "shop.apps.locked." + domain, want: noData},
		question{from: pod, name: "shop.apps.locked." + domain, want: noData},
		question{from: "127.70.0.10", name: "api.nameless." + domain, want: nameless.proxy}, // from spec.services
		question{from: "127.70.0.10", name: "api-int.nameless." + domain, want: upstreamAnswer},
	)
	for _, b := range broken {
		if n := problems(b.reason); n != 1 {
			t.Errorf("%s: %.0f problems, want 1", b.reason, n)
		}
		if lines := c.Log.Lines("reason="+b.reason, "[WARNING]"); len(lines) != 1 || !strings.Contains(lines[0], b.about) {
			t.Errorf("%s was logged %d times, want once with %s:\n%s", b.reason, len(lines), b.about, strings.Join(lines, ""))
		}
	}
}
