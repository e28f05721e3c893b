package leasedb

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

var kinds = map[string]dhcpv4.MessageType{
	"DISCOVER": dhcpv4.MessageTypeDiscover, "REQUEST": dhcpv4.MessageTypeRequest, "DECLINE": dhcpv4.MessageTypeDecline,
	"RELEASE": dhcpv4.MessageTypeRelease, "INFORM": dhcpv4.MessageTypeInform, "OFFER": dhcpv4.MessageTypeOffer,
}

// TestMessages runs the transcript testdata/messages.txt. "server [vms] [ARGUMENT ...]" starts a server, "vm NAME MAC [ADDRESS ...]" adds a
// VM with reservations, "remove MAC" removes it, and "directory unsynced" has the directory lose its source. MAC is the last byte.
//
// A message is KIND MAC, with wanted=, ciaddr=, giaddr=, link=, server=, id=, "broadcast" and "infiniband"; the address "own" is the address of
// the last reply to the MAC address. An earlier plugin has set a router, an address and a boot file. The output is the reply, with the options
// in hexadecimal. No message from an unknown MAC address gets a reply of a server with VMs.
func TestMessages(t *testing.T) {
	var d *directory
	var i *instance
	own := map[string]net.IP{}
	golden.Transcript(t, "testdata/messages.txt", func(line string) []string {
		words := strings.Fields(line)
		switch words[0] {
		case "server":
			d, own = newDirectory(), map[string]net.IP{}
			if arguments, vms := strings.CutPrefix(line, "server vms"); vms {
				i = serve(t, d, bolt(t)+network+arguments)
			} else {
				i, d = serve(t, nil, bolt(t)+network+strings.TrimPrefix(line, "server")), nil
			}
			return nil
		case "vm":
			var reserved []netip.Addr
			for _, a := range words[3:] {
				reserved = append(reserved, netip.MustParseAddr(a))
			}
			d.boot(words[1], lastByte(t, words[2]), reserved...)
			return nil
		case "remove":
			d.remove(lastByte(t, words[1]))
			return nil
		case "directory":
			d.setSynced(words[1] == "synced")
			return nil
		}
		more := messageFields(t, words[2:], own[words[1]])
		if d != nil {
			want(t, i, message(kinds[words[0]], mac(0x99999999), more...), dhcpv4.MessageTypeNone)
		}
		resp, stop := send(t, i, message(kinds[words[0]], lastByte(t, words[1]), more...))
		if resp == nil {
			return []string{"no reply"}
		}
		if stop != (resp.MessageType() == dhcpv4.MessageTypeNak) {
			t.Errorf("%s: the plugin ends the chain: %t", line, stop)
		}
		if !resp.YourIPAddr.IsUnspecified() {
			own[words[1]] = resp.YourIPAddr
		}
		return []string{describe(resp, d != nil)}
	})
}

// lastByte returns a MAC address with a last byte; none for "-".
func lastByte(t *testing.T, text string) net.HardwareAddr {
	t.Helper()
	if text == "-" {
		return nil
	}
	n, err := strconv.Atoi(text)
	lab.Must(t, err)
	return mac(n)
}

func messageFields(t *testing.T, words []string, own net.IP) (fields []dhcpv4.Modifier) {
	t.Helper()
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		address := ip
		if value == "own" {
			address = func(string) net.IP { return own }
		}
		switch key {
		case "wanted":
			fields = append(fields, withWanted(address(value)))
		case "ciaddr":
			fields = append(fields, dhcpv4.WithClientIP(address(value)))
		case "giaddr":
			fields = append(fields, dhcpv4.WithGatewayIP(address(value)))
		case "link":
			fields = append(fields, link(address(value)))
		case "server":
			fields = append(fields, withServer(value))
		case "id":
			fields = append(fields, dhcpv4.WithOption(dhcpv4.OptClientIdentifier([]byte(strings.ReplaceAll(value, "LONG", strings.Repeat("x", 255))))))
		case "broadcast":
			fields = append(fields, dhcpv4.WithBroadcast(true))
		case "infiniband":
			fields = append(fields, func(m *dhcpv4.DHCPv4) { m.HWType = iana.HWTypeInfiniband })
		default:
			t.Fatalf("unknown field %q", word)
		}
	}
	return fields
}

// describe returns type and addresses of a reply, and options, in hexadecimal except for the text of a NAK.
func describe(m *dhcpv4.DHCPv4, withOptions bool) string {
	text := m.MessageType().String()
	for _, a := range []struct {
		name  string
		value net.IP
	}{{"yiaddr", m.YourIPAddr}, {"ciaddr", m.ClientIPAddr}, {"siaddr", m.ServerIPAddr}, {"giaddr", m.GatewayIPAddr}} {
		if !a.value.IsUnspecified() {
			text += fmt.Sprintf(" %s %s", a.name, a.value)
		}
	}
	if m.BootFileName != "" {
		text += " file " + m.BootFileName
	}
	if m.IsBroadcast() {
		text += " broadcast"
	}
	var options []string
	for code, value := range m.Options {
		switch code {
		case dhcpv4.OptionDHCPMessageType.Code():
		case dhcpv4.OptionMessage.Code():
			options = append(options, fmt.Sprintf("%d=%s", code, value))
		default:
			options = append(options, fmt.Sprintf("%d=%.12x", code, value))
		}
	}
	if !withOptions { // the lease of an ordinary client depends on the time
		return text
	}
	slices.Sort(options)
	return text + "; " + strings.Join(options, " ")
}

func link(a net.IP) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptRelayAgentInfo(dhcpv4.OptGeneric(dhcpv4.LinkSelectionSubOption, a)))
}
