package dhcp

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/bench/measure"
	"github.com/densityops/oooi/test/lab"
)

var testNetwork = lab.Network{
	Ranges:  Ranges,
	Sources: []string{"api", "internal", "plugins", "coredhcpbuild"},
	Prepare: Prepare,
}

func TestMain(m *testing.M) {
	if code := testNetwork.Main(m); code != 0 {
		os.Exit(code)
	}
}

// TestBench runs the whole benchmark at a tiny size. It checks all leased addresses and the rows of the tables; the
// numbers are meaningless.
func TestBench(t *testing.T) {
	lab.NeedLong(t)
	testNetwork.Need(t)
	need(t, Missing())
	if os.Geteuid() != 0 {
		need(t, errors.New("the servers require root"))
	}
	opts := Options{Rounds: 1, Load: 200 * time.Millisecond, Machines: 1000, Renewing: 20, Progress: t.Logf}
	var out strings.Builder
	if err := Run(t.Context(), opts, &out); err != nil {
		t.Fatal(err)
	}
	b := &bench{Stage: &measure.Stage{Dir: t.TempDir()}}
	servers, err := b.servers()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		if got := strings.Count(out.String(), "\n| "+s.name+" |"); got != len(kinds) {
			t.Errorf("%s is in %d tables, want %d:\n%s", s.name, got, len(kinds), out.String())
		}
	}
}

// need skips the test if err is not nil, or fails it if CI is set.
func need(t *testing.T, err error) {
	t.Helper()
	switch {
	case err == nil:
	case os.Getenv("CI") != "":
		t.Fatalf("%s cannot run: %v", t.Name(), err)
	default:
		t.Skipf("%s cannot run: %v", t.Name(), err)
	}
}

const perfdhcpOutput = `Running: perfdhcp -4
***Rate statistics***
Rate: 1990.5 4-way exchanges/second, expected rate: 2000

***Malformed Packets***
Malformed packets: 0
***Statistics for: DISCOVER-OFFER***
sent packets: 4000
received packets: 3999
drops: 1
drops ratio: 0.025 %
orphans: 0
rejected leases: 0
non unique addresses: 0

min delay: 0.05 ms
avg delay: 0.2 ms
max delay: 9.876 ms
std deviation: 0.1 ms
collected packets: 0

***Statistics for: REQUEST-ACK***
sent packets: 3999
received packets: 3998
drops: 1
drops ratio: 0.025 %
orphans: 0
rejected leases: 0
non unique addresses: 0

min delay: 0.1 ms
avg delay: 0.6 ms
max delay: 1.2 ms
std deviation: 0.1 ms
collected packets: 0
`

func TestParse(t *testing.T) {
	all := strings.NewReplacer("3999", "4000", "3998", "4000").Replace(perfdhcpOutput)
	got, err := parse(all, 2000, 4000)
	want := result{offered: 2000, rate: 1990.5, started: 4000, done: 4000, delay: 400 * time.Microsecond}
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	got, err = parse(perfdhcpOutput, 2000, 4000)
	if err != nil || got.done != 3998 || math.Round(1e6*got.lost()) != 500 || got.rate < 2650 || got.rate > 2652 {
		t.Errorf("with losses, which perfdhcp waits for: %+v, %v", got, err)
	}
	for name, text := range map[string]string{
		"incomplete output":   perfdhcpOutput[:len(perfdhcpOutput)/2],
		"duplicate addresses": strings.ReplaceAll(perfdhcpOutput, "unique addresses: 0", "unique addresses: 2"),
		"no packets":          strings.ReplaceAll(perfdhcpOutput, "sent packets: 4000", "sent packets: 0"),
	} {
		if r, err := parse(text, 2000, 4000); err == nil {
			t.Errorf("%s: %+v and no error", name, r)
		}
	}
}

