package v1alpha1

import (
	"reflect"
	"testing"
	"time"
)

func TestComponentsAreEnabledUnlessAbsentOrDisabled(t *testing.T) {
	tests := []struct {
		name       string
		components InfraComponents
		want       bool
	}{
		{"absent", InfraComponents{}, false},
		{"present", InfraComponents{DHCP: &InfraDHCP{}, DNS: &InfraDNS{}, Proxy: &InfraProxy{}}, true},
		{"enabled", InfraComponents{DHCP: &InfraDHCP{Enabled: new(true)}, DNS: &InfraDNS{Enabled: new(true)}, Proxy: &InfraProxy{Enabled: new(true)}}, true},
		{"disabled", InfraComponents{DHCP: &InfraDHCP{Enabled: new(false)}, DNS: &InfraDNS{Enabled: new(false)}, Proxy: &InfraProxy{Enabled: new(false)}}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := test.components
			for component, got := range map[string]bool{"DHCP": c.DHCP.IsEnabled(), "DNS": c.DNS.IsEnabled(), "proxy": c.Proxy.IsEnabled()} {
				if got != test.want {
					t.Errorf("%s: got %v", component, got)
				}
			}
		})
	}
}

func TestEffectiveInstances(t *testing.T) {
	two := []Instance{{IP: "192.0.2.5"}, {IP: "192.0.2.6", AdditionalIPs: []IP{"2001:db8::6"}}}
	tests := []struct {
		name      string
		instances []Instance
		serverIP  string
		want      []Instance
	}{
		{"none", nil, "", nil},
		{"serverIP is one instance", nil, "192.0.2.4", []Instance{{IP: "192.0.2.4"}}},
		{"serverIP with a prefix length", nil, "192.0.2.4/24", []Instance{{IP: "192.0.2.4"}}},
		{"instances", two, "", two},
		{"instances and serverIP", two, "192.0.2.4", two},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for component, got := range map[string][]Instance{
				"DHCP":  (&InfraDHCP{Instances: test.instances, ServerIP: test.serverIP}).EffectiveInstances(),
				"DNS":   (&InfraDNS{Instances: test.instances, ServerIP: test.serverIP}).EffectiveInstances(),
				"proxy": (&InfraProxy{Instances: test.instances, ServerIP: test.serverIP}).EffectiveInstances(),
			} {
				if !reflect.DeepEqual(got, test.want) {
					t.Errorf("%s: got %v, want %v", component, got, test.want)
				}
			}
		})
	}
}

func TestSingleProxyHasTheServerIPs(t *testing.T) {
	proxy := &InfraProxy{ServerIP: "192.0.2.4/24", AdditionalServerIPs: []IP{"2001:db8::4"}}
	want := []Instance{{IP: "192.0.2.4", AdditionalIPs: []IP{"2001:db8::4"}}}
	if got := proxy.EffectiveInstances(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestServerIPs(t *testing.T) {
	var absent *InfraProxy
	tests := []struct {
		name  string
		proxy *InfraProxy
		want  []IP
	}{
		{"absent", absent, nil},
		{"none", &InfraProxy{}, nil},
		{"one", &InfraProxy{ServerIP: "192.0.2.4/24"}, []IP{"192.0.2.4"}},
		{"two families", &InfraProxy{ServerIP: "192.0.2.4", AdditionalServerIPs: []IP{"2001:db8::4"}}, []IP{"192.0.2.4", "2001:db8::4"}},
	}
	for _, test := range tests {
		if got := test.proxy.ServerIPs(); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

func TestLeaseDuration(t *testing.T) {
	tests := []struct {
		name string
		dhcp *InfraDHCP
		want time.Duration
		ok   bool
	}{
		{"no DHCP", nil, time.Hour, true},
		{"empty", &InfraDHCP{}, time.Hour, true},
		{"set", &InfraDHCP{LeaseTime: "30m"}, 30 * time.Minute, true},
		{"any Go duration", &InfraDHCP{LeaseTime: "1.5h"}, 90 * time.Minute, true},
		{"not a duration", &InfraDHCP{LeaseTime: "one hour"}, 0, false},
		{"zero", &InfraDHCP{LeaseTime: "0s"}, 0, false},
		{"shorter than a minute", &InfraDHCP{LeaseTime: "59s"}, 0, false},
		{"longer than a year", &InfraDHCP{LeaseTime: "8761h"}, 0, false},
		{"not whole seconds", &InfraDHCP{LeaseTime: "1m30s500ms"}, 0, false},
		{"negative", &InfraDHCP{LeaseTime: "-1h"}, 0, false},
	}
	for _, test := range tests {
		got, err := test.dhcp.LeaseDuration()
		if got != test.want || (err == nil) != test.ok {
			t.Errorf("%s: got %s, %v", test.name, got, err)
		}
	}
}

func TestEffectiveRanges(t *testing.T) {
	more := []DHCPRange{{Start: "192.0.2.50", End: "192.0.2.59"}}
	tests := []struct {
		name string
		dhcp *InfraDHCP
		want []DHCPRange
	}{
		{"no DHCP", nil, nil},
		{"none", &InfraDHCP{}, nil},
		{"start and end", &InfraDHCP{RangeStart: "192.0.2.10/24", RangeEnd: "192.0.2.19"}, []DHCPRange{{Start: "192.0.2.10", End: "192.0.2.19"}}},
		{"ranges only", &InfraDHCP{Ranges: more}, more},
		{"both", &InfraDHCP{RangeStart: "192.0.2.10", RangeEnd: "192.0.2.19", Ranges: more}, []DHCPRange{{Start: "192.0.2.10", End: "192.0.2.19"}, more[0]}},
		{"one end missing", &InfraDHCP{RangeStart: "192.0.2.10"}, []DHCPRange{{Start: "192.0.2.10"}}},
	}
	for _, test := range tests {
		if got := test.dhcp.EffectiveRanges(); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

func TestClusterDomain(t *testing.T) {
	var absent *InfraDNS
	tests := []struct {
		name string
		dns  *InfraDNS
		want string
	}{
		{"no DNS", absent, ""},
		{"both parts", &InfraDNS{ClusterName: "blue", BaseDomain: "example.com"}, "blue.example.com"},
		{"upper case and dots", &InfraDNS{ClusterName: "Blue.", BaseDomain: ".Example.COM."}, "blue.example.com"},
		{"no cluster name", &InfraDNS{BaseDomain: "example.com"}, ""},
		{"no base domain", &InfraDNS{ClusterName: "blue", BaseDomain: "."}, ""},
	}
	for _, test := range tests {
		if got := test.dns.ClusterDomain(); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}
