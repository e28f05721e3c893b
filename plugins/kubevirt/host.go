package kubevirt

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/densityops/oooi/internal/dhcplease"
)

// parseHosts parses the values of the arguments host, separated by white space, each as MAC[,hostname=NAME][,address=ADDRESS]. It
// returns the hosts as instances that always exist. It returns an error for invalid values and for two hosts with one MAC address or
// one address.
func parseHosts(text string) ([]*instance, error) {
	var hosts []*instance
	taken := map[string]bool{}
	for value := range strings.FieldsSeq(text) {
		fields := strings.Split(value, ",")
		mac := normalizeMAC(fields[0])
		if mac == "" {
			return nil, fmt.Errorf("kubevirt: host=%s: must be MAC[,hostname=NAME][,address=ADDRESS]", value)
		}
		of := dhcplease.HostInterface(mac)
		i := &instance{Namespace: of.Namespace, Name: of.VM, host: true, Interfaces: []nic{{Name: of.Name, MAC: mac}}}
		for _, field := range fields[1:] {
			key, word, _ := strings.Cut(field, "=")
			address, err := netip.ParseAddr(word)
			switch {
			case key == "hostname" && word != "" && i.Hostname == "":
				i.Hostname = hostname(word, "")
			case key == "address" && err == nil && address.Is4() && address.IsGlobalUnicast() && i.Addresses == "":
				i.Addresses = word
			default:
				return nil, fmt.Errorf("kubevirt: host=%s: %q: must be hostname=NAME or address=IPV4ADDRESS, each once", value, field)
			}
		}
		if taken[mac] || taken[i.Addresses] {
			return nil, fmt.Errorf("kubevirt: host=%s: another host has the same MAC address or address; correct or remove one", value)
		}
		taken[mac], taken[i.Addresses] = true, i.Addresses != ""
		hosts = append(hosts, i)
	}
	return hosts, nil
}

// addHosts adds the hosts of the configuration. A host precedes VMs with its MAC address or its reserved address.
func (d *directory) addHosts() {
	hosts, _ := parseHosts(d.config.hosts) // checked by parse
	for _, h := range hosts {
		d.put(h)
	}
}