// TestSearch searches known limits.
func TestSearch(t *testing.T) {
	for _, limit := range []float64{50, 700, 990, 1000, 1010, 5000} {
		s := newSearch(1000, 2)
		for n := 0; !s.done(); n++ {
			if n == 60 {
				t.Fatalf("limit %.0f: not found after 60 tries: %+v", limit, s)
			}
			r := result{offered: s.next, rate: min(s.next, limit), started: 1000, done: 1000}
			if n == 1 { // losses caused by other load
				r.done, r.otherLoad = 500, 0.3
			}
			s.add(r)
		}
		if got := s.best.offered; got > limit*1.06 || got < limit*0.96 {
			t.Errorf("limit %.0f: found %.0f", limit, got)
		}
	}
}

func TestKeptUp(t *testing.T) {
	for _, tc := range []struct {
		name string
		r    result
		want bool
	}{
		{"no losses", result{offered: 1000, rate: 1000, started: 10000, done: 10000}, true},
		{"0.1 % lost", result{offered: 1000, rate: 999, started: 10000, done: 9990}, true},
		{"more than 0.1 % lost", result{offered: 1000, rate: 999, started: 10000, done: 9989}, false},
		{"no losses, but too slow", result{offered: 1000, rate: 949, started: 10000, done: 10000}, false},
	} {
		if got := tc.r.keptUp(); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

func TestReportShowsMissedTargets(t *testing.T) {
	named := func(name string, rate float64, k kind, g goal) limit {
		return limit{server: server{name: name, goal: map[kind]goal{k: g}}, search: search{best: result{offered: rate, rate: rate}}}
	}
	for _, tc := range []struct {
		name   string
		kind   kind
		ours   limit
		kea    float64
		missed bool
	}{
		{"rate reached", newClients, named(nameBolt, 6000, newClients, goal{rate: 6000}), 8000, false},
		{"rate missed", newClients, named(nameBolt, 5999, newClients, goal{rate: 6000}), 1, true},
		{"faster than Kea", renewals, named(nameBolt, 9001, renewals, goal{beat: nameKeaMemory, times: 1}), 9000, false},
		{"as fast as Kea", renewals, named(nameBolt, 9000, renewals, goal{beat: nameKeaMemory, times: 1}), 9000, true},
		{"more than a share", newClients, named(nameBolt, 2001, newClients, goal{rate: 1000, beat: nameKeaMemory, times: 0.25}), 8000, false},
		{"rate of two targets missed", newClients, named(nameBolt, 999, newClients, goal{rate: 1000, beat: nameKeaMemory, times: 0.25}), 1, true},
		{"share of two targets missed", newClients, named(nameBolt, 2000, newClients, goal{rate: 1000, beat: nameKeaMemory, times: 0.25}), 8000, true},
		{"no limit found", newClients, named(nameBolt, 0, newClients, goal{rate: 6000}), 1, true},
	} {
		r := report{tables: []table{{tc.kind, []limit{tc.ours, named(nameKeaMemory, tc.kea, "", goal{})}}}}
		if got := strings.Contains(r.markdown(), "missed"); got != tc.missed {
			t.Errorf("%s: missed is %t in\n%s", tc.name, got, r.markdown())
		}
	}
	ours, kea := named(nameBolt, 1, renewals, goal{beat: nameKeaMemory, times: 1}), named(nameKeaMemory, 2, "", goal{})
	for _, disturbed := range []*limit{&ours, &kea} {
		disturbed.search.high, disturbed.search.worst.otherLoad = 3, 1
		text := report{tables: []table{{renewals, []limit{ours, kea}}}}.markdown()
		if strings.Contains(text, "missed") || !strings.Contains(text, unknown) {
			t.Errorf("with much other load:\n%s", text)
		}
		disturbed.search.worst.otherLoad = 0
	}
	if text := (report{disk: disk{system: "tmpfs"}}).markdown(); !strings.Contains(text, "no disk") {
		t.Errorf("the report does not say that the stores are in memory:\n%s", text)
	}
}

// TestMACsOfClients checks the MAC addresses that perfdhcp uses.
func TestMACsOfClients(t *testing.T) {
	for c, want := range map[client]string{0: "02:00:00:00:00:00", 255: "02:00:00:00:00:ff", 256: "02:00:00:00:01:00", 70000: "02:00:00:01:11:70"} {
		if got := c.mac().String(); got != want {
			t.Errorf("%d: %s, want %s", c, got, want)
		}
	}
}
