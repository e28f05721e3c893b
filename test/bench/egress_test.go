package bench

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/densityops/oooi/test/lab"
)

// Addresses of egress: the server that all names lead to, the upstream resolver, and Squid.
const (
	outsideServer  = "198.19.255.1:443"
	outsideDNS     = "198.19.255.53"
	outsideDomain  = "outside.example"
	squidAddress   = "198.18.0.6:3128"
	streamedAtOnce = 64 << 10 // bytes
	// slicesOfStreams is how many slices streams last, so that opening them takes little of the time.
	slicesOfStreams = 5
)

// outsideName is the number of a name outside of the cluster, from 0.
type outsideName int

func (n outsideName) String() string { return fmt.Sprintf("n%04d.%s", int(n), outsideDomain) }

// TestEgress measures the rate of streams from a server outside of the cluster, through Envoy, Squid and no proxy, and Envoy's memory
// with listed names.
func TestEgress(t *testing.T) {
	b := &proxyBench{bench: newBench(t, "Egress", lab.Config{})}
	var err error
	b.envoy, err = lab.InstallEnvoy(t.Context(), t.Logf)
	b.check(err)
	b.startBackend() // the default of names that are not listed
	b.startStreams()
	conn, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", net.JoinHostPort(outsideDNS, "53"))
	b.check(err)
	lab.RunDNS(t, &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(answerOutside)})
	b.check(b.objects.create(t.Context(), routedObjects()))
	b.startXdsd()
	for _, n := range append([]int{0}, b.names...) {
		b.measureNames(n)
	}
	b.compareStreams(b.names[len(b.names)-1])
}

// answerOutside answers all names with the address of the server.
func answerOutside(w dns.ResponseWriter, q *dns.Msg) {
	reply := new(dns.Msg).SetReply(q)
	if q.Question[0].Qtype == dns.TypeA {
		at := netip.MustParseAddrPort(outsideServer).Addr()
		reply.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: at.AsSlice()}}
	}
	_ = w.WriteMsg(reply) // the client may have ended
}

// startStreams accepts connections at the address of the server, and sends to each, once the client has sent something, as much as it
// receives.
func (b *bench) startStreams() {
	b.Helper()
	l, err := new(net.ListenConfig).Listen(b.Context(), "tcp4", outsideServer)
	b.check(err)
	var done sync.WaitGroup
	done.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			done.Go(func() {
				defer func() { _ = conn.Close() }()
				data := make([]byte, streamedAtOnce)
				for _, err := conn.Read(data); err == nil; {
					_, err = conn.Write(data)
				}
			})
		}
	})
	b.Cleanup(func() {
		_ = l.Close()
		done.Wait()
	})
}

// measureNames lists the first n names in the Infra, and measures the memory of a new Envoy before and after a connection to each.
func (b *proxyBench) measureNames(n int) {
	b.Helper()
	egress := "null"
	if n > 0 {
		hosts := make([]string, n)
		for i := range hosts {
			hosts[i] = fmt.Sprintf("%q", outsideName(i))
		}
		egress = fmt.Sprintf(`{"hosts": [%s], "allowAddresses": ["198.19.255.0/24"]}`, strings.Join(hosts, ","))
	}
	infras := schema.GroupVersionResource{Group: "hostedcluster.densityops.com", Version: "v1alpha1", Resource: "infras"}
	b.check(b.objects.patch(b.Context(), infras, namespace, routedCluster,
		fmt.Sprintf(`{"spec": {"networkConfig": {"dnsServers": [%q]}, "egress": %s}}`, outsideDNS, egress)))
	envoy := b.startEnvoy(nil)
	defer envoy.Kill(b)
	last := func() error { return b.expect(envoyAddress, lab.ClientHello(b, "api."+routedDomain), kas) }
	if n > 0 {
		last = func() error { return b.receive(outsideName(n - 1)) }
	}
	lab.Poll(b, fmt.Sprintf("the last of %d names", n), func() bool { return last() == nil })
	b.addFigure(fmt.Sprintf("names: %d, memory of Envoy", n), b.memoryAtRest(envoy.PID()), "MB", target{})
	for i := range n {
		b.check(b.receive(outsideName(i)))
	}
	if n > 0 {
		b.addFigure(fmt.Sprintf("names: %d, memory of Envoy, after a connection to each", n), b.memoryAtRest(envoy.PID()), "MB", target{})
	}
}

