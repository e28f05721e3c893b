package bench

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/densityops/oooi/test/lab"
)

const (
	// pollPause is the pause between two queries that check for a change, so that they take little CPU time from the server.
	pollPause = 100 * time.Microsecond
	// targetClusters is the number of hosted clusters for which there are targets.
	targetClusters = 1000
)

var (
	infras = schema.GroupVersionResource{Group: "hostedcluster.densityops.com", Version: "v1alpha1", Resource: "infras"}
	leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
)

// TestDNS measures hcpviews and hcpapps: queries per second, compared with a plugin that does nothing and with stock plugins
// that answer the same kind of query, memory, and the time from a change to the first right answer.
func TestDNS(t *testing.T) {
	b := newBench(t, "DNS", lab.Config{ServiceCIDR: "10.96.0.0/16"}, "dnsperf")
	b.check(b.objects.create(t.Context(), "{apiVersion: v1, kind: Namespace, metadata: {name: "+namespace+"}}"))
	noop := b.startDNS("noop", noopBlock(), loopback, nil)
	b.memoryWithout = b.measureMemory(b.startDNS("none", b.viewsOfAPI()+noopBlock(), loopback, withAnswer(questions(1, fromPod), noopAddress)))
	before := 0
	for _, n := range b.clusters {
		b.Logf("filling the API server: %d hosted clusters, Infras and Services", n)
		b.fill(before, n, func(ctx context.Context, number int) error { return b.objects.create(ctx, cluster(number).objects()) })
		before = n
		pods := b.startDNS("hcpviews", b.viewsOfAPI(), loopback, questions(n, fromPod))
		b.addMemory(fmt.Sprintf("%d clusters", n), b.measureMemory(pods), target{})
		if n < b.clusters[len(b.clusters)-1] {
			b.compare(fmt.Sprintf("%d clusters, view pod", n), pods.side(target{}), noop.with(pods).side(target{">=", 0.97}))
			pods.Kill(b)
			continue
		}
		b.compareAll(n, pods, noop)
		b.measureChanges(n)
		b.measureInfraPod(n)
	}
	b.measureNames(noop)
}

// compareAll compares hcpviews and hcpapps with n hosted clusters with noop, and with each stock plugin that can answer its
// names, or names of Services.
func (b *bench) compareAll(n int, pods, noop *dnsServer) {
	b.Helper()
	what := fmt.Sprintf("%d clusters, view ", n)
	peers := []side{pods.side(target{}), noop.with(pods).side(target{">=", 0.97})}
	for _, p := range b.peers(n) {
		s := b.startDNS(p.name, p.block, loopback, p.list)
		defer s.Kill(b)
		peers = append(peers, s.side(p.target))
	}
	b.compare(what+"pod", peers...)
	vlan := *pods
	vlan.source, vlan.list = cluster(0).onVLAN(vmHost).String(), questions(1, fromVLAN)
	b.compare(what+"vlan", b.checked(&vlan).side(target{}), noop.with(&vlan).side(target{">=", 0.97}))
	apps := b.startDNS("hcpapps", b.viewsOfAPI()+"\thcpapps "+baseDomain+"\n", loopback, questions(n, appsFromPod))
	b.compare(what+"pod, *.apps", apps.side(target{}), noop.with(apps).side(target{">=", 0.95}))
	apps.Kill(b)
}

// A peer is a configuration with which hcpviews is compared.
type peer struct {
	name, block string
	list        []question
	target      target
}

func (b *bench) peers(n int) []peer {
	b.Helper()
	list := questions(n, fromPod)
	var hosts, zone strings.Builder
	fmt.Fprintf(&zone, "@ 30 IN SOA dns hostmaster 1 7200 1800 86400 5\n@ 30 IN NS dns\ndns 30 IN A %s\n", loopback)
	for _, q := range list {
		fmt.Fprintf(&hosts, "%s %s\n", q.want, q.name)
		fmt.Fprintf(&zone, "%s. 30 IN A %s\n", q.name, q.want)
	}
	kubernetes := fmt.Sprintf("\tkubernetes cluster.local {\n\t\tkubeconfig %s\n\t\tttl 30\n\t}\n", b.management.Kubeconfig())
	b.write("one.yaml", cluster(0).objects())
	faster := target{">", 1}
	return []peer{
		{"hosts", fmt.Sprintf("\thosts %s {\n\t\tttl 30\n\t}\n", b.write("hosts.txt", hosts.String())), list, faster},
		{"file", fmt.Sprintf("\tfile %s %s\n", b.write("zone.txt", zone.String()), baseDomain), list, faster},
		// One template with one address for all clusters: the fastest possible configuration.
		{"template", fmt.Sprintf("\ttemplate IN A %s {\n\t\tmatch ^[a-z-]+([.]apps)?[.]c[0-9]+[.]\n\t\tanswer \"{{ .Name }} 30 IN A %s\"\n\t}\n",
			baseDomain, noopAddress), withAnswer(list, noopAddress), faster},
		{"kubernetes", kubernetes, questions(n, serviceQuestion), faster},
		{"k8s_external", kubernetes + fmt.Sprintf("\tk8s_external %s {\n\t\tttl 30\n\t}\n", externalDomain), questions(n, externalQuestion), faster},
		{"hcpviews with 1", fmt.Sprintf("\thcpviews %s {\n\t\tmanifests %s\n\t}\n", baseDomain, b.dir), questions(1, fromPod), target{">=", 0.95}},
	}
}

