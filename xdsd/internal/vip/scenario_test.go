package vip

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/golden"
)

var (
	start     = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	tenantMAC = mac{2, 0, 0, 0, 9, 9}
	hostMACs  = map[string]mac{"middle": testMAC, "lower": {2, 0, 0, 0, 0, 0x01}, "higher": {2, 0, 0, 0, 0, 0xf1}, "tenant": tenantMAC}
)

// TestScenarios runs the transcripts testdata/*.txt with the replica "middle", whose peers have a lower and a higher MAC address. The first
// word of a line is one of commands.
func TestScenarios(t *testing.T) {
	golden.Files(t, "testdata/*.txt", func(t *testing.T, file string) {
		s := &scenario{t: t}
		golden.Transcript(t, file, func(line string) []string {
			words := strings.Fields(line)
			run, ok := commands[words[0]]
			if !ok {
				t.Fatalf("unknown command %q", line)
			}
			return run(s, words[1:])
		})
	})
}

// A scenario is a replica that commands change.
type scenario struct {
	*stateMachine

	t     *testing.T
	now   time.Time
	hosts answers
}

// standby is a standby replica whose proxy is ready. It watches the Lease, and "lower" has it.
func (s *scenario) standby() {
	s.now = start
	s.stateMachine = &stateMachine{identity: "middle", self: testMAC, addresses: []netip.Addr{test4, test6}, conflicts: map[string]int{}}
	s.setUp(start, true)
	s.setReady(start, true)
	s.setWatching(start, true)
	macs := maps.Clone(hostMACs)
	delete(macs, "tenant")
	s.setLease(start, time.Time{}, leaseRecord{holder: "lower", renewed: "1", version: 1, macs: macs})
	s.hosts = newAnswers(s.addresses)
}

// lastLease returns the last known Lease with another version and holder.
func (s *scenario) lastLease(args []string) leaseRecord {
	version, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	r := s.lease
	r.version, r.holder = version, args[1]
	return r
}

func (s *scenario) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// text returns actions, and whether the replica has the address and the Lease then.
func (s *scenario) text(do actions) []string {
	var parts []string
	if do.claim {
		parts = append(parts, "claim: "+do.reason)
	}
	if do.drop {
		parts = append(parts, "drop: "+do.reason)
	}
	if do.announce {
		parts = append(parts, "announce")
	}
	if do.request != noRequest {
		parts = append(parts, "request "+string(do.request))
	}
	if s.holding {
		parts = append(parts, "holding")
	}
	if s.leased(s.now) {
		parts = append(parts, "with the Lease")
	}
	return []string{cmp.Or(strings.Join(parts, ", "), "nothing")}
}

// changes change a replica's state: WORD or WORD=VALUE of the command "state".
var changes = map[string]func(s *scenario, value string){
	"ready":          func(s *scenario, _ string) { s.setReady(s.now, true) },
	"unready":        func(s *scenario, _ string) { s.ready = false },
	"terminating":    func(s *scenario, _ string) { s.terminating = true },
	"down":           func(s *scenario, _ string) { s.setUp(s.now, false) },
	"up":             func(s *scenario, _ string) { s.setUp(s.now, true) },
	"alone":          func(s *scenario, _ string) { s.lease.macs = map[string]mac{"middle": testMAC} },
	"away":           func(s *scenario, _ string) { s.apiFailed = true; s.setWatching(s.now, false) }, // the API server
	"api-failed":     func(s *scenario, _ string) { s.apiFailed = true },
	"dropped":        func(s *scenario, _ string) { s.droppedUnready = true },
	"unleased":       func(s *scenario, _ string) { s.leasedUntil = time.Time{} },
	"unknown":        func(s *scenario, _ string) { s.leaseKnown, s.lease.macs = false, nil }, // the Lease
	"quiet":          func(s *scenario, _ string) { s.lastFrameAt = s.now.Add(-time.Minute) }, // the network
	"lease":          func(s *scenario, value string) { s.lease.holder = value },
	"leased":         func(s *scenario, value string) { s.leasedUntil = s.now.Add(s.duration(value)) },
	"renewed":        func(s *scenario, value string) { s.lease.renewed = value; s.leaseChangedAt = s.now },
	"lease-changed":  func(s *scenario, value string) { s.leaseChangedAt = s.now.Add(-s.duration(value)) },
	"watching-since": func(s *scenario, value string) { s.watchingSince = s.now.Add(-s.duration(value)) },
	"renewal":        func(s *scenario, value string) { s.renewAt = s.now.Add(s.duration(value)) },
	"answered":       func(s *scenario, value string) { s.answeredAt, s.answeredBy = s.now, hostMACs[value] },
	"probes":         func(s *scenario, value string) { s.probes = int(s.duration(value + "ns")) },
}

