package v1alpha1

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

func TestLacksClass(t *testing.T) {
	class := &AppsIngressMetalLB{LoadBalancerClass: "metallb.io/vlan"}
	for _, tc := range []struct {
		name, platform string
		apps           *AppsIngress
		want           bool
	}{
		{"without a class", "KubeVirt", &AppsIngress{Enabled: true}, true},
		{"installed without a class", "KubeVirt", &AppsIngress{Enabled: true, MetalLB: &AppsIngressMetalLB{Install: new(true)}}, true},
		{"with a class", "KubeVirt", &AppsIngress{Enabled: true, MetalLB: class}, false},
		{"another platform", "Agent", &AppsIngress{Enabled: true}, false},
		{"disabled", "KubeVirt", &AppsIngress{}, false},
		{"absent", "KubeVirt", nil, false},
		{"source MirroredService, which the cloud controller writes", "KubeVirt", &AppsIngress{Enabled: true, Source: AppsIngressSourceMirroredService}, false},
	} {
		if got := tc.apps.LacksClass(tc.platform); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

func TestNetworkAttachment(t *testing.T) {
	tests := []struct {
		name, nad, namespace, want string
	}{
		{"name only", "vlan-7", "", "own/vlan-7"},
		{"namespace in networkAttachmentNamespace", "vlan-7", "networks", "networks/vlan-7"},
		{"namespace in the name", "networks/vlan-7", "", "networks/vlan-7"},
		{"namespace in both, the name's takes precedence", "networks/vlan-7", "default", "networks/vlan-7"},
		{"empty namespace in the name", "/vlan-7", "", "own/vlan-7"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			infra := &NetworkConfig{NetworkAttachmentDefinition: test.nad, NetworkAttachmentNamespace: test.namespace}
			if got := infra.NetworkAttachment("own").String(); got != test.want {
				t.Errorf("of an Infra: got %s, want %s", got, test.want)
			}
			proxy := &ProxyNetworkConfig{NetworkAttachmentName: test.nad, NetworkAttachmentNamespace: test.namespace}
			if got := proxy.NetworkAttachment("own").String(); got != test.want {
				t.Errorf("of a ProxyServer: got %s, want %s", got, test.want)
			}
		})
	}
}

func TestHostedClusterReference(t *testing.T) {
	tests := []struct {
		name  string
		ref   *HostedClusterReference
		infra string // namespace of the Infra
		want  string
	}{
		{"absent", nil, "own", "[]"},
		{"without a name, as the earlier operator wrote it", &HostedClusterReference{Namespace: "clusters"}, "own", "[]"},
		{"without a namespace", &HostedClusterReference{Name: "blue"}, "own", "[own/blue clusters/blue]"},
		{"without a namespace, of an Infra in the default one", &HostedClusterReference{Name: "blue"}, "clusters", "[clusters/blue]"},
		{"name and namespace", &HostedClusterReference{Name: "blue", Namespace: "tenants"}, "own", "[tenants/blue]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := fmt.Sprint(test.ref.Candidates(test.infra)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if got := test.ref.IsSet(); got != (test.want != "[]") {
				t.Errorf("IsSet is %v", got)
			}
		})
	}
}

func TestDurationParse(t *testing.T) {
	tests := []struct {
		text Duration
		want time.Duration
		ok   bool
	}{
		{"90s", 90 * time.Second, true},
		{"1h2m3s4ms", time.Hour + 2*time.Minute + 3*time.Second + 4*time.Millisecond, true},
		{"0s", 0, true},
		{"", 0, false},
		{"soon", 0, false},
		{"5", 0, false},
		{"-5s", 0, false},
	}
	for _, test := range tests {
		got, err := test.text.Parse()
		if got != test.want || (err == nil) != test.ok {
			t.Errorf("%q: got %s, %v", test.text, got, err)
		}
	}
}

