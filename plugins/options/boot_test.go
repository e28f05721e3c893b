package options

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/plugins/internal/option"
	"github.com/densityops/oooi/test/lab"
)

// FuzzBootRequest looks up boot files for arbitrary vendor classes, architectures and user classes.
func FuzzBootRequest(f *testing.F) {
	set, err := option.Parse(strings.Fields(bootArgs))
	lab.Must(f, err)
	f.Add("PXEClient:Arch:00007", []byte{0, 7}, []byte("iPXE"))
	f.Add("HTTPClient", []byte{0, 16, 0}, []byte{9, 1})
	f.Fuzz(func(t *testing.T, class string, arch, user []byte) {
		req, err := dhcpv4.NewDiscovery(mac, dhcpv4.WithOption(dhcpv4.OptClassIdentifier(class)),
			dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionClientSystemArchitectureType, arch)),
			dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionUserClassInformation, user)))
		lab.Must(t, err)
		if b := set.BootFor(req); b != nil && (b.File == "" || b.Server.IsValid() && b.Server == (netip.Addr{})) {
			t.Errorf("got %+v", b)
		}
	})
}
