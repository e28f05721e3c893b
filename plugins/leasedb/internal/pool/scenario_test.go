package pool_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/plugins/leasedb/internal/leasetest"
	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// TestScenarios runs the transcripts testdata/*.txt: each line is a command, and the output is the pool's answer. The first word is one
// of commands; "pool [vms] [KEY=VALUE ...]" creates the pool, and "replica" another one on the same store, to which commands after "@" go.
//
// CLIENT is a client of the pool; in a pool of VMs, a VM that the directory has from then on. NAME*N are the clients NAME0 to NAME(N-1); the
// answers to many are counted. ADDRESS is an address, or the one that a client has. No address may be leased to two clients at a time.
func TestScenarios(t *testing.T) {
	golden.Files(t, "testdata/*.txt", func(t *testing.T, file string) {
		var s *scenario
		golden.Transcript(t, file, func(line string) []string {
			words := strings.Fields(line)
			if words[0] == "pool" {
				s.check(t)
				s = newScenario(t, words[1:])
				return nil
			}
			s.at = s.Pool
			if words[0] == "@" {
				words, s.at = words[1:], s.replica
			}
			run, ok := commands[words[0]]
			if !ok {
				t.Fatalf("unknown command %q", line)
			}
			return run(s, words[1:])
		})
		s.check(t)
	})
}

// A scenario is a pool that commands change.
type scenario struct {
	*harness

	at, replica *pool.Pool // at is the one that the command goes to
	lan         *lan
	options     []option
	hidden      bool // leased addresses are random, and not shown
	clients     map[string]*pool.Client
	addrs       map[string]netip.Addr // the address of each client
	written     int64                 // writes at the last command "writes"
}

// newScenario returns a scenario with a pool. Arguments are "vms" for a pool of VMs, "range=FIRST-LAST", "lan" if addresses can be probed,
// "ahead=N" if free ones are probed in advance, "quarantine=DURATION", and "hidden".
func newScenario(t *testing.T, arguments []string) *scenario {
	t.Helper()
	s := &scenario{lan: &lan{users: map[netip.Addr]string{}}, clients: map[string]*pool.Client{}, addrs: map[string]netip.Addr{}}
	create := newOrdinaryHarness
	for _, argument := range arguments {
		switch key, value, _ := strings.Cut(argument, "="); key {
		case "vms":
			create = newVMHarness
		case "range":
			s.options = append(s.options, withRange(value))
		case "lan":
			s.options = append(s.options, withLAN(s.lan, 0))
		case "ahead":
			s.options = append(s.options, withLAN(s.lan, number(t, value)))
		case "quarantine":
			s.options = append(s.options, func(c *pool.Config) { c.Quarantine = s.duration([]string{value}) })
		case "hidden":
			s.hidden = true
		default:
			t.Fatalf("unknown argument %q", argument)
		}
	}
	s.harness = create(t, s.options...)
	return s
}

// check checks that no address was leased to two clients at a time, and closes the pool.
func (s *scenario) check(t *testing.T) {
	t.Helper()
	if s == nil {
		return
	}
	lab.Report(t, s.granted.Check())
	s.granted = &leasetest.Log{}
	s.stop()
	s.stop = func() {}
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	lab.Must(t, err)
	return n
}

// holder returns the identity of a client in bindings.
func (s *scenario) holder(name string) string {
	if s.directory == nil {
		return client(name).Holder
	}
	return nicOf(name).String()
}

// client returns a client, and adds the VM to the directory if it is one.
func (s *scenario) client(name string) *pool.Client {
	c := s.clients[name]
	if c == nil {
		c = new(client(name))
		if s.directory != nil {
			c = new(s.directory.boot(name))
		}
		s.clients[name] = c
	}
	if s.directory != nil {
		s.directory.boot(name)
	}
	return c
}

// address returns the address that a text contains, or that a client has; without a text, the first client's.
func (s *scenario) address(args []string) netip.Addr {
	text := args[min(1, len(args)-1)]
	if a, err := netip.ParseAddr(text); err == nil {
		return a
	}
	return s.addrs[s.holder(text)]
}

// leave records that a client no longer uses its address.
func (s *scenario) leave(name string) {
	s.granted.GaveUp(s.addrs[s.holder(name)], s.holder(name), s.clock.Now())
}

