package kubevirt

import (
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/objects"
)

func TestArguments(t *testing.T) {
	for _, tc := range []struct {
		name, args string
		want       config
		err        string
	}{
		{"minimum", "network=clusters/vlan", config{network: "clusters/vlan"}, ""},
		{
			"all arguments",
			"network=clusters/vlan namespace=b,a infra-id=demo-x7k2p kubeconfig=/k context=c snapshot=/s",
			config{network: "clusters/vlan", namespaces: "a,b", selector: objects.LabelInfraID + "=demo-x7k2p", kubeconfig: "/k", context: "c", snapshot: "/s"},
			"",
		},
		{
			"a selector with spaces", "selector=tier in (a,b), !canary network=clusters/vlan",
			config{network: "clusters/vlan", selector: "tier in (a,b), !canary"}, "",
		},
		{"an empty selector", "network=clusters/vlan selector=", config{network: "clusters/vlan"}, ""},
		{"test clients", "network=clusters/vlan test-clients=clusters/demo", config{network: "clusters/vlan", testClients: "clusters/demo"}, ""},
		{"test clients without a namespace", "network=a/b test-clients=demo", config{}, "test-clients=demo: want the namespace/name"},
		{"no network", "namespace=a", config{}, "network=: want the namespace/name"},
		{"a network without a namespace", "network=vlan", config{}, "network=vlan: want the namespace/name"},
		{"three parts", "network=a/b/c", config{}, "network=a/b/c: want"},
		{"an unknown argument", "network=a/b colour=blue", config{}, `unknown argument "colour=blue"; expected one of network, namespace`},
		{"no key", "a/b", config{}, `unknown argument "a/b"`},
		{"twice", "network=a/b network=a/c", config{}, "duplicate argument network"},
		{"empty", "network=a/b snapshot=", config{}, "snapshot is empty"},
		{"an empty namespace", "network=a/b namespace=a,,b", config{}, "namespace=a,,b: empty or duplicate namespace"},
		{"a namespace twice", "network=a/b namespace=a,a", config{}, "namespace=a,a: empty or duplicate namespace"},
		{"two selectors", "network=a/b infra-id=x selector=y", config{}, "infra-id and selector are mutually exclusive"},
		{"a broken selector", "network=a/b selector=a in", config{}, `selector "a in"`},
		{"a broken infra ID", "network=a/b infra-id=a/b", config{}, "selector"},
		{"a context without a kubeconfig", "network=a/b context=c", config{}, "context requires kubeconfig"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parse(strings.Fields(tc.args))
			switch {
			case tc.err == "" && (err != nil || got != tc.want):
				t.Errorf("got %+v, %v; want %+v", got, err, tc.want)
			case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("the error is %v, want %q in it", err, tc.err)
			}
		})
	}
}

func TestCheckReadsTheKubeconfig(t *testing.T) {
	if err := Check("network=a/b", "kubeconfig=missing.yaml"); err == nil || !strings.Contains(err.Error(), "missing.yaml") {
		t.Errorf("the error is %v", err)
	}
	if err := Check("network=a/b"); err != nil {
		t.Error(err)
	}
}

func TestHosts(t *testing.T) {
	for _, tc := range []struct{ name, args, want, err string }{
		{"all fields", "host=52:54:00:00:00:01,hostname=host-a,address=192.0.2.20", "infra/host:52:54:00:00:00:01/host host-a [192.0.2.20]", ""},
		{"only a MAC address", "host=52-54-00-00-00-01", "infra/host:52:54:00:00:00:01/host  []", ""},
		{"no MAC address", "host=host-a", "", "host=host-a: want MAC"},
		{"an unknown field", "host=52:54:00:00:00:01,colour=blue", "", `"colour=blue": want hostname=NAME or address=IPV4ADDRESS`},
		{"a field twice", "host=52:54:00:00:00:01,hostname=a,hostname=b", "", `"hostname=b": want`},
		{"an IPv6 address", "host=52:54:00:00:00:01,address=2001:db8::1", "", `"address=2001:db8::1": want`},
		{"no address", "host=52:54:00:00:00:01,address=", "", `"address=": want`},
		{"a MAC address twice", "host=52:54:00:00:00:01 host=52:54:00:00:00:01", "", "another host has the same MAC address"},
		{"an address twice", "host=52:54:00:00:00:01,address=192.0.2.20 host=52:54:00:00:00:02,address=192.0.2.20", "", "another host has the same"},
		{"neither true nor false", "vms=perhaps", "", "vms=perhaps: want true or false"},
		{"empty", "host=", "", "host is empty"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := parse(strings.Fields("network=clusters/vlan " + tc.args))
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("the error is %v, want %q in it", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			d := newDirectory(c, slog.New(slog.DiscardHandler))
			d.addHosts()
			client, ok := d.Lookup(net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1})
			got := client.String() + " " + client.Hostname + " ["
			for _, a := range client.Reserved {
				got += a.String()
			}
			if got += "]"; !ok || got != tc.want || !d.Exists(client.Interface) {
				t.Errorf("the client is %s, want %s", got, tc.want)
			}
		})
	}
}

// TestHostPrecedesVM gives a VM the MAC address and the reservation of a host.
func TestHostPrecedesVM(t *testing.T) {
	c, err := parse(strings.Fields("network=clusters/vlan host=" + macA + ",address=192.0.2.20"))
	if err != nil {
		t.Fatal(err)
	}
	d := newDirectory(c, slog.New(slog.DiscardHandler))
	d.addHosts()
	i := &instance{Namespace: "vms", Name: "w1", Hostname: "w1", Addresses: "192.0.2.20", Interfaces: []nic{{Name: "vlan", MAC: macA}}}
	d.put(i)
	mac, _ := net.ParseMAC(macA)
	owner, _ := d.ReservedFor(netip.MustParseAddr("192.0.2.20"))
	if client, _ := d.Lookup(mac); client.Namespace != "infra" || owner != client.Interface {
		t.Errorf("%v is served, and %v has the reservation", client, owner)
	}
	if got := d.state().Duplicates[macA]; len(got) != 2 || got[1] != "vms/w1/vlan" {
		t.Errorf("duplicates are %v", got)
	}
	d.replaceInstances("", nil) // a list without VMs keeps hosts
	if client, _ := d.Lookup(mac); client.Namespace != "infra" {
		t.Errorf("%v is served", client)
	}
}

func FuzzHosts(f *testing.F) {
	f.Add("52:54:00:00:00:01,hostname=host-a,address=192.0.2.20 52:54:00:00:00:02")
	f.Fuzz(func(t *testing.T, text string) {
		hosts, err := parseHosts(text)
		if err == nil && len(hosts) != len(strings.Fields(text)) {
			t.Errorf("%d hosts in %q", len(hosts), text)
		}
	})
}
