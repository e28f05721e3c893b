package main

import (
	"encoding/json"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/coredhcpbuild/internal/dhcp4"
	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/plugins/kubevirt"
	"github.com/densityops/oooi/plugins/leasedb"
	"github.com/densityops/oooi/test/lab"
)

const (
	mac1, mac2 = "02:00:00:00:00:01", "02:00:00:00:00:02"
	vm1        = "clusters-demo/worker-1/vlan"
)

var now = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// ago returns the time some seconds ago.
func ago(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }

func address(text string) netip.Addr { return netip.MustParseAddr(text) }

// healthy returns the facts of one of two replicas, 192.0.2.2 and 192.0.2.3, that has one VM and run for a day. The gateway is
// 192.0.2.1.
func healthy() *facts {
	selected := map[string]netip.Addr{mac1: address("192.0.2.2")}
	return &facts{
		state: &state{
			Kubevirt: &kubevirt.State{
				Synced: true, Infra: "clusters/demo", Clients: []kubevirt.Client{{MAC: mac1, Interface: vm1, Running: ago(80000)}},
				Watches: []watch.ResourceStatus{{Resource: "virtualmachineinstances", Namespace: "clusters-demo", Connected: true, LastSeen: ago(80000)}},
			},
			Leasedb: []leasedb.State{{
				Pool: "clusters.demo", Store: "kubernetes", At: "clusters", Server: address("192.0.2.2"),
				Protected: []netip.Addr{address("192.0.2.1"), address("192.0.2.3"), address("192.0.2.2")},
				Addresses: leasedb.Stats{Size: 90, Free: 89, Loaded: true, Synced: true},
				Leases:    []leasedb.Lease{{Addr: address("192.0.2.10"), Holder: vm1, MAC: mac1, State: "bound", Used: ago(80000)}},
				Operations: map[string]leasedb.Operation{
					"put": {Succeeded: ago(80000)}, "get": {Succeeded: ago(60), Failed: ago(70), Error: "refused"},
				},
			}},
			Heard: []dhcp4.Heard{{Server: address("192.0.2.3"), Type: "ACK", First: ago(80000), Last: ago(10)}},
		},
		now: now, started: ago(86400), foreign: []netip.Addr{address("192.0.2.1")},
		selected: func(mac string) (netip.Addr, time.Time) { return selected[mac], ago(3000) },
		hosts:    []problem.Host{{Address: address("192.0.2.10"), MAC: mac1, Since: ago(80000)}},
		traffic:  []dhcp4.Traffic{{Received: 1000, Dropped: map[string]int{"queue_full": 200}}, {Received: 10, Dropped: map[string]int{"silent": 10}}},
	}
}

// selects sets the server that the VM has selected.
func selects(f *facts, server string, at time.Time) {
	f.selected = func(mac string) (netip.Addr, time.Time) {
		if mac != mac1 || server == "" {
			return netip.Addr{}, time.Time{}
		}
		return address(server), at
	}
}

func heard(server, kind string, first, last time.Time, macs ...string) dhcp4.Heard {
	return dhcp4.Heard{Server: address(server), Type: kind, First: first, Last: last, MACs: macs}
}