// ask asks the pool for clients, which retry while a probe is in progress, and returns the answers. leased is set if the client may use the
// address then.
func (s *scenario) ask(args []string, leased bool, ask func(pool.Client) pool.Answer) []string {
	names := args[:1]
	if prefix, n, many := strings.Cut(args[0], "*"); many {
		names = nil
		for i := range number(s.t, n) {
			names = append(names, fmt.Sprint(prefix, i))
		}
	}
	var lines []string
	counts := map[string]int{}
	for _, name := range names {
		c := *s.client(name)
		a := ask(c)
		for n := 0; n < 20 && a.Reason == pool.ReasonInProgress; n++ {
			a = ask(c)
		}
		text := []string{"silent", "granted", "refused"}[a.Verdict]
		if a.Verdict != pool.Grant {
			text += ": " + string(a.Reason)
		} else if leased {
			if s.addrs[c.Holder] != a.Addr {
				s.leave(name)
			}
			s.addrs[c.Holder] = s.recordGrant(c, a).Addr
		}
		if s.hidden && s.lan.err == nil && !s.lan.unreachable && slices.Contains(s.lan.probed, a.Addr) {
			text += " a probed address"
		}
		if user := s.lan.users[a.Addr]; user != "" && user != c.MAC {
			text += " in use"
		}
		if a.Lease > 0 && a.Lease != time.Hour {
			text += " for " + a.Lease.String()
		}
		counts[text]++
		if a.Addr.IsValid() && !s.hidden {
			text += " " + a.Addr.String()
		}
		lines = append(lines, name+" "+text)
	}
	if len(lines) <= 10 && !s.hidden {
		return lines
	}
	lines = nil
	for _, text := range slices.Sorted(maps.Keys(counts)) {
		lines = append(lines, fmt.Sprintf("%d %s", counts[text], text))
	}
	return lines
}

