package options

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/golden"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/plugins/internal/vm"
)

var mac = net.HardwareAddr{2, 0, 0, 0, 0, 1}

// exchange returns the plugin's response to a request of the given type, with requested as the parameter request
// list. before contains options that earlier plugins have set.
func exchange(t *testing.T, args string, kind dhcpv4.MessageType, requested []uint8, before ...dhcpv4.Option) *dhcpv4.DHCPv4 {
	t.Helper()
	h, err := setup4(strings.Fields(args)...)
	if err != nil {
		t.Fatal(err)
	}
	mods := []dhcpv4.Modifier{dhcpv4.WithMessageType(kind), dhcpv4.WithHwAddr(mac)}
	if requested != nil {
		var list []dhcpv4.OptionCode
		for _, code := range requested {
			list = append(list, dhcpv4.GenericOptionCode(code))
		}
		mods = append(mods, dhcpv4.WithRequestedOptions(list...))
	}
	req, err := dhcpv4.New(mods...)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := dhcpv4.NewReplyFromRequest(req, dhcpv4.WithMessageType(dhcpv4.MessageTypeAck))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range before {
		resp.UpdateOption(o)
	}
	resp, stop := h(req, resp)
	if stop {
		t.Error("the plugin ends the chain")
	}
	return resp
}

func TestOptionsAreSentOnRequest(t *testing.T) {
	const all = "hostname=node-1 domain=example.com mtu=1400 broadcast=192.0.2.255 ntp=192.0.2.1,192.0.2.2 t1=10m t2=20m " +
		"search=a.example,b.example routes=10.0.0.0/8>192.0.2.9 option=43:hex:0102 force=224:string:site"
	for _, tc := range []struct {
		name      string
		kind      dhcpv4.MessageType
		requested []uint8
		want      []uint8
	}{
		{"all requested options", dhcpv4.MessageTypeRequest, []uint8{12, 15, 26, 28, 42, 43, 119, 121}, []uint8{12, 15, 26, 28, 42, 43, 53, 58, 59, 119, 121, 224}},
		{"only requested and forced options", dhcpv4.MessageTypeRequest, []uint8{1}, []uint8{53, 58, 59, 224}},
		{"all options without a list", dhcpv4.MessageTypeDiscover, nil, []uint8{12, 15, 26, 28, 42, 43, 53, 58, 59, 119, 121, 224}},
		{"no times in the reply to INFORM", dhcpv4.MessageTypeInform, []uint8{15, 58, 59}, []uint8{15, 53, 224}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp := exchange(t, all, tc.kind, tc.requested)
			var got []uint8
			for code := range resp.Options {
				got = append(got, code)
			}
			slices.Sort(got)
			if !slices.Equal(got, tc.want) {
				t.Errorf("the options are %v, want %v", got, tc.want)
			}
		})
	}
	resp := exchange(t, all, dhcpv4.MessageTypeRequest, []uint8{12, 15, 26, 28, 42, 43, 119, 121})
	for name, pair := range map[string][2]string{
		"hostname":  {resp.HostName(), "node-1"},
		"domain":    {resp.DomainName(), "example.com"},
		"broadcast": {resp.BroadcastAddress().String(), "192.0.2.255"},
		"ntp":       {dhcpv4.IPs(resp.NTPServers()).String(), "192.0.2.1, 192.0.2.2"},
		"search":    {strings.Join(resp.DomainSearch().Labels, " "), "a.example b.example"},
		"routes":    {dhcpv4.Routes(resp.ClasslessStaticRoute()).String(), "route to 10.0.0.0/8 via 192.0.2.9"},
		"43":        {string(resp.GetOneOption(dhcpv4.GenericOptionCode(43))), "\x01\x02"},
		"t1":        {resp.IPAddressRenewalTime(0).String(), "10m0s"},
		"t2":        {resp.IPAddressRebindingTime(0).String(), "20m0s"},
		"224":       {string(resp.GetOneOption(dhcpv4.GenericOptionCode(224))), "site"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %q, want %q", name, pair[0], pair[1])
		}
	}
	if mtu, err := dhcpv4.GetUint16(dhcpv4.OptionInterfaceMTU, resp.Options); err != nil || mtu != 1400 {
		t.Errorf("the MTU is %d, %v", mtu, err)
	}
}

func TestTimesAfterTheLeaseAreOmitted(t *testing.T) {
	resp := exchange(t, "t1=10m t2=20m", dhcpv4.MessageTypeRequest, nil, dhcpv4.OptIPAddressLeaseTime(15*time.Minute))
	if resp.IPAddressRenewalTime(0) != 10*time.Minute || resp.Options.Has(dhcpv4.OptionRebindingTimeValue) {
		t.Errorf("a lease of 15m has the times %s and %s", resp.IPAddressRenewalTime(0), resp.IPAddressRebindingTime(0))
	}
}