// expect compares the problems of facts with one in the form "Code severity object: message" with a part of its message; empty
// for none.
func expect(t *testing.T, f *facts, want string) {
	t.Helper()
	var all []string
	for _, p := range f.problems() {
		all = append(all, string(p.Code)+" "+string(p.Severity)+" "+strings.TrimSpace(p.Object.String())+": "+p.Message)
	}
	got := strings.Join(all, "\n")
	start, part, _ := strings.Cut(want, ": ")
	if want == "" && got != "" || want != "" && (len(all) != 1 || !strings.HasPrefix(got, start+": ") || !strings.Contains(got, part)) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestProblems(t *testing.T) {
	const infra, vm = "Infra clusters/demo", "VirtualMachineInstance clusters-demo/worker-1"
	for name, tc := range map[string]struct {
		change func(*facts)
		want   string
	}{
		"healthy":              {func(*facts) {}, ""},
		"without the plugins":  {func(f *facts) { f.Kubevirt, f.Leasedb, f.Heard = nil, nil, nil }, ""},
		"VMs are being listed": {func(f *facts) { f.Kubevirt.Synced, f.started = false, ago(20) }, ""},
		"VMs are not listed":   {func(f *facts) { f.Kubevirt.Synced, f.started = false, ago(31) }, "DataStale fail : updates of VMs"},
		"watch of VMs begins again": {func(f *facts) {
			f.Kubevirt.Synced, f.Kubevirt.Watches[0] = false, watch.ResourceStatus{LastSeen: ago(20), Error: "refused"}
		}, ""},
		"watch of VMs failed": {func(f *facts) {
			f.Kubevirt.Synced, f.Kubevirt.Watches[0] = false, watch.ResourceStatus{LastSeen: ago(31), Error: "refused"}
		}, "DataStale fail : new VMs get none"},
		"VMs disappeared":         {func(f *facts) { f.Kubevirt.Watches[0].Kept = &watch.Kept{Objects: 1} }, "ObjectsKept warn : "},
		"snapshot of VMs":         {func(f *facts) { f.Kubevirt.SnapshotFailure = "disk full" }, "SnapshotNotWritten warn : "},
		"watch of leases begins":  {func(f *facts) { f.Leasedb[0].Outdated = ago(20) }, ""},
		"watch of leases failed":  {func(f *facts) { f.Leasedb[0].Outdated = ago(40) }, "DataStale fail : leases of pool clusters.demo"},
		"snapshot of leases":      {func(f *facts) { f.Leasedb[0].SnapshotFailure = "disk full" }, "SnapshotNotWritten warn : "},
		"a burst of requests":     {func(f *facts) { f.traffic = append(f.traffic, dhcp4.Traffic{Received: 1000}) }, ""},
		"packets are dropped":     {func(f *facts) { f.traffic = append(f.traffic, f.traffic[0]) }, "PacketsDropped warn : "},
		"few packets are dropped": {func(f *facts) { f.traffic = append(f.traffic, f.traffic[0], dhcp4.Traffic{Received: 50000}) }, ""},
		"store fails": {func(f *facts) {
			f.Leasedb[0].Operations["put"] = leasedb.Operation{Succeeded: ago(5), Failed: ago(30), Since: ago(42), Failing: 1, Error: "denied"}
		}, "LeaseStoreFailing fail : type put"},
		"store failed once": {func(f *facts) {
			f.Leasedb[0].Operations["put"] = leasedb.Operation{Failed: ago(30), Since: ago(34), Failing: 1, Error: "timeout"}
		}, ""},
		"store failed for a client that is gone": {func(f *facts) {
			f.Leasedb[0].Operations["put"] = leasedb.Operation{Failed: ago(601), Since: ago(700), Failing: 1, Error: "denied"}
		}, ""},
		"ranges are loaded":      {func(f *facts) { f.Leasedb[0].Addresses = leasedb.Stats{Size: 9} }, ""},
		"ranges are nearly full": {func(f *facts) { f.Leasedb[0].Addresses.Free = 9 }, "RangesFull warn " + infra + ": 81 of 90"},
		"ranges are full":        {func(f *facts) { f.Leasedb[0].Addresses.Free = 0 }, "RangesFull fail " + infra + ": all 90"},
		"address was declined": {func(f *facts) {
			f.Leasedb[0].Quarantined = []leasedb.Quarantine{{Addr: address("192.0.2.20"), Declined: true}}
		},
			"LeasedAddressInUse warn Lease clusters/clusters.demo.192.0.2.20: declined"},
		"address is used": {func(f *facts) {
			f.Leasedb[0].Quarantined = []leasedb.Quarantine{{Addr: address("192.0.2.20"), MAC: mac2}}
		},
			"LeasedAddressInUse warn " + infra + ": the host with MAC address " + mac2 + " uses 192.0.2.20"},
		"address is used by a VM": {func(f *facts) {
			f.Leasedb[0].Quarantined = []leasedb.Quarantine{{Addr: address("192.0.2.20"), MAC: mac1}}
		},
			"LeasedAddressInUse warn " + vm + ": without a lease"},
		"proxy ARP": {func(f *facts) {
			for _, a := range []string{"20", "21", "22", "23"} {
				f.Leasedb[0].Quarantined = append(f.Leasedb[0].Quarantined, leasedb.Quarantine{Addr: address("192.0.2." + a), MAC: mac2})
			}
		}, "LeasedAddressInUse warn " + infra + ": for 4 addresses"},
		"leased address is used": {func(f *facts) { f.hosts[0].MAC, f.hosts[0].Since = mac2, ago(100) },
			"LeasedAddressInUse fail " + vm + ": " + mac2 + ", uses 192.0.2.10"},
		"lease is new":             {func(f *facts) { f.hosts[0].MAC, f.Leasedb[0].Leases[0].Used = mac2, ago(80) }, ""},
		"VM has a new MAC address": {func(f *facts) { f.hosts[0].MAC, f.Kubevirt.Clients[0].MAC = mac2, mac2 }, ""},
		"Lease was deleted": {func(f *facts) { f.Leasedb[0].Lost = []leasedb.Lost{{Addr: address("192.0.2.10"), Holder: vm1}} },
			"LeaseLost warn " + vm + ": was deleted"},
		"Lease was edited": {func(f *facts) {
			f.Leasedb[0].Lost = []leasedb.Lost{{Addr: address("192.0.2.10"), Holder: vm1, NewHolder: "clusters-demo/ghost/vlan"}}
		}, "LeaseLost fail " + vm + ": names clusters-demo/ghost/vlan"},
		"duplicate MAC address": {func(f *facts) {
			f.Kubevirt.Duplicates = map[string][]string{mac1: {"clusters-demo/worker-0/vlan", vm1}}
		},
			"DuplicateMAC fail " + vm + ": which clusters-demo/worker-0/vlan also has"},
		"annotation": {func(f *facts) {
			f.Kubevirt.Problems = map[string]string{"clusters-demo/worker-1": "annotation x: invalid"}
		}, "AnnotationInvalid warn " + vm + ": annotation x"},
		"unknown client":        {unknown(3, 12, 60), "UnknownClient warn " + infra + ": MAC addresses of no VM"},
		"client is served soon": {unknown(2, 12, 60), ""},
		"unknown client ended":  {unknown(3, 12, 601), ""},
		"offers are ignored":    {offered(mac1, 3, 12, 60), "OffersIgnored fail " + infra + ": receives no request"},
		"offer is ignored":      {offered(mac1, 2, 12, 60), ""},
		"offers were ignored":   {offered(mac1, 3, 12, 91), ""},
		"offers to no VM":       {offered(mac2, 3, 12, 60), ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy()
			tc.change(f)
			expect(t, f, tc.want)
		})
	}
}