// noopAddress is the address with which noop answers all queries.
var noopAddress = netip.MustParseAddr("192.0.2.3")

// noopBlock returns the configuration of noop, whose record has a name as long as the queried ones.
func noopBlock() string {
	return fmt.Sprintf("\tnoop %q\n", fmt.Sprintf("%s.%s. 30 IN A %s", labels[4], cluster(0).domain(), noopAddress))
}

// viewsOfAPI returns the configuration of hcpviews that reads the API server.
func (b *bench) viewsOfAPI() string {
	return fmt.Sprintf("\thcpviews %s {\n\t\tkubeconfig %s\n\t}\n", baseDomain, b.management.Kubeconfig())
}

// infraPod returns the configuration of the DNS pod that setup deploys for a cluster, with one of its two views.
func (b *bench) infraPod(c cluster, view string) string {
	return fmt.Sprintf("\thcpviews %[1]s {\n\t\tkubeconfig %[2]s\n\t\tinfra %[3]s/%[4]s\n\t\thostedcluster %[3]s/%[4]s\n\t\tview %[5]s\n\t\tsnapshot %[6]s\n\t}\n\thcpapps %[1]s\n",
		c.domain(), b.management.Kubeconfig(), namespace, c.name(), view, filepath.Join(b.dir, c.name()+"-snapshot.json"))
}

// measureMemory returns a server's resident memory at rest and immediately after queries, in MB.
func (b *bench) measureMemory(s *dnsServer) [2]float64 {
	b.Helper()
	rest := b.memoryAtRest(s.PID())
	s.drive(b.slice)
	return [2]float64{rest, b.memory(s.PID())}
}

// addMemory reports how much more memory a server has than one without hosted clusters.
func (b *bench) addMemory(what string, m [2]float64, t target) {
	b.addFigure("memory of "+what+", at rest", m[0]-b.memoryWithout[0], "MB", t)
	b.addFigure("memory of "+what+", after queries", m[1]-b.memoryWithout[1], "MB", t)
}

// proxyChange changes the address of a cluster's proxy. A VM of the cluster queries with a server, if there is one.
func (b *bench) proxyChange(s *dnsServer, c cluster, source string, address netip.Addr) change {
	return change{
		func(ctx context.Context) error {
			return b.objects.patch(ctx, infras, namespace, c.name(), proxyPatch(address))
		},
		func() error { return s.ask(source, c.api(address)) },
	}
}

// measureChanges changes the addresses of proxies, first one at a time, and then all at once. The server may use every CPU.
func (b *bench) measureChanges(n int) {
	b.Helper()
	s := b.startDNSOn(nil, "changes", b.viewsOfAPI(), loopback, questions(1, fromPod))
	defer s.Kill(b)
	what := fmt.Sprintf("%d clusters: a proxy's address", n)
	p50, p99 := target{}, target{}
	if n == targetClusters {
		p50, p99 = target{"<=", 0.4}, target{"<=", 8}
	}
	b.addTimes(what, b.timeChanges(what, b.changes, pollPause, func(i int) change {
		c, host := cluster(i%n), byte(proxyMoved)
		if i/n%2 > 0 {
			host = proxyHost
		}
		return b.proxyChange(s, c, c.onVLAN(vmHost).String(), c.onVLAN(host))
	}), p50, p99)
	b.addFigure("memory after the changes", b.memory(s.PID())-b.memoryWithout[1], "MB", target{})

	b.Logf("changing all %d clusters at once", n)
	done, queries := make(chan struct{}), make(chan []time.Duration, 1)
	go func() { queries <- b.queryUntil(done, s) }()
	started := time.Now()
	b.fill(0, n, func(ctx context.Context, number int) error {
		c := cluster(number)
		return b.objects.patch(ctx, infras, namespace, c.name(), proxyPatch(c.onVLAN(proxyLast)))
	})
	replied := time.Now()
	for number := max(0, n-16); number < n; number++ {
		c := cluster(number)
		for s.ask(c.onVLAN(vmHost).String(), c.api(c.onVLAN(proxyLast))) != nil && time.Since(replied) < changeDeadline {
			pause(pollPause)
		}
	}
	last := milliseconds(time.Since(replied))
	close(done)
	burst := target{}
	if n == targetClusters {
		burst = target{"<=", 100}
	}
	b.addFigure(fmt.Sprintf("all %d clusters changed, until the API server's last reply", n), milliseconds(replied.Sub(started)), "ms", target{})
	b.addFigure("from the last reply to the last right answer", last, "ms", burst)
	b.addTimes("a query meanwhile, from query to answer", <-queries, target{}, target{})
	for number := range n {
		c := cluster(number)
		b.check(s.ask(c.onVLAN(vmHost).String(), c.api(c.onVLAN(proxyLast))))
	}
}