// receive connects to a name through Envoy, and returns an error unless the server sends something.
func (b *proxyBench) receive(name outsideName) error {
	conn, err := b.dialEnvoy(name)
	if err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	_ = conn.Close()
	return err
}

func (b *proxyBench) dialEnvoy(name outsideName) (net.Conn, error) {
	return b.dialStream(net.JoinHostPort(envoyAddress, "443"), lab.ClientHello(b, name.String()))
}

// dialStream connects to an address, and sends data.
func (b *bench) dialStream(address string, data []byte) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(b.Context(), "tcp4", address)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(connectionDeadline))
	_, err = conn.Write(data)
	return conn, err
}

// dialSquid connects to a name by CONNECT.
func (b *proxyBench) dialSquid(name outsideName) (net.Conn, error) {
	conn, err := b.dialStream(squidAddress, fmt.Appendf(nil, "CONNECT %[1]s:443 HTTP/1.1\r\nHost: %[1]s:443\r\n\r\n", name))
	if err != nil {
		return nil, err
	}
	var head []byte
	for one := make([]byte, 1); !bytes.HasSuffix(head, []byte("\r\n\r\n")); head = append(head, one[0]) {
		if _, err := conn.Read(one); err != nil {
			return nil, err
		}
	}
	if !bytes.HasPrefix(head, []byte("HTTP/1.1 200 ")) {
		return nil, fmt.Errorf("Squid answers %q", head)
	}
	_, err = conn.Write(lab.ClientHello(b, name.String()))
	return conn, err
}

// squidConfig configures Squid as a proxy for CONNECT that caches nothing.
const squidConfig = `
http_port %s
http_access allow all
dns_nameservers %s
cache deny all
access_log none
cache_log /dev/null
pid_filename none
netdb_filename none
coredump_dir none
pinger_enable off
shutdown_lifetime 0 seconds
`

// compareStreams compares Envoy, with n names, with Squid, if it is installed, each on one CPU, and with connections without a proxy.
func (b *proxyBench) compareStreams(n int) {
	b.Helper()
	envoy := b.startEnvoy(b.serverCPU)
	defer envoy.Kill(b)
	name := outsideName(n - 1)
	type proxy struct {
		name string
		pid  int
		dial func() (net.Conn, error)
	}
	proxies := []proxy{{"Envoy", envoy.PID(), func() (net.Conn, error) { return b.dialEnvoy(name) }}}
	if program, err := exec.LookPath("squid"); err == nil {
		squid := b.start("squid", b.serverCPU, program, "-N", "-f", b.write("squid.conf", fmt.Sprintf(squidConfig, squidAddress, outsideDNS)))
		defer squid.Kill(b)
		proxies = append(proxies, proxy{"Squid", squid.PID(), func() (net.Conn, error) { return b.dialSquid(name) }})
	} else {
		b.Log("without Squid, which is not installed")
	}
	proxies = append(proxies, proxy{"no proxy", 0, func() (net.Conn, error) { return b.dialStream(outsideServer, lab.ClientHello(b, name.String())) }})
	for _, p := range proxies {
		lab.Poll(b, p.name, func() bool {
			conn, err := p.dial()
			if err == nil {
				_, err = conn.Read(make([]byte, 1))
				_ = conn.Close()
			}
			return err == nil
		})
	}
	defer b.pinSelf()()
	for _, streams := range []int{1, 32} {
		var list []side
		for _, p := range proxies {
			list = append(list, side{p.name, p.pid, func(slice time.Duration) sample { return b.receiveAll(p.dial, streams, slicesOfStreams*slice) }, target{}})
		}
		b.compare(fmt.Sprintf("MB, streams: %d", streams), list...)
	}
}

// receiveAll opens streams, and receives from them until the given time is over. An operation is a megabyte.
func (b *proxyBench) receiveAll(dial func() (net.Conn, error), streams int, duration time.Duration) sample {
	b.Helper()
	started := time.Now()
	var received atomic.Int64
	var group errgroup.Group
	for range streams {
		group.Go(func() error {
			conn, err := dial()
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			data := make([]byte, streamedAtOnce)
			for err == nil && time.Since(started) < duration {
				var count int
				count, err = conn.Read(data)
				received.Add(int64(count))
			}
			return err
		})
	}
	b.check(group.Wait())
	return sample{operations: int(received.Load() / 1e6), took: time.Since(started)}
}
