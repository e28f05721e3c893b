package v1alpha1

import (
	"testing"
)

func TestAppsIngressIsDisabledByDefault(t *testing.T) {
	var absent *AppsIngress
	if absent.IsEnabled() || (&AppsIngress{}).IsEnabled() || !(&AppsIngress{Enabled: true}).IsEnabled() {
		t.Error("appsIngress is enabled by default, or cannot be enabled")
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

func TestShouldInstall(t *testing.T) {
	var absent *AppsIngressMetalLB
	tests := []struct {
		name    string
		metallb *AppsIngressMetalLB
		want    bool
	}{
		{"absent", absent, false},
		{"neither is set", &AppsIngressMetalLB{}, false},
		{"install", &AppsIngressMetalLB{Install: new(true)}, true},
		{"autoInstall", &AppsIngressMetalLB{AutoInstall: new(true)}, true},
		{"install takes precedence over autoInstall", &AppsIngressMetalLB{Install: new(false), AutoInstall: new(true)}, false},
	}
	for _, test := range tests {
		if got := test.metallb.ShouldInstall(); got != test.want {
			t.Errorf("%s: got %v", test.name, got)
		}
	}
}

func TestEffectivePorts(t *testing.T) {
	var absent *AppsIngress
	tests := []struct {
		name string
		apps *AppsIngress
		want AppsIngressPorts
	}{
		{"absent", absent, AppsIngressPorts{HTTP: 80, HTTPS: 443}},
		{"defaults", &AppsIngress{}, AppsIngressPorts{HTTP: 80, HTTPS: 443}},
		{"one set", &AppsIngress{Ports: &AppsIngressPorts{HTTPS: 8443}}, AppsIngressPorts{HTTP: 80, HTTPS: 8443}},
		{"both set", &AppsIngress{Ports: &AppsIngressPorts{HTTP: 8080, HTTPS: 8443}}, AppsIngressPorts{HTTP: 8080, HTTPS: 8443}},
	}
	for _, test := range tests {
		if got := test.apps.EffectivePorts(); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

func TestServiceKey(t *testing.T) {
	var absent *AppsIngress
	tests := []struct {
		name string
		apps *AppsIngress
		want string
	}{
		{"absent", absent, "openshift-ingress/blue-apps"},
		{"defaults", &AppsIngress{Service: &AppsIngressService{}}, "openshift-ingress/blue-apps"},
		{"set", &AppsIngress{Service: &AppsIngressService{Name: "web", Namespace: "routers"}}, "routers/web"},
	}
	for _, test := range tests {
		if got := test.apps.ServiceKey("blue").String(); got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
}
