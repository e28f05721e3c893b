package options

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/densityops/oooi/plugins/internal/vm"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

var mac = net.HardwareAddr{2, 0, 0, 0, 0, 1}

const bootArgs = "boot=bios:tftp://192.0.2.9/undionly.kpxe boot=uefi-x64:tftp://192.0.2.8//boot/shimx64.efi boot=uefi-arm64:tftp://192.0.2.9/shimaa64.efi " +
	"boot=http-x64:https://boot.example.com/shimx64.efi boot=arch-27:tftp://192.0.2.9/riscv.efi boot=ipxe:http://192.0.2.9/boot.ipxe"

// TestMessages runs the transcript testdata/messages.txt: "MESSAGE | ARGUMENTS" is the plugin's response, with its options, to a message.
// MESSAGE is REQUEST, DISCOVER or INFORM with the client's fields request (the parameter request list), class, arch, user and user3004
// (RFC 3004), with router, static, lease and nak, which earlier plugins have set, and with routes and own, which are the VM's options.
// BOOT stands for several boot files.
func TestMessages(t *testing.T) {
	t.Cleanup(func() { vm.Provide(singleVM{}) })
	golden.Transcript(t, "testdata/messages.txt", func(line string) []string {
		fields, arguments, _ := strings.Cut(line, " |")
		h, err := setup4(strings.Fields(strings.ReplaceAll(arguments, "BOOT", bootArgs))...)
		lab.Must(t, err)
		words := strings.Fields(fields)
		client, before, own := parseFields(t, words[1:])
		vm.Provide(singleVM{client: vm.Client{Options: own}})
		kind := map[string]dhcpv4.MessageType{"REQUEST": dhcpv4.MessageTypeRequest, "DISCOVER": dhcpv4.MessageTypeDiscover, "INFORM": dhcpv4.MessageTypeInform}[words[0]]
		req, err := dhcpv4.New(append(client, dhcpv4.WithMessageType(kind), dhcpv4.WithHwAddr(mac))...)
		lab.Must(t, err)
		resp, err := dhcpv4.NewReplyFromRequest(req, append([]dhcpv4.Modifier{dhcpv4.WithMessageType(dhcpv4.MessageTypeAck)}, before...)...)
		lab.Must(t, err)
		resp, stop := h(req, resp)
		if stop {
			t.Error("the plugin ends the chain")
		}
		if resp, err = dhcpv4.FromBytes(resp.ToBytes()); err != nil {
			t.Fatal(err)
		}
		header, options, _ := strings.Cut(resp.Summary(), "  options:\n")
		var lines []string
		for part := range strings.Lines(header + options) {
			part = strings.TrimSpace(part)
			if inHeader := strings.HasPrefix(part, "server IP: 1") || strings.HasPrefix(part, "bootfile name: "); inHeader || strings.Contains("\n"+options, "\n    "+part) {
				lines = append(lines, part)
			}
		}
		return lines
	})
}

// parseFields returns the fields of the message, what earlier plugins have set, and the options of the VM.
func parseFields(t *testing.T, words []string) (client, before []dhcpv4.Modifier, own dhcpv4.Options) {
	t.Helper()
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		lab.Must(t, err)
		return n
	}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "request":
			var list []dhcpv4.OptionCode
			for code := range strings.SplitSeq(value, ",") {
				list = append(list, dhcpv4.GenericOptionCode(number(code)))
			}
			client = append(client, dhcpv4.WithRequestedOptions(list...))
		case "class":
			client = append(client, dhcpv4.WithOption(dhcpv4.OptClassIdentifier(value)))
		case "arch":
			var list []iana.Arch
			for arch := range strings.SplitSeq(value, ",") {
				list = append(list, iana.Arch(number(arch)))
			}
			client = append(client, dhcpv4.WithOption(dhcpv4.OptClientArch(list...)))
		case "truncated-arch":
			client = append(client, dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionClientSystemArchitectureType, []byte{7})))
		case "user":
			client = append(client, dhcpv4.WithUserClass(value, false))
		case "user3004":
			client = append(client, dhcpv4.WithUserClass(value, true))
		case "router":
			before = append(before, dhcpv4.WithOption(dhcpv4.OptRouter(net.IPv4(192, 0, 2, 1))))
		case "static":
			before = append(before, dhcpv4.WithOption(dhcpv4.OptClasslessStaticRoute(&dhcpv4.Route{
				Dest: &net.IPNet{IP: net.IPv4(198, 51, 100, 0).To4(), Mask: net.CIDRMask(24, 32)}, Router: net.IPv4(192, 0, 2, 8),
			})))
		case "lease":
			before = append(before, dhcpv4.WithOption(dhcpv4.OptIPAddressLeaseTime(time.Duration(number(value))*time.Minute)))
		case "nak":
			before = append(before, dhcpv4.WithMessageType(dhcpv4.MessageTypeNak))
		case "routes":
			own = dhcpv4.Options{121: {8, 10, 192, 0, 2, 9}}
		case "own":
			own = dhcpv4.Options{15: []byte("own.example"), 224: []byte("mine")}
		default:
			t.Fatalf("unknown field %q", word)
		}
	}
	return client, before, own
}

// singleVM is a directory with one VM.
type singleVM struct {
	vm.Directory // other methods are not called

	client vm.Client
}

func (m singleVM) Lookup(addr net.HardwareAddr) (vm.Client, bool) {
	return m.client, m.client.Options != nil && addr.String() == mac.String()
}

func TestErrors(t *testing.T) {
	golden.Errors(t, "testdata/errors.txt", func(line string) error {
		_, err := setup4(strings.Fields(strings.ReplaceAll(line, "LONG", strings.Repeat("a", 128)))...)
		return err
	})
}