// TestEffectiveValues checks what getters return for absent, empty and set fields.
func TestEffectiveValues(t *testing.T) {
	var (
		proxy   *InfraProxy
		dhcp    *InfraDHCP
		dns     *InfraDNS
		apps    *AppsIngress
		metallb *AppsIngressMetalLB
		more    = []DHCPRange{{Start: "192.0.2.50", End: "192.0.2.59"}}
		either  = AppsIngressPorts{HTTP: 80, HTTPS: 443}
	)
	const unset = DefaultProxyConnectTimeout
	for _, tc := range []struct {
		name      string
		got, want any
	}{
		{"instances of a proxy with addresses", (&InfraProxy{ServerIP: "192.0.2.4/24", AdditionalServerIPs: []IP{"2001:db8::4"}}).EffectiveInstances(), []Instance{{IP: "192.0.2.4", AdditionalIPs: []IP{"2001:db8::4"}}}},
		{"addresses of no proxy", proxy.ServerIPs(), []IP(nil)},
		{"addresses of a proxy without one", (&InfraProxy{}).ServerIPs(), []IP(nil)},
		{"one address", (&InfraProxy{ServerIP: "192.0.2.4/24"}).ServerIPs(), []IP{"192.0.2.4"}},
		{"addresses of two families", (&InfraProxy{ServerIP: "192.0.2.4", AdditionalServerIPs: []IP{"2001:db8::4"}}).ServerIPs(), []IP{"192.0.2.4", "2001:db8::4"}},
		{"ranges of no DHCP", dhcp.EffectiveRanges(), []DHCPRange(nil)},
		{"no range", (&InfraDHCP{}).EffectiveRanges(), []DHCPRange(nil)},
		{"start and end", (&InfraDHCP{RangeStart: "192.0.2.10/24", RangeEnd: "192.0.2.19"}).EffectiveRanges(), []DHCPRange{{Start: "192.0.2.10", End: "192.0.2.19"}}},
		{"ranges only", (&InfraDHCP{Ranges: more}).EffectiveRanges(), more},
		{"range and ranges", (&InfraDHCP{RangeStart: "192.0.2.10", RangeEnd: "192.0.2.19", Ranges: more}).EffectiveRanges(), []DHCPRange{{Start: "192.0.2.10", End: "192.0.2.19"}, more[0]}},
		{"one end missing", (&InfraDHCP{RangeStart: "192.0.2.10"}).EffectiveRanges(), []DHCPRange{{Start: "192.0.2.10"}}},
		{"domain of no DNS", dns.ClusterDomain(), ""},
		{"domain", (&InfraDNS{ClusterName: "blue", BaseDomain: "example.com"}).ClusterDomain(), "blue.example.com"},
		{"domain in upper case, with dots", (&InfraDNS{ClusterName: "Blue.", BaseDomain: ".Example.COM."}).ClusterDomain(), "blue.example.com"},
		{"no cluster name", (&InfraDNS{BaseDomain: "example.com"}).ClusterDomain(), ""},
		{"no base domain", (&InfraDNS{ClusterName: "blue", BaseDomain: "."}).ClusterDomain(), ""},
		{"no apps", apps.IsEnabled(), false},
		{"apps by default", (&AppsIngress{}).IsEnabled(), false},
		{"enabled apps", (&AppsIngress{Enabled: true}).IsEnabled(), true},
		{"no metallb", metallb.ShouldInstall(), false},
		{"metallb by default", (&AppsIngressMetalLB{}).ShouldInstall(), false},
		{"install", (&AppsIngressMetalLB{Install: new(true)}).ShouldInstall(), true},
		{"autoInstall", (&AppsIngressMetalLB{AutoInstall: new(true)}).ShouldInstall(), true},
		{"install takes precedence over autoInstall", (&AppsIngressMetalLB{Install: new(false), AutoInstall: new(true)}).ShouldInstall(), false},
		{"ports of no apps", apps.EffectivePorts(), either},
		{"default ports", (&AppsIngress{}).EffectivePorts(), either},
		{"one port", (&AppsIngress{Ports: &AppsIngressPorts{HTTPS: 8443}}).EffectivePorts(), AppsIngressPorts{HTTP: 80, HTTPS: 8443}},
		{"both ports", (&AppsIngress{Ports: &AppsIngressPorts{HTTP: 8080, HTTPS: 8443}}).EffectivePorts(), AppsIngressPorts{HTTP: 8080, HTTPS: 8443}},
		{"Service of no apps", apps.ServiceKey("blue").String(), "openshift-ingress/blue-apps"},
		{"default Service", (&AppsIngress{Service: &AppsIngressService{}}).ServiceKey("blue").String(), "openshift-ingress/blue-apps"},
		{"Service", (&AppsIngress{Service: &AppsIngressService{Name: "web", Namespace: "routers"}}).ServiceKey("blue").String(), "routers/web"},
		{"duration", Duration("90s").Or(unset), 90 * time.Second},
		{"duration of zero", Duration("0s").Or(unset), time.Duration(0)},
		{"no duration", Duration("").Or(unset), 5 * time.Second},
		{"invalid duration", Duration("soon").Or(unset), 5 * time.Second},
	} {
		if diff := cmp.Diff(tc.want, tc.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}