// commands are the commands, by their first word. They return the output.
var commands = map[string]func(s *scenario, args []string) []string{
	"standby": func(s *scenario, args []string) []string { // "standby DURATION" has not heard a peer for that long
		s.standby()
		if len(args) > 0 {
			d := s.duration(args[0])
			s.now = start.Add(time.Hour)
			s.leaseChangedAt = s.now.Add(-time.Second)
			s.answeredAt, s.answeredBy, s.lastFrameAt = s.now.Add(-d), hostMACs["lower"], s.now.Add(-time.Second/2)
			for range d / probeInterval {
				s.setProbed(s.now)
			}
		}
		return nil
	},
	"holder": func(s *scenario, args []string) []string { // "holder unleased" has claimed the address while the API server is unavailable
		s.standby()
		s.now = start.Add(time.Minute)
		s.claim(s.now, "test")
		s.setLease(s.now, time.Time{}, s.lastLease([]string{"2", "middle"}))
		s.apiFailed, s.announceUntil = len(args) > 0, time.Time{}
		if !s.apiFailed {
			s.leasedUntil = s.now.Add(leaseDuration)
		}
		return nil
	},
	"state": func(s *scenario, args []string) []string {
		for _, arg := range args {
			word, value, _ := strings.Cut(arg, "=")
			change, ok := changes[word]
			if !ok {
				s.t.Fatalf("unknown state %q", arg)
			}
			change(s, value)
		}
		return nil
	},
	"wait": func(s *scenario, args []string) []string { s.now = s.now.Add(s.duration(args[0])); return nil },
	// pass lets time pass: the replica probes at each interval, and receives frames with the floating address from hosts, and one of
	// another host.
	"pass": func(s *scenario, args []string) []string {
		for end := s.now.Add(s.duration(args[0])); s.now.Before(end); s.now = s.now.Add(probeInterval) {
			s.setProbed(s.now)
			s.handleFrame(s.now, parsedFrame{Sender: mac{2, 0, 0, 0, 7, 7}})
			for _, host := range args[1:] {
				f := parsedFrame{Sender: hostMACs[host], Address: test4}
				s.hosts.record(s.now, f)
				s.handleFrame(s.now, f)
			}
		}
		return nil
	},
	"probe": func(s *scenario, args []string) []string { // as often as the argument says
		for range s.duration(args[0] + "ns") {
			s.setProbed(s.now)
		}
		return nil
	},
	"claim":   func(s *scenario, _ []string) []string { return s.text(s.claim(s.now, "test")) },
	"drop":    func(s *scenario, _ []string) []string { return s.text(s.drop(s.now, "test")) },
	"decide":  func(s *scenario, _ []string) []string { return s.text(s.decide(s.now)) },
	"confirm": func(s *scenario, _ []string) []string { return s.text(s.setConfirmed(s.now)) },
	"frame": func(s *scenario, args []string) []string { // HOST ADDRESS [leased]
		do := s.handleFrame(s.now, parsedFrame{Sender: hostMACs[args[0]], Address: netip.MustParseAddr(args[1]), Leased: len(args) > 2})
		return append(s.text(do), fmt.Sprintf("conflicts: %v", s.conflicts))
	},
	"flood": func(s *scenario, args []string) []string { // HOST claims the address each millisecond for ten seconds
		announced := 0
		for range 10_000 {
			s.now = s.now.Add(time.Millisecond)
			if s.handleFrame(s.now, parsedFrame{Sender: hostMACs[args[0]], Address: test4}).announce {
				announced++
			}
		}
		return []string{fmt.Sprint(announced, " announcements")}
	},
	"lease": func(s *scenario, args []string) []string { // VERSION HOLDER [requested]: after the last one was known
		readAt := time.Time{}
		if len(args) > 2 {
			readAt = s.now.Add(time.Millisecond)
		}
		s.setLease(s.now.Add(time.Second), readAt, s.lastLease(args))
		return append(s.text(actions{}), "holder "+s.lease.holder)
	},
	"granted": func(s *scenario, args []string) []string { // VERSION HOLDER, of a request to acquire the Lease
		return s.text(s.handleResult(s.now, requestResult{request: acquire, started: s.now.Add(-time.Second), lease: s.lastLease(args), granted: true}))
	},
	"failed": func(s *scenario, args []string) []string { // REQUEST
		return s.text(s.handleResult(s.now, requestResult{request: request(args[0]), started: s.now, err: errors.New("no answer")}))
	},
	"claimed-within": func(s *scenario, args []string) []string { // decides each 100 ms, and returns when it claims the address
		for d := time.Duration(0); d < s.duration(args[0]); d += 100 * time.Millisecond {
			s.handleFrame(s.now, parsedFrame{Sender: tenantMAC})
			s.setProbed(s.now)
			if s.decide(s.now).claim {
				return []string{"after " + d.String()}
			}
			s.now = s.now.Add(100 * time.Millisecond)
		}
		return []string{"no"}
	},
	"problems": func(s *scenario, _ []string) (lines []string) {
		for _, p := range s.problems(s.now, s.hosts) {
			lines = append(lines, fmt.Sprintf("%s: %s", p.Code, p.Message))
			if p.Remedy != "" {
				lines = append(lines, "remedy: "+p.Remedy)
			}
			for _, e := range slices.Sorted(slices.Values(p.Evidence)) {
				lines = append(lines, "evidence: "+e)
			}
		}
		return lines
	},
}