// duration returns the duration in the first argument.
func (s *scenario) duration(args []string) time.Duration {
	d, err := time.ParseDuration(args[0])
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// give puts a binding into the store, without the pool. The arguments are ADDRESS HOLDER AGE.
func (s *scenario) give(args []string) store.Binding {
	b, err := s.store.Store.Put(s.t.Context(), store.Binding{Addr: netip.MustParseAddr(args[0]), Holder: s.holder(args[1]), Used: s.clock.Now().Add(-s.duration(args[2:]))})
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// binding returns ADDRESS CLIENT REVISION as a binding of another replica.
func (s *scenario) binding(args []string) store.Binding {
	return store.Binding{Addr: netip.MustParseAddr(args[0]), Holder: s.holder(args[1]), Used: start, Revision: uint64(number(s.t, args[2]))}
}

// commands are the commands, by their first word. They return the output.
var commands = map[string]func(s *scenario, args []string) []string{
	// Messages: CLIENT [ADDRESS].
	"discover": func(s *scenario, args []string) []string {
		return s.ask(args, false, func(c pool.Client) pool.Answer {
			var wanted netip.Addr
			if len(args) > 1 {
				wanted = s.address(args)
			}
			return s.at.Discover(c, wanted)
		})
	},
	"dora": func(s *scenario, args []string) []string {
		return s.ask(args, true, func(c pool.Client) pool.Answer {
			offer := s.at.Discover(c, netip.Addr{})
			if offer.Verdict != pool.Grant {
				return offer
			}
			return s.at.Select(s.t.Context(), c, offer.Addr)
		})
	},
	"select": func(s *scenario, args []string) []string {
		return s.ask(args, true, func(c pool.Client) pool.Answer { return s.at.Select(s.t.Context(), c, s.address(args)) })
	},
	"verify": func(s *scenario, args []string) []string {
		return s.ask(args, true, func(c pool.Client) pool.Answer {
			if len(args) == 1 {
				return s.at.Verify(s.t.Context(), c, s.addrs[c.Holder])
			}
			return s.at.Verify(s.t.Context(), c, s.address(args))
		})
	},
	"renew": func(s *scenario, args []string) []string {
		return s.ask(args, true, func(c pool.Client) pool.Answer { return s.at.Renew(s.t.Context(), c, s.address(args)) })
	},
	"release": func(s *scenario, args []string) []string {
		why := s.at.Release(s.t.Context(), *s.client(args[0]), s.address(args))
		if why == pool.ReasonDone {
			s.leave(args[0])
		}
		return []string{string(why)}
	},
	"decline": func(s *scenario, args []string) []string {
		why := s.at.Decline(s.t.Context(), *s.client(args[0]), s.address(args), true)
		if why == pool.ReasonDone {
			s.leave(args[0])
		}
		return []string{string(why)}
	},
	"decline-elsewhere": func(s *scenario, args []string) []string { // the client selected another server
		s.leave(args[0])
		return []string{string(s.at.Decline(s.t.Context(), *s.client(args[0]), s.address(args), false))}
	},
	"forget": func(s *scenario, args []string) []string { s.Forget(*s.client(args[0])); return nil },

	// Clients and VMs.
	"mac":      func(s *scenario, args []string) []string { s.client(args[0]).MAC = args[1]; return nil },
	"hostname": func(s *scenario, args []string) []string { s.client(args[0]).Hostname = args[1]; return nil },
	"reserve": func(s *scenario, args []string) []string {
		s.clients[args[0]] = new(s.directory.reserve(args[0], netip.MustParseAddr(args[1])))
		return nil
	},
	"leave": func(s *scenario, args []string) []string { s.leave(args[0]); return nil },
	"delete": func(s *scenario, args []string) []string {
		s.leave(args[0])
		s.directory.remove(args[0], true)
		return nil
	},
	"vanish": func(s *scenario, args []string) []string {
		s.leave(args[0])
		s.directory.remove(args[0], false)
		return nil
	},

	// Time: "step" lets time pass at once, "wait" with collections, and "recheck" with probes of the addresses in quarantine.
	"step": func(s *scenario, args []string) []string { s.clock.Step(s.duration(args)); return nil },
	"wait": func(s *scenario, args []string) []string { s.advance(s.duration(args)); return nil },
	"recheck": func(s *scenario, args []string) []string {
		for range s.duration(args) / (2 * time.Second) {
			s.clock.Step(2 * time.Second)
			s.RecheckQuarantined(s.t.Context())
		}
		return nil
	},
	"collect-late": func(s *scenario, _ []string) []string { // the other replica alone, for more than an hour
		for range 500 {
			s.clock.Step(10 * time.Second)
			s.replica.Collect(s.t.Context())
		}
		return nil
	},

	// The store and the directory. "restart" has arguments of "pool"; "restart-empty" has lost the lease file.
	"store": func(s *scenario, args []string) []string {
		s.store.unavailable.Store(args[0] == "unavailable")
		s.store.failing.Store(args[0] == "failing")
		s.store.duringWrite = nil
		if args[0] == "breaking" { // during a write
			s.store.duringWrite = func() { s.store.unavailable.Store(true); s.stop(); s.stop = func() {} }
		}
		return nil
	},
	"directory": func(s *scenario, args []string) []string { s.directory.setSynced(args[0] == "synced"); return nil },
	"restart": func(s *scenario, args []string) []string {
		options := s.options
		for _, argument := range args {
			options = append(slices.Clone(options), withRange(strings.TrimPrefix(argument, "range=")))
		}
		s.open(options...)
		return nil
	},
	"restart-empty": func(s *scenario, _ []string) []string {
		s.stop()
		s.stop = func() {}
		if err := os.Remove(s.path); err != nil {
			s.t.Fatal(err)
		}
		s.open(s.options...)
		return nil
	},
	"replica": func(s *scenario, args []string) []string { // "replica informed" knows the bindings
		s.replica = s.harness.replica(s.options...)
		if len(args) > 0 {
			s.replica.Replace(s.Bindings(), 1)
		}
		return nil
	},
	"give": func(s *scenario, args []string) []string { s.give(args); return nil },
	"edit": func(s *scenario, args []string) []string { // the stored binding's holder, as another client of the API server
		edited := s.Bindings()[0]
		edited.Holder = s.holder(args[0])
		edited, err := s.store.Put(s.t.Context(), edited)
		if err != nil {
			s.t.Fatal(err)
		}
		s.Set(edited)
		return nil
	},
	"lose": func(s *scenario, _ []string) []string { // the stored binding
		b := s.Bindings()[0]
		if err := s.store.Delete(s.t.Context(), b); err != nil {
			s.t.Fatal(err)
		}
		s.Remove(b.Addr, 1<<62)
		return nil
	},
	"set": func(s *scenario, args []string) []string { s.at.Set(s.binding(args)); return nil },
	"set-behind": func(s *scenario, args []string) []string { // by a replica whose clock is two hours behind
		b := s.binding(args)
		b.Used = s.clock.Now().Add(-2 * time.Hour)
		b.Expires = b.Used.Add(time.Hour)
		s.Set(b)
		return nil
	},
	"remove": func(s *scenario, args []string) []string {
		s.at.Remove(netip.MustParseAddr(args[0]), uint64(number(s.t, args[1])))
		return nil
	},
	"list": func(s *scenario, args []string) []string {
		s.at.Replace([]store.Binding{s.binding(args)}, s.binding(args).Revision+1)
		return nil
	},

	// The LAN.
	"use":   func(s *scenario, args []string) []string { s.lan.users[s.address(args[:1])] = args[1]; return nil },
	"unuse": func(s *scenario, args []string) []string { delete(s.lan.users, s.address(args)); return nil },
	"lan": func(s *scenario, args []string) []string {
		s.lan.unreachable, s.lan.stale, s.lan.occupied, s.lan.err = args[0] == "unreachable", args[0] == "stale", "", nil
		switch args[0] {
		case "failing":
			s.lan.err = errors.New("no permissions")
		case "occupied": // by a host that answers for all addresses
			s.lan.occupied = "02:00:00:00:ff:ff"
		}
		return nil
	},
	"probe": func(s *scenario, _ []string) []string {
		before := len(s.lan.probed)
		s.ProbeFree(s.t.Context())
		bound := 0
		for _, l := range s.Leases() {
			if slices.Contains(s.lan.probed[before:], l.Addr) {
				bound++
			}
		}
		return []string{fmt.Sprintf("%d addresses, %d of them with a binding", len(s.lan.probed)-before, bound)}
	},
	"probe-all": func(s *scenario, _ []string) []string {
		for range 10 {
			s.ProbeFree(s.t.Context())
		}
		return nil
	},
	"probes": func(s *scenario, _ []string) []string { return []string{fmt.Sprint(len(s.lan.probed))} },

	// State.
	"stats": func(s *scenario, _ []string) []string { // without zeros
		stats, text := s.Stats(), ""
		for _, n := range []struct {
			name  string
			value uint64
		}{
			{"free", uint64(stats.Free)}, {"bound", uint64(stats.Bound)}, {"released", uint64(stats.Released)}, {"held", uint64(stats.Held)},
			{"quarantined", uint64(stats.Quarantined)}, {"unused", uint64(stats.Unused)}, {"in use", stats.InUse}, {"exhausted", stats.Exhausted},
		} {
			if n.value > 0 {
				text += fmt.Sprintf(", %d %s", n.value, n.name)
			}
		}
		return []string{strings.TrimPrefix(text, ", ")}
	},
	"writes": func(s *scenario, _ []string) []string { // since the last time
		written := s.written
		s.written = s.store.writes.Load()
		return []string{fmt.Sprint(s.written - written)}
	},
	"log": func(s *scenario, args []string) []string {
		return []string{fmt.Sprint(s.logCount(strings.Join(args, " ")), " lines")}
	},
	"address": func(s *scenario, args []string) []string { return []string{s.address(args).String()} },
	"bindings": func(s *scenario, _ []string) (lines []string) {
		for _, l := range s.at.Leases() {
			lines = append(lines, strings.TrimRight(fmt.Sprint(l.Addr, " ", l.Holder, " ", l.MAC, " ", l.Hostname), " "))
		}
		return lines
	},
	"quarantined": func(s *scenario, _ []string) (lines []string) {
		for _, q := range s.Quarantined() {
			lines = append(lines, fmt.Sprintf("%s declined %t, used by %q", q.Addr, q.Declined, q.MAC))
		}
		return lines
	},
	"lost": func(s *scenario, _ []string) (lines []string) {
		for _, l := range s.Lost() {
			lines = append(lines, fmt.Sprintf("%s of %s, new holder %q, renewal within %s", l.Addr, l.Holder, l.NewHolder, l.Renewal.Sub(l.At)))
		}
		return lines
	},
	"unrenewed": func(s *scenario, _ []string) (lines []string) {
		for _, u := range s.Unrenewed() {
			lines = append(lines, fmt.Sprintf("%s %s since %s", u.Addr, u.Holder, u.Since.Sub(start)))
		}
		return lines
	},
	"refused": func(s *scenario, args []string) []string {
		s.Collect(s.t.Context())
		return []string{fmt.Sprintf("%q", s.directory.refused[nicOf(args[0])])}
	},
	"rebuilding": func(s *scenario, _ []string) []string { return []string{fmt.Sprintf("%q", s.Rebuilding())} },
}
