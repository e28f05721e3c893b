package kubevirt

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/internal/objects"
)

// parsed is an object of YAML.
func parsed(tb testing.TB, text string) *unstructured.Unstructured {
	tb.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		tb.Fatal(err)
	}
	return u
}

// decoded is an instance of YAML, on the network clusters/vlan.
func decoded(tb testing.TB, text string) *instance {
	tb.Helper()
	o := decoder("clusters/vlan")(parsed(tb, text))
	i, ok := o.(*instance)
	if !ok {
		tb.Fatalf("it is a %T: %+v", o, o)
	}
	return i
}

func TestInterfacesOnTheNetwork(t *testing.T) {
	for _, tc := range []struct {
		name, spec string
		want       []nic
	}{
		{"asked for", `
  networks: [{name: vlan, multus: {networkName: clusters/vlan}}]
  domain: {devices: {interfaces: [{name: vlan, macAddress: "02-00-00-00-00-AA"}]}}
status: {interfaces: [{name: vlan, mac: "02:00:00:00:00:bb", infoSource: domain}]}`, []nic{{"vlan", "02:00:00:00:00:aa"}}},
		{"given by the hypervisor", `
  networks: [{name: vlan, multus: {networkName: clusters/vlan}}]
  domain: {devices: {interfaces: [{name: vlan}]}}
status: {interfaces: [{name: vlan, mac: "02:00:00:00:00:BB", infoSource: "domain, guest-agent, multus-status"}]}`, []nic{{"vlan", "02:00:00:00:00:bb"}}},
		{"said by the guest alone", `
  networks: [{name: vlan, multus: {networkName: clusters/vlan}}]
  domain: {devices: {interfaces: [{name: vlan}]}}
status: {interfaces: [{name: vlan, mac: "02:00:00:00:00:bb", infoSource: guest-agent}, {interfaceName: eth9, mac: "02:00:00:00:00:cc", infoSource: guest-agent}]}`, []nic{{"vlan", ""}}},
		{"not yet given", `
  networks: [{name: vlan, multus: {networkName: clusters/vlan}}]
  domain: {devices: {interfaces: [{name: vlan}]}}`, []nic{{"vlan", ""}}},
		{"a bare name, in another namespace", `
  networks: [{name: vlan, multus: {networkName: vlan}}]
  domain: {devices: {interfaces: [{name: vlan, macAddress: "02:00:00:00:00:aa"}]}}`, nil},
		{"other networks, and one twice", `
  networks: [{name: default, pod: {}}, {name: a, multus: {networkName: clusters/vlan}}, {name: x, multus: {networkName: clusters/other}}, {name: b, multus: {networkName: clusters/vlan}}]
  domain: {devices: {interfaces: [{name: default, macAddress: "02:00:00:00:00:01"}, {name: x, macAddress: "02:00:00:00:00:02"}, {name: b, macAddress: "02:00:00:00:00:03"}, {name: a, macAddress: nonsense}]}}`,
			[]nic{{"a", ""}, {"b", "02:00:00:00:00:03"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			i := decoded(t, "kind: VirtualMachineInstance\nmetadata: {name: w, namespace: clusters-demo}\nspec:"+tc.spec)
			if !slices.Equal(i.Interfaces, tc.want) {
				t.Errorf("the interfaces are %v, want %v", i.Interfaces, tc.want)
			}
		})
	}
	beside := decoded(t, "metadata: {name: w, namespace: clusters}\nspec: {networks: [{name: v, multus: {networkName: vlan}}]}")
	if !slices.Equal(beside.Interfaces, []nic{{"v", ""}}) {
		t.Errorf("a bare name is not that of the machine's namespace: %v", beside.Interfaces)
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

func TestWhoseInstanceItIs(t *testing.T) {
	i := decoded(t, `
metadata:
  name: worker-1
  namespace: clusters-demo
  deletionTimestamp: "2026-01-01T00:00:00Z"
  ownerReferences: [{kind: Pod, name: other, controller: true}, {kind: VirtualMachine, name: vm-1, controller: true}]
status: {phase: Succeeded}`)
	if i.owner() != "vm-1" || !i.Deleted || !i.Final {
		t.Errorf("it is %+v", i)
	}
	if alone := decoded(t, "metadata: {name: worker-1, namespace: a, ownerReferences: [{kind: VirtualMachine, name: vm-1}]}"); alone.owner() != "worker-1" {
		t.Errorf("one that nobody controls is %q", alone.owner())
	}
}

func TestABrokenInstanceIsNamed(t *testing.T) {
	o := decoder("a/b")(parsed(t, "metadata: {name: w, namespace: a}\nspec: {networks: 7}"))
	broken, ok := o.(*objects.Broken)
	if !ok || broken.Name != "w" || broken.Error == "" {
		t.Errorf("it is %+v", o)
	}
}

func TestReservations(t *testing.T) {
	for _, tc := range []struct{ name, annotation, want, err string }{
		{"none", "", "[]", ""},
		{"for all interfaces", "192.0.2.10", "[192.0.2.10]", ""},
		{"of both families", " 192.0.2.10 , 2001:db8::10", "[192.0.2.10 2001:db8::10]", ""},
		{"for this one", "vlan=192.0.2.10,other=192.0.2.11", "[192.0.2.10]", ""},
		{"for another", "other=192.0.2.11", "[]", ""},
		{"for this one and the rest", "192.0.2.9,vlan=192.0.2.10", "[192.0.2.10]", ""},
		{"two of a family", "192.0.2.9,192.0.2.10", "", "192.0.2.10 is one address too many"},
		{"no address", "somewhere", "", `"somewhere" is not an address that a machine can have`},
		{"a prefix", "192.0.2.0/24", "", "not an address"},
		{"nobody's", "0.0.0.0", "", "not an address"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			i := instance{Addresses: tc.annotation, Options: "domain=own.example"}
			got, options, err := i.annotated("vlan")
			if len(options) != 1 {
				t.Errorf("the options are lost: %v", options)
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
	if got, _, err := wrong.annotated("vlan"); len(got) != 1 || err == nil || !strings.Contains(err.Error(), OptionsAnnotation) {
		t.Errorf("with broken options there is %v, %v", got, err)
	}
}

// FuzzAnnotations reads what anybody may write into an annotation.
func FuzzAnnotations(f *testing.F) {
	f.Add("vlan=192.0.2.10,2001:db8::1", "domain=a.example option=43:hex:0102 routes=10.0.0.0/8>192.0.2.1")
	f.Add("=,=", "force=224:uint32:7 t1=1s t2=2s search=a,b")
	f.Fuzz(func(t *testing.T, addresses, options string) {
		i := instance{Addresses: addresses, Options: options}
		got, own, err := i.annotated("vlan")
		if err == nil && len(got) > 2 {
			t.Errorf("%d addresses of two families", len(got))
		}
		for code := range own {
			if code == 0 || code == 53 || code == 54 || code == 255 {
				t.Errorf("option %d is the protocol's", code)
			}
		}
	})
}