func unknown(requests, seconds, last int) func(*facts) {
	return func(f *facts) {
		f.Kubevirt.Unknown = []kubevirt.UnknownClient{{MAC: mac2, Requests: requests, First: ago(last + seconds), Last: ago(last)}}
	}
}

func offered(mac string, offers, seconds, last int) func(*facts) {
	return func(f *facts) {
		f.Offered = []dhcp4.Offered{{MAC: mac, Offers: offers, First: ago(last + seconds), Last: ago(last)}}
	}
}

func TestOtherServers(t *testing.T) {
	const fails, warns = "OtherDHCPServer fail Infra clusters/demo: ", "OtherDHCPServer warn Infra clusters/demo: "
	hears := func(list ...dhcp4.Heard) func(*facts) {
		return func(f *facts) { f.Heard = append(f.Heard, list...) }
	}
	for name, tc := range map[string]struct {
		change func(*facts)
		want   string
	}{
		"VM selects the other replica":      {func(f *facts) { selects(f, "192.0.2.3", ago(3000)) }, ""},
		"VM selects another server":         {func(f *facts) { selects(f, "192.0.2.239", ago(3000)) }, fails + "192.0.2.239"},
		"VM selects the gateway":            {func(f *facts) { selects(f, "192.0.2.1", ago(3000)) }, fails + "192.0.2.1"},
		"VM selected one just now":          {func(f *facts) { selects(f, "192.0.2.239", ago(29)) }, ""},
		"VM selected one long ago":          {func(f *facts) { selects(f, "192.0.2.239", ago(86500)) }, ""},
		"another server replies":            {hears(heard("192.0.2.239", "ACK", ago(60), ago(1))), warns + "192.0.2.239"},
		"another server is gone":            {hears(heard("192.0.2.239", "ACK", ago(600), ago(51))), ""},
		"another server refuses a VM":       {hears(heard("192.0.2.239", "NAK", ago(600), ago(500), mac2, mac1)), fails + "192.0.2.239"},
		"another server offers to a VM":     {hears(heard("192.0.2.239", "OFFER", ago(40), ago(20), mac1)), warns + "192.0.2.239"},
		"server of another Infra":           {hears(heard("192.0.2.5", "NAK", ago(600), ago(500), mac2), heard("192.0.2.5", "OFFER", ago(600), ago(5), mac2)), ""},
		"the other replica refuses a VM":    {hears(heard("192.0.2.3", "NAK", ago(600), ago(500), mac1)), ""},
		"a replica that was added later":    {func(f *facts) { selects(f, "192.0.2.4", ago(29)); hears(heard("192.0.2.4", "ACK", ago(20), ago(1)))(f) }, ""},
		"replicas that do not protect each": {unprotected, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy()
			tc.change(f)
			expect(t, f, tc.want)
		})
	}
}

