package control

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/test/golden"
)

var viewed = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// vlanAddresses are the last bytes of addresses on the VLAN.
var vlanAddresses = map[string]byte{"gateway": 1, "dhcp": 2, "dns": 3, "proxy": 4, "floating": 9, "vm1": 101, "vm2": 102, "apps": 200}

func addressOf(name string) netip.Addr {
	return netip.AddrFrom4([4]byte{192, 0, 2, vlanAddresses[name]})
}

// macOf returns the MAC address 02:00:00:00:00:NN of a pod, 02:00:00:00:01:NN of another host, or "foreign".
func macOf(name string) string {
	switch name {
	case "foreign":
		return "02:00:00:00:ff:01"
	case "dhcp", "dns", "proxy":
		return fmt.Sprintf("02:00:00:00:00:%02x", vlanAddresses[name])
	}
	return fmt.Sprintf("02:00:00:00:01:%02x", vlanAddresses[name])
}

// TestVLANProblems runs the transcript testdata/vlan.txt. "pod NAME" adds a pod on the VLAN, and the lines after it are the hosts that it
// sees: "answers" have answered for an hour and refuse datagrams, "stopped" did so until "since", and "never" are probed for an hour.
// "broadcast HOST MAC" is an answer to a broadcast. "problems" shows the problems of all pods, and removes the pods.
func TestVLANProblems(t *testing.T) {
	var pods []*vlanPod
	golden.Transcript(t, "testdata/vlan.txt", func(line string) []string {
		words := strings.Fields(line)
		if words[0] == "pod" {
			pods = append(pods, newVLANPod(t, words[1], words[2:]))
			return nil
		}
		if words[0] != "problems" {
			pods[len(pods)-1].see(t, words)
			return nil
		}
		f := &vlanFacts{object: demo, pods: pods, gateway: addressOf("gateway"), apps: []netip.Addr{addressOf("apps")}}
		for _, name := range []string{"dhcp", "dns", "proxy", "floating"} {
			f.own = append(f.own, addressOf(name))
		}
		var lines []string
		for _, p := range vlanProblems(f) {
			lines = append(lines, fmt.Sprintf("%s %s %s: %s", p.Severity, p.Code, p.Object, p.Message))
		}
		pods = nil
		slices.Sort(lines)
		return lines
	})
}

// newVLANPod returns a pod with its view of the VLAN.
func newVLANPod(t *testing.T, name string, flags []string) *vlanPod {
	t.Helper()
	p := &vlanPod{ref: model.Ref{Kind: "Pod", Namespace: "clusters", Name: name}, settled: true, view: &problem.VLAN{At: viewed}}
	p.interfaces = []cni.PodInterface{{Name: "net1", MAC: strings.ToUpper(macOf(name)), Addresses: []netip.Addr{addressOf(name)}}}
	p.view.Interfaces = []problem.Interface{{Name: "net1", MAC: macOf(name), Up: true, MTU: 1500, Addresses: []netip.Prefix{netip.PrefixFrom(addressOf(name), 24)}}}
	for _, flag := range flags {
		key, value, _ := strings.Cut(flag, "=")
		switch key {
		case "young": // started a moment ago
			p.settled = false
		case "server": // of DHCP, which knows the VMs
			p.component = v1alpha1.ComponentDHCP
		case "unknown":
			p.view = nil
		case "no-multus": // it did not report
			p.interfaces = nil
		case "down":
			p.view.Interfaces[0].Up = false
		case "missing":
			p.view.Interfaces = nil
		case "no-address":
			p.view.Interfaces[0].Addresses = nil
		case "mtu":
			p.view.Interfaces[0].MTU, _ = strconv.Atoi(value)
		case "mac":
			p.interfaces[0].MAC, p.view.Interfaces[0].MAC = macOf(value), macOf(value)
		default:
			t.Fatalf("unknown flag %q", flag)
		}
	}
	return p
}

// see adds hosts to the view of a pod.
func (p *vlanPod) see(t *testing.T, words []string) {
	t.Helper()
	if words[0] == "broadcast" {
		p.answers = append(p.answers, problem.Answer{Address: addressOf(words[1]), MAC: macOf(words[2])})
		return
	}
	first := len(p.view.Hosts)
	for _, word := range words[1:] {
		key, value, changes := strings.Cut(word, "=")
		if _, known := vlanAddresses[word]; known {
			h := problem.Host{Address: addressOf(word), LastMAC: macOf(word), Since: viewed.Add(-time.Hour), LastAnswer: viewed.Add(-5 * time.Second), Refuses: true}
			switch words[0] {
			case "answers":
				h.MAC = h.LastMAC
			case "never":
				h.LastMAC, h.LastAnswer, h.Refuses = "", time.Time{}, false
			}
			p.view.Hosts = append(p.view.Hosts, h)
			continue
		}
		ago, err := time.ParseDuration(value)
		if err != nil && (key == "since" || key == "running") {
			t.Fatal(err)
		}
		for i := first; i < len(p.view.Hosts); i++ {
			h := &p.view.Hosts[i]
			switch {
			case key == "since" && words[0] == "stopped":
				h.Since, h.LastAnswer = viewed.Add(-ago), viewed.Add(-ago)
			case key == "since":
				h.Since = viewed.Add(-ago)
			case key == "running": // a VM that was created then
				h.Running = viewed.Add(-ago)
			case key == "mac":
				h.MAC, h.LastMAC = macOf(value), macOf(value)
			case key == "last": // MAC address of a host that stopped
				h.LastMAC = macOf(value)
			case key == "other": // MAC address that also answers
				h.Other = macOf(value)
			case word == "arp": // only the kernel's entry answers
				h.Refuses = false
			case word == "vm":
				h.VM = "vms/node-1/net"
			default:
				t.Fatalf("unknown word %q, with a value: %t", word, changes)
			}
		}
	}
}
