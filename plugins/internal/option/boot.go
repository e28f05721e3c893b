package option

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"
)

// A Boot is the boot file of one kind of network boot client.
type Boot struct {
	// client is the name of the client in the configuration.
	client string
	// archs are the client's architectures (option 93). It is empty for iPXE, which is identified by its user
	// class.
	archs []iana.Arch
	// Server is the TFTP server. It is the zero Addr if File is a URL.
	Server netip.Addr
	// File is the path on the TFTP server, or the URL.
	File string
}

// Vendor classes of clients (option 60), optionally followed by a colon and more text, and the user class of iPXE
// (option 77).
const (
	classPXE  = "PXEClient"
	classHTTP = "HTTPClient"
	userIPXE  = "iPXE"
)

// clientIPXE is the name of iPXE in the configuration, for any architecture.
const clientIPXE = "ipxe"

// bootClients maps names of clients to their architectures, from RFC 4578 and IANA's registry of processor
// architecture types.
var bootClients = map[string][]iana.Arch{
	"bios":         {iana.INTEL_X86PC},
	"uefi-x86":     {iana.EFI_IA32},
	"uefi-x64":     {iana.EFI_X86_64, iana.EFI_BC}, // RFC 4578 has the two numbers swapped
	"uefi-arm32":   {iana.EFI_ARM32},
	"uefi-arm64":   {iana.EFI_ARM64},
	"uefi-riscv64": {iana.EFI_RISCV64},
	"http-x86":     {iana.EFI_X86_HTTP},
	"http-x64":     {iana.EFI_X86_64_HTTP, iana.EFI_BC_HTTP},
	"http-arm32":   {iana.EFI_ARM32_HTTP},
	"http-arm64":   {iana.EFI_ARM64_HTTP},
	"http-riscv64": {iana.EFI_RISCV64_HTTP},
	clientIPXE:     nil,
}

// httpArchs are the architectures of clients that load a URL themselves.
var httpArchs = []iana.Arch{
	iana.EFI_X86_HTTP, iana.EFI_X86_64_HTTP, iana.EFI_BC_HTTP, iana.EFI_ARM32_HTTP, iana.EFI_ARM64_HTTP, iana.INTEL_X86PC_HTTP,
	iana.UBOOT_ARM32_HTTP, iana.UBOOT_ARM64_HTTP, iana.EFI_RISCV32_HTTP, iana.EFI_RISCV64_HTTP, iana.EFI_RISCV128_HTTP,
}

// maxFile is the length of the field for the boot file name, without the terminating zero.
const maxFile = 127

// parseBoot parses CLIENT:URL.
func parseBoot(text string) (Boot, error) {
	client, location, ok := strings.Cut(text, ":")
	if !ok {
		return Boot{}, errors.New("must be boot=CLIENT:URL, such as boot=uefi-x64:tftp://192.0.2.9/shimx64.efi")
	}
	archs, known := bootClients[client]
	if number, ok := strings.CutPrefix(client, "arch-"); ok {
		n, err := strconv.ParseUint(number, 10, 16)
		archs, known = []iana.Arch{iana.Arch(n)}, err == nil
	}
	if !known {
		return Boot{}, fmt.Errorf("unknown client %q; must be one of %s, or arch-NUMBER", client, strings.Join(slices.Sorted(maps.Keys(bootClients)), ", "))
	}
	b := Boot{client: client, archs: archs, File: location}
	u, err := url.Parse(location)
	if err != nil || u.Host == "" || strings.Trim(u.Path, "/") == "" {
		return Boot{}, fmt.Errorf("%q is not a URL with a host and a path", location)
	}
	loadsURL := b.ipxe() || b.http()
	switch {
	case u.Scheme == "http" || u.Scheme == "https":
		if !loadsURL {
			return Boot{}, fmt.Errorf("client %s loads its file by TFTP; the URL must be tftp://ADDRESS/PATH", client)
		}
	case u.Scheme != "tftp" || b.http():
		return Boot{}, fmt.Errorf("unsupported scheme %q; must be http or https, or tftp for a client that does not boot by HTTP", u.Scheme)
	case !loadsURL:
		if b.Server, err = netip.ParseAddr(u.Host); err != nil || !b.Server.Is4() {
			return Boot{}, fmt.Errorf("TFTP server %q is not an IPv4 address; set its address, because firmware does not resolve names", u.Host)
		}
		b.File = strings.TrimPrefix(u.Path, "/")
	}
	if len(b.File) > maxFile {
		return Boot{}, fmt.Errorf("boot file %q is longer than %d bytes, the limit of many clients", b.File, maxFile)
	}
	return b, nil
}

func (b *Boot) ipxe() bool { return b.client == clientIPXE }

// http reports whether the client loads a URL itself.
func (b *Boot) http() bool { return len(b.archs) > 0 && slices.Contains(httpArchs, b.archs[0]) }

// BootFor returns the boot file for the client that sent req, or nil if the client does not boot over the network or no
// boot file is configured for it. iPXE's boot file takes precedence over the architecture's.
func (s Set) BootFor(req *dhcpv4.DHCPv4) *Boot {
	if len(s.Boot) == 0 {
		return nil
	}
	class, _, _ := strings.Cut(req.ClassIdentifier(), ":")
	ipxe, archs := slices.Contains(req.UserClass(), userIPXE), req.ClientArch()
	var found *Boot
	for i := range s.Boot {
		b := &s.Boot[i]
		switch {
		case b.ipxe() && ipxe:
			return b
		case b.ipxe(), b.http() != (class == classHTTP), class != classHTTP && class != classPXE:
		case found == nil && slices.ContainsFunc(archs, func(a iana.Arch) bool { return slices.Contains(b.archs, a) }):
			found = b
		}
	}
	return found
}

// Answer sets the boot file in resp, and the options that the client in req needs to load it: the TFTP server, or the
// vendor class of HTTP boot.
func (b *Boot) Answer(req, resp *dhcpv4.DHCPv4) {
	resp.BootFileName = b.File
	resp.UpdateOption(dhcpv4.OptBootFileName(b.File))
	switch {
	case b.Server.IsValid():
		resp.ServerIPAddr = b.Server.AsSlice()
		if req.IsOptionRequested(dhcpv4.OptionTFTPServerName) {
			resp.UpdateOption(dhcpv4.OptTFTPServerName(b.Server.String()))
		}
	case b.http():
		// HTTP boot clients ignore responses without this class: UEFI 2.10, section 24.7.
		resp.UpdateOption(dhcpv4.OptClassIdentifier(classHTTP))
	}
}
