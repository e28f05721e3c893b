package proxy_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/lab"
)

// An ntpServer is an NTP server of stratum 1 (RFC 5905).
type ntpServer struct {
	conn net.PacketConn
	// requests are the clients' requests, and others all other datagrams.
	requests, others atomic.Int32
}

// Parts of an NTP packet.
const (
	ntpSize    = 48
	ntpRequest = 4<<3 | 3 // version 4, mode 3
	ntpReply   = 4<<3 | 4
	ntpControl = 4<<3 | 6 // mode 6, of ntpq
)

// startNTP starts an NTP server on UDP port 123 of an address. Its reference ID is a name of four characters.
func startNTP(t *testing.T, address, name string) *ntpServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", net.JoinHostPort(address, "123"))
	if err != nil {
		t.Fatal(err)
	}
	s := &ntpServer{conn: conn}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		request := make([]byte, 9000)
		for {
			n, from, err := conn.ReadFrom(request)
			switch {
			case errors.Is(err, net.ErrClosed):
				return
			case err != nil || n < ntpSize || request[0] != ntpRequest:
				s.others.Add(1)
				continue
			}
			s.requests.Add(1)
			now := time.Now()
			reply := make([]byte, ntpSize)
			reply[0], reply[1] = ntpReply, 1
			copy(reply[12:], name)
			copy(reply[24:], request[40:ntpSize]) // the request's transmit timestamp
			for _, at := range []int{16, 32, 40} {
				seconds := uint32(now.Unix() + 2208988800)
				reply[at], reply[at+1], reply[at+2], reply[at+3] = byte(seconds>>24), byte(seconds>>16), byte(seconds>>8), byte(seconds)
			}
			_, _ = conn.WriteTo(reply, from) // the client reports a missing reply
		}
	}()
	return s
}