// queryUntil queries as a pod every millisecond, and returns the response times.
func (b *bench) queryUntil(done <-chan struct{}, s *dnsServer) []time.Duration {
	var times []time.Duration
	for {
		select {
		case <-done:
			return times
		default:
		}
		sent := time.Now()
		if err := s.ask(loopback, fromPod(0)[0]); err != nil {
			b.Error(err)
		}
		times = append(times, time.Since(sent))
		pause(time.Millisecond)
	}
}

// measureInfraPod measures the memory of the DNS pod of one Infra among n, also after changes of that Infra.
func (b *bench) measureInfraPod(n int) {
	b.Helper()
	limit := target{}
	if n == targetClusters {
		limit = target{"<=", 10}
	}
	s := b.startDNS("infra", b.infraPod(0, "pod"), loopback, fromPod(0))
	defer s.Kill(b)
	what := fmt.Sprintf("one Infra's pod among %d clusters", n)
	b.addMemory(what, b.measureMemory(s), limit)
	for i := range b.changes {
		b.check(b.proxyChange(s, 0, "", cluster(0).onVLAN([]byte{proxyHost, proxyMoved}[i%2])).apply(b.Context()))
	}
	b.addFigure("memory of "+what+", after changes", b.memoryAtRest(s.PID())-b.memoryWithout[1], "MB", limit)
}

// measureNames measures the DNS pod of an Infra that publishes the names of VMs and records: queries, memory and changes.
func (b *bench) measureNames(noop *dnsServer) {
	b.Helper()
	b.Logf("names of %d VMs and %d records", b.vms, records)
	b.check(b.objects.create(b.Context(), vmCluster.yaml(vmCIDR, ", dhcp: {serverIP: 127.32.0.4}, dns: {serverIP: 127.32.0.2, vmNames: {enabled: true}}")))
	b.fill(0, b.vms, func(ctx context.Context, number int) error {
		lease, err := vm(number).lease()
		if err != nil {
			return err
		}
		return b.objects.create(ctx, lease)
	})
	var names, static []question
	for v := range vm(b.vms) {
		names = append(names, v.named("worker"))
	}
	for i := range records {
		static = append(static, record(i))
	}
	block := b.infraPod(vmCluster, "vlan\n\t\tleases "+namespace+"/"+vmCluster.name())
	vms := b.startDNS("hcpviews", block, vmClient, names)
	what, both := fmt.Sprintf("names of %d VMs", b.vms), fmt.Sprintf("names of %d VMs and %d records", b.vms, records)
	b.addMemory(what, b.measureMemory(vms), target{})
	b.compare(what, vms.side(target{}), noop.with(vms).side(target{">=", 0.97}))
	vms.Kill(b)

	s := b.startDNSOn(nil, "names-changes", block, vmClient, names)
	b.addTimes(what+": a VM's Lease", b.timeChanges("Leases", b.changes, pollPause, func(i int) change {
		v, prefix := vm(i%b.vms), []string{"renamed", "worker"}[i/b.vms%2]
		patch := fmt.Sprintf(`{"metadata":{"labels":{"leasedb.densityops.com/hostname":"%s-%05d"}}}`, prefix, int(v))
		return change{
			func(ctx context.Context) error { return b.objects.patch(ctx, leases, namespace, v.leaseName(), patch) },
			func() error { return s.ask(vmClient, v.named(prefix)) },
		}
	}), target{}, target{})
	b.addTimes(what+": the proxy's address", b.timeChanges("addresses of the proxy", b.changes, pollPause, func(i int) change {
		return b.proxyChange(s, vmCluster, vmClient, netip.AddrFrom4([4]byte{127, 32, 252, byte(i)}))
	}), target{}, target{})
	b.check(b.objects.patch(b.Context(), infras, namespace, vmCluster.name(), recordPatch(record(0).want)))
	b.addTimes(both+": a record", b.timeChanges("records", b.changes, pollPause, func(i int) change {
		address := netip.AddrFrom4([4]byte{127, 32, 251, byte(i)})
		return change{
			func(ctx context.Context) error {
				return b.objects.patch(ctx, infras, namespace, vmCluster.name(), recordPatch(address))
			},
			func() error { return s.ask(vmClient, question{record(0).name, address}) },
		}
	}), target{}, target{})
	b.addFigure("memory of "+both+", after changes", b.memory(s.PID())-b.memoryWithout[1], "MB", target{})
	s.Kill(b)
	b.check(b.objects.patch(b.Context(), infras, namespace, vmCluster.name(), recordPatch(record(0).want)))
	fixed := b.startDNS("hcpviews", block, vmClient, static)
	b.compare(fmt.Sprintf("%d records", records), fixed.side(target{}), noop.with(fixed).side(target{">=", 0.97}))
	fixed.Kill(b)
}
