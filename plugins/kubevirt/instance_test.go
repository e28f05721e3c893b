package kubevirt

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/internal/objects"
)

// parseYAML returns an object of YAML.
func parseYAML(tb testing.TB, text string) *unstructured.Unstructured {
	tb.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		tb.Fatal(err)
	}
	return u
}

// decodeYAML returns an instance of YAML, with its interfaces on the network clusters/vlan.
func decodeYAML(tb testing.TB, text string) *instance {
	tb.Helper()
	o := decodeInstance(parseYAML(tb, text))
	i, ok := o.(*instance)
	if !ok {
		tb.Fatalf("got a %T: %+v", o, o)
	}
	i.Interfaces = (&networks{own: "clusters/vlan"}).on(i, nil)
	return i
}

func TestInterfacesOnTheNetwork(t *testing.T) {
	const vlan = "{name: vlan, multus: {networkName: clusters/vlan}}"
	for _, tc := range []struct {
		name, networks, interfaces, status string
		want                               []nic
	}{
		{"MAC address in the spec", vlan, `{name: vlan, macAddress: "02-00-00-00-00-AA"}`, `{name: vlan, mac: "02:00:00:00:00:bb", infoSource: domain}`, []nic{{"vlan", "02:00:00:00:00:aa"}}},
		{"MAC address from the hypervisor", vlan, "{name: vlan}", `{name: vlan, mac: "02:00:00:00:00:BB", infoSource: "domain, guest-agent, multus-status"}`, []nic{{"vlan", "02:00:00:00:00:bb"}}},
		{"MAC address from the guest only", vlan, "{name: vlan}", `{name: vlan, mac: "02:00:00:00:00:bb", infoSource: guest-agent}, {interfaceName: eth9, mac: "02:00:00:00:00:cc", infoSource: guest-agent}`, []nic{{"vlan", ""}}},
		{"no MAC address yet", vlan, "{name: vlan}", "", []nic{{"vlan", ""}}},
		{"a network name without a namespace, in another namespace", "{name: vlan, multus: {networkName: vlan}}", `{name: vlan, macAddress: "02:00:00:00:00:aa"}`, "", nil},
		{
			"other networks, and two interfaces",
			"{name: default, pod: {}}, {name: a, multus: {networkName: clusters/vlan}}, {name: x, multus: {networkName: clusters/other}}, {name: b, multus: {networkName: clusters/vlan}}",
			`{name: default, macAddress: "02:00:00:00:00:01"}, {name: x, macAddress: "02:00:00:00:00:02"}, {name: b, macAddress: "02:00:00:00:00:03"}, {name: a, macAddress: nonsense}`,
			"", []nic{{"a", ""}, {"b", "02:00:00:00:00:03"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			i := decodeYAML(t, fmt.Sprintf("metadata: {name: w, namespace: clusters-demo}\nspec: {networks: [%s], domain: {devices: {interfaces: [%s]}}}\nstatus: {interfaces: [%s]}", tc.networks, tc.interfaces, tc.status))
			if !slices.Equal(i.Interfaces, tc.want) {
				t.Errorf("the interfaces are %v, want %v", i.Interfaces, tc.want)
			}
		})
	}
	sameNamespace := decodeYAML(t, "metadata: {name: w, namespace: clusters}\nspec: {networks: [{name: v, multus: {networkName: vlan}}]}")
	if !slices.Equal(sameNamespace.Interfaces, []nic{{"v", ""}}) {
		t.Errorf("a network name without a namespace is not in the instance's namespace: %v", sameNamespace.Interfaces)
	}
}

func TestHostNames(t *testing.T) {
	long := strings.Repeat("a", 70)
	for _, tc := range []struct{ name, specified, want string }{
		{"worker-1", "", "worker-1"},
		{"worker-1.example.com", "", "worker-1"},
		{"worker-1", "node-9", "node-9"},
		{"worker-1", "node-9.example.com", "node-9"},
		{long, "", long[:63]},
	} {
		if got := hostname(tc.specified, tc.name); got != tc.want {
			t.Errorf("%q with the host name %q is %q, want %q", tc.name, tc.specified, got, tc.want)
		}
	}
}

func TestOwner(t *testing.T) {
	i := decodeYAML(t, `
metadata:
  name: worker-1
  namespace: clusters-demo
  deletionTimestamp: "2026-01-01T00:00:00Z"
  ownerReferences: [{kind: Pod, name: other, controller: true}, {kind: VirtualMachine, name: vm-1, controller: true}]
status: {phase: Succeeded}`)
	if i.owner() != "vm-1" || !i.Deleted || !i.Final {
		t.Errorf("got instance %+v", i)
	}
	if alone := decodeYAML(t, "metadata: {name: worker-1, namespace: a, ownerReferences: [{kind: VirtualMachine, name: vm-1}]}"); alone.owner() != "worker-1" {
		t.Errorf("the owner of an instance without a controller is %q", alone.owner())
	}
}

func TestRunningInstance(t *testing.T) {
	for _, tc := range []struct {
		name, metadata, status string
		running, mayRun        bool
	}{
		{"running", "", "phase: Running, conditions: [{type: Paused, status: \"False\", lastProbeTime: null}]", true, true},
		{"no phase", "", "", false, true},
		{"scheduled", "", "phase: Scheduled", false, false},
		{"ended", "", "phase: Succeeded", false, false},
		{"paused", "", "phase: Running, conditions: [{type: Paused, status: \"True\", lastTransitionTime: null}]", false, false},
		{"being deleted", `, deletionTimestamp: "2026-01-01T00:00:00Z"`, "phase: Running", false, false},
	} {
		i := decodeYAML(t, "metadata: {name: worker-1, namespace: a"+tc.metadata+"}\nstatus: {"+tc.status+"}")
		if i.Running != tc.running || i.MayRun != tc.mayRun {
			t.Errorf("%s: got running %v, may run %v", tc.name, i.Running, i.MayRun)
		}
	}
}

func TestBrokenInstance(t *testing.T) {
	o := decodeInstance(parseYAML(t, "metadata: {name: w, namespace: a}\nspec: {networks: 7}"))
	broken, ok := o.(*objects.Broken)
	if !ok || broken.Name != "w" || broken.Error == "" {
		t.Errorf("got %+v", o)
	}
}

func TestReservations(t *testing.T) {
	for _, tc := range []struct{ name, annotation, want, err string }{
		{"none", "", "[]", ""},
		{"for all interfaces", "192.0.2.10", "[192.0.2.10]", ""},
		{"both families", " 192.0.2.10 , 2001:db8::10", "[192.0.2.10 2001:db8::10]", ""},
		{"for this interface", "vlan=192.0.2.10,other=192.0.2.11", "[192.0.2.10]", ""},
		{"for another interface", "other=192.0.2.11", "[]", ""},
		{"for this interface and for all", "192.0.2.9,vlan=192.0.2.10", "[192.0.2.10]", ""},
		{"two addresses of a family", "192.0.2.9,192.0.2.10", "", "192.0.2.10 is a second address of its family"},
		{"not an address", "somewhere", "", `"somewhere" is not a usable unicast address`},
		{"a prefix", "192.0.2.0/24", "", "not a usable unicast address"},
		{"unspecified", "0.0.0.0", "", "not a usable unicast address"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			i := instance{Addresses: tc.annotation, Options: "domain=own.example"}
			got, options, err := i.parseAnnotations("vlan")
			if len(options) != 1 {
				t.Errorf("the options are %v, want one", options)
			}
			switch {
			case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("the error is %v, want %q in it", err, tc.err)
			case tc.err == "" && (err != nil || text(got) != tc.want):
				t.Errorf("got %v, %v; want %s", got, err, tc.want)
			}
		})
	}
	wrong := instance{Addresses: "192.0.2.10", Options: "colour=blue"}
	if got, _, err := wrong.parseAnnotations("vlan"); len(got) != 1 || err == nil || !strings.Contains(err.Error(), optionsAnnotation) {
		t.Errorf("with invalid options: got %v, %v", got, err)
	}
}