func TestDefaultRouteIsAdded(t *testing.T) {
	router := dhcpv4.OptRouter(net.IPv4(192, 0, 2, 1))
	static := dhcpv4.OptClasslessStaticRoute(&dhcpv4.Route{
		Dest: &net.IPNet{IP: net.IPv4(198, 51, 100, 0).To4(), Mask: net.CIDRMask(24, 32)}, Router: net.IPv4(192, 0, 2, 8),
	})
	requested := []uint8{3, 121}
	for _, tc := range []struct {
		name, args string
		before     []dhcpv4.Option
		requested  []uint8
		want       string
	}{
		{"routes of the plugin", "routes=10.0.0.0/8>192.0.2.9", []dhcpv4.Option{router}, requested, "route to 10.0.0.0/8 via 192.0.2.9; route to 0.0.0.0/0 via 192.0.2.1"},
		{"routes of another plugin", "", []dhcpv4.Option{router, static}, requested, "route to 198.51.100.0/24 via 192.0.2.8; route to 0.0.0.0/0 via 192.0.2.1"},
		{"configured default route", "routes=0.0.0.0/0>192.0.2.9", []dhcpv4.Option{router}, requested, "route to 0.0.0.0/0 via 192.0.2.9"},
		{"no router", "routes=10.0.0.0/8>192.0.2.9", nil, requested, "route to 10.0.0.0/8 via 192.0.2.9"},
		{"not requested, of another plugin", "", []dhcpv4.Option{router, static}, []uint8{3}, "route to 198.51.100.0/24 via 192.0.2.8; route to 0.0.0.0/0 via 192.0.2.1"},
		{"not requested, and sent by force", "force=121:hex:080ac0000209", []dhcpv4.Option{router}, []uint8{3}, "route to 10.0.0.0/8 via 192.0.2.9; route to 0.0.0.0/0 via 192.0.2.1"},
		{"not requested", "routes=10.0.0.0/8>192.0.2.9", []dhcpv4.Option{router}, []uint8{3}, ""},
		{"no routes", "", []dhcpv4.Option{router}, requested, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp := exchange(t, tc.args, dhcpv4.MessageTypeRequest, tc.requested, tc.before...)
			if got := dhcpv4.Routes(resp.ClasslessStaticRoute()).String(); got != tc.want {
				t.Errorf("the routes are %q, want %q", got, tc.want)
			}
		})
	}
}

func TestNAKHasNoOptions(t *testing.T) {
	resp := exchange(t, "force=224:string:site t1=10m", dhcpv4.MessageTypeRequest, nil, dhcpv4.OptMessageType(dhcpv4.MessageTypeNak))
	if len(resp.Options) != 1 {
		t.Errorf("a NAK has the options %v", resp.Options)
	}
}

// singleVM is a directory with one VM.
type singleVM struct {
	vm.Directory // other methods are not called

	client vm.Client
}

func (m singleVM) Lookup(addr net.HardwareAddr) (vm.Client, bool) {
	return m.client, addr.String() == mac.String()
}

func TestRoutesOfAVMIncludeTheDefaultRoute(t *testing.T) {
	vm.Provide(singleVM{client: vm.Client{Options: dhcpv4.Options{121: {8, 10, 192, 0, 2, 9}}}})
	t.Cleanup(func() { vm.Provide(singleVM{}) })
	const want = "route to 10.0.0.0/8 via 192.0.2.9; route to 0.0.0.0/0 via 192.0.2.1"
	for _, requested := range [][]uint8{{1, 3}, {1, 3, 121}, nil} { // a VM's options are sent without a request
		resp := exchange(t, "", dhcpv4.MessageTypeRequest, requested, dhcpv4.OptRouter(net.IPv4(192, 0, 2, 1)))
		if got := dhcpv4.Routes(resp.ClasslessStaticRoute()).String(); got != want {
			t.Errorf("with the request of %v the routes are %q, want %q", requested, got, want)
		}
	}
}

func TestOptionsOfAVMTakePrecedence(t *testing.T) {
	vm.Provide(singleVM{client: vm.Client{
		Interface: vm.Interface{Namespace: "clusters-demo", VM: "worker", Name: "vlan"},
		Reserved:  []netip.Addr{}, Options: dhcpv4.Options{15: []byte("own.example"), 224: []byte("mine")},
	}})
	t.Cleanup(func() { vm.Provide(singleVM{}) })
	resp := exchange(t, "domain=example.com", dhcpv4.MessageTypeRequest, []uint8{1})
	if resp.DomainName() != "own.example" || string(resp.GetOneOption(dhcpv4.GenericOptionCode(224))) != "mine" {
		t.Errorf("the options are %v", resp.Options)
	}
}

func TestErrors(t *testing.T) {
	golden.Errors(t, "testdata/errors.txt", func(line string) error {
		_, err := setup4(strings.Fields(strings.ReplaceAll(line, "LONG", strings.Repeat("a", 128)))...)
		return err
	})
}