// unprotected has the configuration of a replica that does not name the other one, which a VM has selected.
func unprotected(f *facts) {
	f.Leasedb[0].Protected = nil
	f.Heard[0].Replica = true
	selects(f, "192.0.2.3", ago(3000))
}

func TestUnrenewedLeases(t *testing.T) {
	const want = "LeaseNotRenewed warn VirtualMachineInstance clusters-demo/worker-1: 192.0.2.10"
	for name, tc := range map[string]struct {
		change func(*facts)
		want   string
	}{
		"VM selected this server":             {func(*facts) {}, want},
		"VM selected the other replica":       {func(f *facts) { selects(f, "192.0.2.3", ago(9000)) }, ""},
		"VM may renew with either replica":    {func(f *facts) { selects(f, "", now) }, ""},
		"no other replica":                    {func(f *facts) { selects(f, "", now); f.Heard = nil }, want},
		"VM does not run":                     {func(f *facts) { f.Kubevirt.Clients[0].Running = time.Time{} }, ""},
		"VM was restarted":                    {func(f *facts) { f.Kubevirt.Clients[0].Running = ago(600) }, ""},
		"short leases, and a rollout of DHCP": {func(f *facts) { f.Leasedb[0].Unrenewed[0].Since = ago(599) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy()
			f.Leasedb[0].Unrenewed = []leasedb.Unrenewed{{Addr: address("192.0.2.10"), Holder: vm1, Since: ago(4000)}}
			tc.change(f)
			expect(t, f, tc.want)
		})
	}
}

// TestProblemsAreServed changes the configuration file of a server that runs.
func TestProblemsAreServed(t *testing.T) {
	lab.Must(t, register())
	path := write(t, "server4:\n  listen: 127.0.0.1:0\n  plugins:\n  - router: 192.0.2.1\n")
	c, err := load(path)
	lab.Must(t, err)
	registry := prometheus.NewRegistry()
	log, err := newLogger(t.Output(), "text", "info")
	lab.Must(t, err)
	server, err := (&flags{limit: 1}).listen4(t.Context(), c, log, registry)
	lab.Must(t, err)
	r := &reporter{config: c, server: server, monitor: &neighbours.Monitor{}, started: time.Now()}
	handler := r.httpHandler(t.Context(), registry)
	get := func(path string) (report problem.Report) {
		t.Helper()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
		if err := json.Unmarshal(w.Body.Bytes(), &report); err != nil || report.Problems == nil {
			t.Fatalf("GET %s: %v, %s", path, err, w.Body)
		}
		return report
	}
	expectOutdated := func(changed time.Duration, want int) {
		t.Helper()
		at := time.Now().Add(-changed)
		lab.Must(t, os.Chtimes(path, at, at))
		for _, page := range []string{"/problems", "/state"} {
			list := get(page).Problems
			if len(list) != want || want == 1 && list[0].Code != problem.ConfigurationOutdated {
				t.Errorf("%s: %+v", page, list)
			}
		}
	}
	if get("/problems").VLAN == nil {
		t.Error("no view of the VLAN")
	}
	expectOutdated(time.Hour, 0)
	lab.Must(t, os.WriteFile(path, append(c.content, '\n'), 0o600))
	expectOutdated(time.Minute, 0) // during a rollout
	expectOutdated(time.Hour, 1)
}

func TestVMsOfHosts(t *testing.T) {
	created := ago(80000)
	for _, tc := range []struct {
		name    string
		change  func(*state)
		mac     string
		vm      string
		running time.Time
	}{
		{"it answers", func(*state) {}, mac1, vm1, created},
		{"it is silent", func(*state) {}, "", vm1, created},
		{"it does not run", func(s *state) { s.Kubevirt.Clients[0].MayRun = time.Time{} }, mac1, vm1, time.Time{}},
		{"the API server does not answer", func(s *state) { s.Kubevirt.Synced = false }, mac1, vm1, time.Time{}},
		{"it was deleted", func(s *state) { s.Kubevirt.Clients = nil }, mac1, "", time.Time{}},
		{"no VM is known", func(s *state) { s.Kubevirt = nil }, mac1, "", time.Time{}},
	} {
		s := healthy().state
		s.Kubevirt.Clients[0].MayRun = created
		tc.change(s)
		hosts := []problem.Host{{Address: address("192.0.2.10"), MAC: tc.mac, LastMAC: mac1}}
		if s.nameVMs(hosts); hosts[0].VM != tc.vm || !hosts[0].Running.Equal(tc.running) {
			t.Errorf("%s: got %+v", tc.name, hosts[0])
		}
	}
}
