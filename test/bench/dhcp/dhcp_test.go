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

var ground = lab.Network{
	Ranges:  Ranges,
	Sources: []string{"api", "internal", "plugins", "coredhcpbuild"},
	Prepare: Prepare,
}

func TestMain(m *testing.M) {
	if code := ground.Main(m); code != 0 {
		os.Exit(code)
	}
}

// TestBench runs the whole at a tiny size. Every address is checked on the way; the numbers
// mean nothing.
func TestBench(t *testing.T) {
	lab.NeedLong(t)
	ground.Need(t)
	need(t, Missing())
	if os.Geteuid() != 0 {
		need(t, errors.New("the servers ask to be run by root"))
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
			t.Errorf("%s is in %d tables in\n%s", s.name, got, out.String())
		}
	}
}

// need skips a test that cannot run here; but in CI that is an error.
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

const perfdhcpSays = `Running: perfdhcp -4
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
	all := strings.NewReplacer("3999", "4000", "3998", "4000").Replace(perfdhcpSays)
	got, err := parse(all, 2000, 4000)
	want := result{offered: 2000, rate: 1990.5, asked: 4000, done: 4000, delay: 400 * time.Microsecond}
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	got, err = parse(perfdhcpSays, 2000, 4000)
	if err != nil || got.done != 3998 || math.Round(1e6*got.lost()) != 500 || got.rate < 2650 || got.rate > 2652 {
		t.Errorf("with losses, and a wait at the end: %+v, %v", got, err)
	}
	for name, text := range map[string]string{
		"half of it":               perfdhcpSays[:len(perfdhcpSays)/2],
		"an address for two":       strings.ReplaceAll(perfdhcpSays, "unique addresses: 0", "unique addresses: 2"),
		"nothing asked for at all": strings.ReplaceAll(perfdhcpSays, "sent packets: 4000", "sent packets: 0"),
	} {
		if r, err := parse(text, 2000, 4000); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestSearch finds limits that are known.
func TestSearch(t *testing.T) {
	for _, limit := range []float64{50, 700, 990, 1000, 1010, 5000} {
		s := newSearch(1000, 2)
		for n := 0; !s.done(); n++ {
			if n == 60 {
				t.Fatalf("limit %.0f: no end at %+v", limit, s)
			}
			r := result{offered: s.next, rate: min(s.next, limit), asked: 1000, done: 1000}
			if n == 1 { // the machine's fault
				r.done, r.others = 500, 0.3
			}
			s.take(r)
		}
		if got := s.best.offered; got > limit*1.06 || got < limit*0.96 {
			t.Errorf("limit %.0f: found %.0f", limit, got)
		}
	}
}

func TestWhatIsKeptUp(t *testing.T) {
	for _, tc := range []struct {
		name string
		r    result
		want bool
	}{
		{"all", result{offered: 1000, rate: 1000, asked: 10000, done: 10000}, true},
		{"nearly all", result{offered: 1000, rate: 999, asked: 10000, done: 9990}, true},
		{"fewer", result{offered: 1000, rate: 999, asked: 10000, done: 9989}, false},
		{"all, too late", result{offered: 1000, rate: 949, asked: 10000, done: 10000}, false},
	} {
		if got := tc.r.kept(); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

func TestReportTellsWhatIsMissed(t *testing.T) {
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
		{"enough", newClients, named(nameBolt, 6000, newClients, goal{rate: 6000}), 8000, false},
		{"too few", newClients, named(nameBolt, 5999, newClients, goal{rate: 6000}), 1, true},
		{"beaten", renewals, named(nameBolt, 9001, renewals, goal{beat: nameKeaQuick}), 9000, false},
		{"as many", renewals, named(nameBolt, 9000, renewals, goal{beat: nameKeaQuick}), 9000, true},
		{"no limit found", newClients, named(nameBolt, 0, newClients, goal{rate: 6000}), 1, true},
	} {
		r := report{tables: []table{{tc.kind, []limit{tc.ours, named(nameKeaQuick, tc.kea, "", goal{})}}}}
		if got := strings.Contains(r.markdown(), "missed"); got != tc.missed {
			t.Errorf("%s: missed is %t in\n%s", tc.name, got, r.markdown())
		}
	}
	ours, kea := named(nameBolt, 1, renewals, goal{beat: nameKeaQuick}), named(nameKeaQuick, 2, "", goal{})
	for _, disturbed := range []*limit{&ours, &kea} {
		disturbed.search.high, disturbed.search.worst.others = 3, 1
		text := report{tables: []table{{renewals, []limit{ours, kea}}}}.markdown()
		if strings.Contains(text, "missed") || !strings.Contains(text, unknown) {
			t.Errorf("while much else ran:\n%s", text)
		}
		disturbed.search.worst.others = 0
	}
	if text := (report{disk: disk{system: "tmpfs"}}).markdown(); !strings.Contains(text, "no disk") {
		t.Errorf("nothing is said of a store in memory:\n%s", text)
	}
}

func TestClientsCountAsPerfdhcpDoes(t *testing.T) {
	for c, want := range map[client]string{0: "02:00:00:00:00:00", 255: "02:00:00:00:00:ff", 256: "02:00:00:00:01:00", 70000: "02:00:00:01:11:70"} {
		if got := c.mac().String(); got != want {
			t.Errorf("%d: %s, want %s", c, got, want)
		}
	}
}