// askTime sends an NTP request from a new port of a source address, or any if it is empty, and returns the reference ID in the reply,
// or why there is none.
func askTime(t *testing.T, source, to string) string {
	t.Helper()
	dialer := net.Dialer{}
	if source != "" {
		dialer.LocalAddr = &net.UDPAddr{IP: net.ParseIP(source)}
	}
	conn, err := dialer.DialContext(t.Context(), "udp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	request := make([]byte, ntpSize)
	_, _ = rand.Read(request[40:])
	request[0] = ntpRequest
	reply := make([]byte, 9000)
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	_, writeErr := conn.Write(request)
	n, err := conn.Read(reply)
	switch {
	case writeErr != nil || err != nil:
		return fmt.Sprint("no reply: ", errors.Join(writeErr, err))
	case n != ntpSize || reply[0] != ntpReply || !bytes.Equal(reply[24:32], request[40:]):
		return fmt.Sprintf("reply % x", reply[:n])
	}
	return string(reply[12:16])
}

// awaitTime asks for the time until a server with one of these reference IDs replies.
func awaitTime(t *testing.T, to string, names ...string) string {
	t.Helper()
	var got string
	lab.Await(t, "the time from "+strings.Join(names, " or "), func() string {
		if got = askTime(t, "", to); slices.Contains(names, got) {
			return ""
		}
		return got
	})
	return got
}

// TestEgressServesTime lets clients ask NTP servers outside, by a name, and by an address of each family. A client always gets the time
// of the same server, as long as that server responds.
func TestEgressServesTime(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.startOutside(t)
	d.set("pool", "A "+s.outside(2), "|", "A "+s.outside(3)) // at the next lookup
	startNTP(t, s.outside(2), "NAME")
	next := startNTP(t, s.outside(3), "NEXT")
	s.update(t, s.objects(), s.egress("ntp: [pool.outside.example.com]"))
	s.start(t)
	awaitTime(t, s.at(3, 123), "NAME")
	awaitTime(t, s.at6(3, 123), "NAME")
	if answer := s.send(t, 443, lab.ClientHello(t, "pool"+outside)); len(answer) > 0 {
		t.Error("the name of an NTP server leads outside on TCP port 443, too")
	}

	failing := startNTP(t, s.outside(4), "ADR4")
	outside6 := strings.Replace(s.net6, "2001:db8:", "2001:db8:f", 1) + "1"
	startNTP(t, outside6, "ADR6")
	s.update(t, s.egress(fmt.Sprintf("ntp: [pool.outside.example.com, %s, %q]", s.outside(4), outside6), outside6+"/128"))
	was := s.timeOfClients(t, "ADR4", "ADR6", "NAME")
	for range 3 {
		for source, want := range was {
			if got := askTime(t, source, s.at(3, 123)); got != want {
				t.Errorf("%s gets the time of %s, then of %s", source, want, got)
			}
		}
	}
	_ = failing.conn.Close()
	moved, others := 0, 0 // of clients of the other servers
	for source, now := range s.timeOfClients(t, "ADR6", "NAME") {
		if was[source] != "ADR4" {
			others++
			if was[source] != now {
				moved++
			}
		}
	}
	t.Logf("%d of %d clients of other servers have moved", moved, others)
	if moved > others/4 {
		t.Errorf("after the failure of a server, %d of %d clients of other servers get another one's time", moved, others)
	}
	if n := next.requests.Load(); n > 0 {
		t.Errorf("another address of the name got %d requests, although the first one answers", n)
	}
}

// timeOfClients waits until the servers with these reference IDs answer 60 clients, and no other. It returns each client's reference ID.
func (s *site) timeOfClients(t *testing.T, names ...string) map[string]string {
	t.Helper()
	var sources map[string]string
	lab.Await(t, "the time from "+strings.Join(names, " and "), func() string {
		before := sources
		sources = map[string]string{}
		for i := range 60 {
			source := s.IP(100 + i)
			if sources[source] = askTime(t, source, s.at(3, 123)); !slices.Contains(names, sources[source]) {
				return source + ": " + sources[source]
			}
		}
		if got := slices.Compact(slices.Sorted(maps.Values(sources))); !slices.Equal(got, names) {
			return fmt.Sprint(got)
		}
		if !maps.Equal(before, sources) { // some were asked before the servers changed
			return "changing"
		}
		return ""
	})
	return sources
}

// TestNTPRefusesClusterAddresses names NTP servers with addresses that clients must not reach, and names that do not
// resolve. They must delay neither the proxy nor the requests to other servers.
func TestNTPRefusesClusterAddresses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.report()
	d := s.startOutside(t)
	inside := startNTP(t, s.IP(40), "IN40")
	local := startNTP(t, "127.0.0.1", "LOOP")
	d.set("inside", "A "+s.IP(40))
	d.set("loopback", "A 127.0.0.1", "AAAA ::1")
	const names = "inside.outside.example.com, loopback.outside.example.com, gone.outside.example.com"
	s.update(t, s.objects(), s.egress("ntp: ["+names+", 127.0.0.1]"))
	s.start(t)
	lab.Poll(t, "the port to be ready in status", func() bool {
		return slices.Contains(s.replica(t).Listeners, v1alpha1.ListenerStatus{Port: 123, Ready: true})
	})
	s.noTime(t)
	s.update(t, s.egress(fmt.Sprintf("ntp: [127.0.0.1, %s]", s.IP(40)))) // both are refused
	lab.Poll(t, "the port to be closed", func() bool { return strings.Contains(askTime(t, "", s.at(3, 123)), "connection refused") })
	state, _ := s.xdsd.state(t)
	for i, address := range []string{"127.0.0.1", s.IP(40)} {
		want := fmt.Sprintf("spec.egress.ntp[%d]: %s is not permitted", i, address)
		if !slices.ContainsFunc(state.Problems, func(p model.Problem) bool { return strings.HasPrefix(p.Message, want) }) {
			t.Errorf("no problem %q in %v", want, state.Problems)
		}
	}

	startNTP(t, s.outside(2), "GOOD")
	s.update(t, s.egress("ntp: ["+names+", "+s.outside(2)+"]"))
	s.timeOfClients(t, "GOOD")
	startNTP(t, s.outside(5), "LATE")
	s.update(t, s.egress("ntp: [inside.outside.example.com]"))
	lab.Poll(t, "the proxy to have no server", func() bool { return strings.HasPrefix(askTime(t, "", s.at(3, 123)), "no reply") })
	d.set("inside", "A "+s.outside(5)) // works without a change to the Infra
	awaitTime(t, s.at(3, 123), "LATE")
	if n := inside.requests.Load() + inside.others.Load() + local.requests.Load() + local.others.Load(); n > 0 {
		t.Errorf("refused servers got %d datagrams", n)
	}
}

// noTime checks that requests get no reply.
func (s *site) noTime(t *testing.T) {
	t.Helper()
	for range 3 {
		if got := askTime(t, "", s.at(3, 123)); !strings.HasPrefix(got, "no reply") {
			t.Errorf("a refused server replies: %s", got)
		}
	}
}
