package leasedb

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/densityops/oooi/test/lab"
)

func shutdown(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // the context of the test may be done
	defer cancel()
	lab.Report(t, Shutdown(ctx))
}

func TestExamplesAreValid(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	lab.Must(t, err)
	lines := regexp.MustCompile(`(?m)^    - leasedb: (.*)$`).FindAllSubmatch(readme, -1)
	if len(lines) != 2 {
		t.Fatalf("found %d examples", len(lines))
	}
	for _, line := range lines {
		if err := Check(strings.Fields(string(line[1]))...); err != nil {
			t.Errorf("%s: %v", line[1], err)
		}
	}
}

func TestLifecycle(t *testing.T) {
	t.Cleanup(func() { shutdown(t) })
	if !Ready() {
		t.Error("not ready without any pool")
	}
	arguments := strings.Fields(bolt(t) + network)
	handle, err := setup4(arguments...)
	lab.Must(t, err)
	if _, err := setup4(arguments...); err == nil || !strings.Contains(err.Error(), "duplicate pool=default") {
		t.Errorf("the same pool again: %v", err)
	}
	if _, err := setup4("store=sqlite"); err == nil {
		t.Error("an invalid argument is not an error")
	}
	lab.Poll(t, "the lease file to be loaded", Ready)
	dora(t, running()[0], mac(1))

	states := Status()
	if len(states) != 1 || states[0].Addresses.Bound != 1 || len(states[0].Leases) != 1 || states[0].Leases[0].Holder != "mac:01020000000001" {
		t.Errorf("got %+v", states)
	}
	if _, err := json.Marshal(states); err != nil {
		t.Error(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(Collector())
	want := `
# HELP coredhcp_leasedb_addresses Addresses by state: bound, released, held (offered), quarantined, free, and unused (free ones that a probe has verified).
# TYPE coredhcp_leasedb_addresses gauge
coredhcp_leasedb_addresses{family="ipv4",pool="default",state="bound"} 1
coredhcp_leasedb_addresses{family="ipv4",pool="default",state="free"} 89
coredhcp_leasedb_addresses{family="ipv4",pool="default",state="held"} 0
coredhcp_leasedb_addresses{family="ipv4",pool="default",state="quarantined"} 0
coredhcp_leasedb_addresses{family="ipv4",pool="default",state="released"} 0
coredhcp_leasedb_addresses{family="ipv4",pool="default",state="unused"} 0
`
	lab.Report(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "coredhcp_leasedb_addresses"))
	if n, err := testutil.GatherAndCount(registry, "coredhcp_leasedb_store_seconds"); err != nil || n == 0 {
		t.Errorf("the store's operations are not measured: %d, %v", n, err)
	}
	silences := testutil.ToFloat64(silencesTotal.WithLabelValues("no_reply_needed", "default", "ipv4"))
	req := message(dhcpv4.MessageTypeRelease, mac(1), dhcpv4.WithClientIP(states[0].Leases[0].Addr.AsSlice()))
	resp, err := dhcpv4.NewReplyFromRequest(req)
	lab.Must(t, err)
	if resp, stop := handle(req, resp); resp != nil || !stop {
		t.Errorf("RELEASE is answered with %v", resp)
	}
	if got := testutil.ToFloat64(silencesTotal.WithLabelValues("no_reply_needed", "default", "ipv4")); got != silences+1 {
		t.Errorf("counted %v messages without a reply, want 1", got-silences)
	}
	shutdown(t)
	if len(Status()) != 0 || !Ready() {
		t.Error("pools remain after Shutdown")
	}
}

func TestShutdownHasADeadline(t *testing.T) {
	t.Cleanup(func() { shutdown(t) })
	if _, err := setup4(strings.Fields(bolt(t) + network)...); err != nil {
		t.Fatal(err)
	}
	i := running()[0]
	if !i.enter() { // a message that is being handled
		t.Fatal("the instance is closed")
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Shutdown(done); err == nil || !strings.Contains(err.Error(), "default") {
		t.Errorf("got %v", err)
	}
	i.messages.Done()
	lab.Poll(t, "the shutdown to finish", func() bool { return i.ctx.Err() != nil })
}
