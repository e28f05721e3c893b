package options

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/densityops/oooi/plugins/internal/option"
)

const bootArgs = "boot=bios:tftp://192.0.2.9/undionly.kpxe boot=uefi-x64:tftp://192.0.2.8//boot/shimx64.efi boot=uefi-arm64:tftp://192.0.2.9/shimaa64.efi " +
	"boot=http-x64:https://boot.example.com/shimx64.efi boot=arch-27:tftp://192.0.2.9/riscv.efi boot=ipxe:http://192.0.2.9/boot.ipxe"

func TestBootFileDependsOnTheClient(t *testing.T) {
	arch := func(list ...iana.Arch) dhcpv4.Modifier {
		return dhcpv4.WithOption(dhcpv4.OptClientArch(list...))
	}
	class := func(text string) dhcpv4.Modifier {
		return dhcpv4.WithOption(dhcpv4.OptClassIdentifier(text))
	}
	const pxe, http = "PXEClient:Arch:00000:UNDI:002001", "HTTPClient:Arch:00016:UNDI:003001"
	for name, tt := range map[string]struct {
		client                 []dhcpv4.Modifier
		server, file, classOut string
	}{
		"BIOS":                      {[]dhcpv4.Modifier{class(pxe), arch(0)}, "192.0.2.9", "undionly.kpxe", ""},
		"UEFI":                      {[]dhcpv4.Modifier{class(pxe), arch(7)}, "192.0.2.8", "/boot/shimx64.efi", ""},
		"UEFI, other number":        {[]dhcpv4.Modifier{class(pxe), arch(9)}, "192.0.2.8", "/boot/shimx64.efi", ""},
		"UEFI on ARM":               {[]dhcpv4.Modifier{class(pxe), arch(11)}, "192.0.2.9", "shimaa64.efi", ""},
		"arch-NUMBER":               {[]dhcpv4.Modifier{class(pxe), arch(27)}, "192.0.2.9", "riscv.efi", ""},
		"several, the second known": {[]dhcpv4.Modifier{class(pxe), arch(99, 7)}, "192.0.2.8", "/boot/shimx64.efi", ""},
		"HTTP":                      {[]dhcpv4.Modifier{class(http), arch(16)}, "", "https://boot.example.com/shimx64.efi", "HTTPClient"},
		"HTTP arch, PXE class":      {[]dhcpv4.Modifier{class(pxe), arch(16)}, "", "", ""},
		"PXE arch, HTTP class":      {[]dhcpv4.Modifier{class(http), arch(7)}, "", "", ""},
		"iPXE":                      {[]dhcpv4.Modifier{class(pxe), arch(7), dhcpv4.WithUserClass("iPXE", false)}, "", "http://192.0.2.9/boot.ipxe", ""},
		"iPXE by RFC 3004":          {[]dhcpv4.Modifier{class(pxe), arch(0), dhcpv4.WithUserClass("iPXE", true)}, "", "http://192.0.2.9/boot.ipxe", ""},
		"another architecture":      {[]dhcpv4.Modifier{class(pxe), arch(31)}, "", "", ""},
		"no architecture":           {[]dhcpv4.Modifier{class(pxe)}, "", "", ""},
		"an operating system":       {[]dhcpv4.Modifier{class("Linux"), arch(7)}, "", "", ""},
		"truncated architecture":    {[]dhcpv4.Modifier{class(pxe), dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionClientSystemArchitectureType, []byte{7}))}, "", "", ""},
		"no class":                  {[]dhcpv4.Modifier{arch(7)}, "", "", ""},
		"class with a longer name":  {[]dhcpv4.Modifier{class("PXEClientele"), arch(7)}, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := setup4(strings.Fields(bootArgs)...)
			if err != nil {
				t.Fatal(err)
			}
			req, err := dhcpv4.NewDiscovery(mac, tt.client...)
			if err != nil {
				t.Fatal(err)
			}
			req.UpdateOption(dhcpv4.OptParameterRequestList(dhcpv4.OptionTFTPServerName, dhcpv4.OptionBootfileName))
			resp, err := dhcpv4.NewReplyFromRequest(req, dhcpv4.WithMessageType(dhcpv4.MessageTypeOffer))
			if err != nil {
				t.Fatal(err)
			}
			resp, _ = h(req, resp)
			if resp, err = dhcpv4.FromBytes(resp.ToBytes()); err != nil {
				t.Fatal(err)
			}
			server := net.IPv4zero
			if tt.server != "" {
				server = net.ParseIP(tt.server)
			}
			if !resp.ServerIPAddr.Equal(server) || resp.BootFileName != tt.file || resp.TFTPServerName() != tt.server ||
				resp.BootFileNameOption() != tt.file || resp.ClassIdentifier() != tt.classOut {
				t.Errorf("server %v, file %q; in options: server %q, file %q, class %q", resp.ServerIPAddr, resp.BootFileName, resp.TFTPServerName(), resp.BootFileNameOption(), resp.ClassIdentifier())
			}
		})
	}
}

// FuzzBootRequest looks up boot files for arbitrary vendor classes, architectures and user classes.
func FuzzBootRequest(f *testing.F) {
	set, err := option.Parse(strings.Fields(bootArgs))
	if err != nil {
		f.Fatal(err)
	}
	f.Add("PXEClient:Arch:00007", []byte{0, 7}, []byte("iPXE"))
	f.Add("HTTPClient", []byte{0, 16, 0}, []byte{9, 1})
	f.Fuzz(func(t *testing.T, class string, arch, user []byte) {
		req, err := dhcpv4.NewDiscovery(mac, dhcpv4.WithOption(dhcpv4.OptClassIdentifier(class)),
			dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionClientSystemArchitectureType, arch)),
			dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionUserClassInformation, user)))
		if err != nil {
			t.Fatal(err)
		}
		if b := set.BootFor(req); b != nil && (b.File == "" || b.Server.IsValid() && b.Server == (netip.Addr{})) {
			t.Errorf("got %+v", b)
		}
	})
}