// FuzzAnnotations parses arbitrary annotations.
func FuzzAnnotations(f *testing.F) {
	f.Add("vlan=192.0.2.10,2001:db8::1", "domain=a.example option=43:hex:0102 routes=10.0.0.0/8>192.0.2.1")
	f.Add("=,=", "force=224:uint32:7 t1=1s t2=2s search=a,b")
	f.Fuzz(func(t *testing.T, addresses, options string) {
		i := instance{Addresses: addresses, Options: options}
		got, parsed, err := i.parseAnnotations("vlan")
		if err == nil && len(got) > 2 {
			t.Errorf("%d addresses, want at most one per family", len(got))
		}
		for code := range parsed {
			if code == 0 || code == 53 || code == 54 || code == 255 {
				t.Errorf("the protocol option %d is accepted", code)
			}
		}
	})
}

func TestUsedAddresses(t *testing.T) {
	for _, tc := range []struct {
		name, network, status, want string
	}{
		{"one address", "clusters/vlan", "interfaces: [{name: vlan, ipAddress: 192.0.2.7}]", "[192.0.2.7]"},
		{
			"several addresses, in the order of the status", "clusters/vlan",
			`interfaces: [{name: vlan, ipAddress: 192.0.2.7, ipAddresses: [192.0.2.7, "fe80::1", 192.0.2.6/24, "2001:db8::1"]}]`, "[192.0.2.7 192.0.2.6 2001:db8::1]",
		},
		{"no address yet", "clusters/vlan", "interfaces: [{name: vlan}]", "[]"},
		{"invalid and local addresses", "clusters/vlan", "interfaces: [{name: vlan, ipAddress: here, ipAddresses: [127.0.0.1, 0.0.0.0, 192.0.2.300]}]", "[]"},
		{"address of an interface that only the guest reports", "clusters/vlan", "interfaces: [{interfaceName: docker0, ipAddress: 192.0.2.7}]", "[]"},
		{"address on another network", "clusters/other", "interfaces: [{name: vlan, ipAddress: 192.0.2.7}]", "[]"},
		{"address of a VM that has ended", "clusters/vlan", "phase: Succeeded, interfaces: [{name: vlan, ipAddress: 192.0.2.7}]", "[]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := parseYAML(t, fmt.Sprintf(`
metadata: {name: w1-instance, namespace: demo, ownerReferences: [{kind: VirtualMachine, name: w1, controller: true}]}
spec:
  networks: [{name: vlan, multus: {networkName: %s}}]
  domain: {devices: {interfaces: [{name: vlan, macAddress: %q}]}}
status: {%s}
`, tc.network, macA, tc.status))
			list, err := reportedBy(u, &networks{own: "clusters/vlan"})
			if err != nil {
				t.Fatal(err)
			}
			got := "[]"
			for _, reported := range list {
				got = fmt.Sprint(reported.Addrs)
				if reported.String() != "demo/w1/vlan" || reported.MAC != macA || reported.Hostname != "w1-instance" {
					t.Errorf("got interface %+v", reported)
				}
			}
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
	if _, err := reportedBy(parseYAML(t, "metadata: {name: a, namespace: b}\nstatus: {interfaces: here}"), &networks{}); err == nil {
		t.Error("an invalid status is no error")
	}
}
