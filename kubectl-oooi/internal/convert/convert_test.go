package convert

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/golden"
)

// runConvert converts a text, and returns the output and the warnings, one on each line.
func runConvert(t *testing.T, text, format string) (out, warnings string, err error) {
	t.Helper()
	result, err := Files([]string{"-"}, strings.NewReader(text), "clusters")
	if err != nil {
		return "", "", err
	}
	var b strings.Builder
	if err := result.Print(&b, format); err != nil {
		t.Fatal(err)
	}
	for _, w := range result.Warnings {
		warnings += w + "\n"
	}
	return b.String(), warnings, nil
}

func TestConversions(t *testing.T) {
	for _, name := range []string{"demo", "derived", "exported", "standalone", "guide", "ingress"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", name, "old.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			out, warnings, err := runConvert(t, string(text), "yaml")
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, filepath.Join("testdata", name, "new.golden"), out)
			golden.Check(t, filepath.Join("testdata", name, "warnings.golden"), warnings)
			if again, _, err := runConvert(t, out, "yaml"); err != nil || again != out {
				t.Errorf("converting the output again changes it: %v\n%s", err, again)
			}
		})
	}
}

// TestEveryLegacyObjectIsConverted converts the operator's objects in the test data of the API.
func TestEveryLegacyObjectIsConverted(t *testing.T) {
	files, err := filepath.Glob("../../../api/testdata/legacy/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		result, err := Files([]string{file}, nil, "clusters")
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		for _, w := range result.Warnings {
			if !strings.HasPrefix(w, file+": ") {
				t.Errorf("the warning does not begin with the file: %s", w)
			}
		}
		for _, o := range result.Objects {
			if enabled := enabledDHCP(o.Object); strings.HasSuffix(file, "infra-full.yaml") && enabled != false {
				t.Errorf("%s: enabled is %v, want false", file, enabled)
			}
		}
	}
}

func enabledDHCP(infra map[string]any) any {
	spec, _ := infra["spec"].(map[string]any)
	components, _ := spec["infraComponents"].(map[string]any)
	dhcp, _ := components["dhcp"].(map[string]any)
	return dhcp["enabled"]
}

const (
	infraText = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: demo}
spec: {networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: vlan}}
`
	dnsText = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: DNSServer
metadata: {name: demo-dns}
spec: {networkConfig: {serverIP: 192.0.2.3, proxyIP: 192.0.2.4}, hostedClusterDomain: demo.example.com}
`
	dhcpText = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: DHCPServer
metadata: {name: demo-dhcp}
spec:
  networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, serverIP: 192.0.2.2, networkAttachmentName: vlan}
  leaseConfig: {rangeStart: 192.0.2.10, rangeEnd: 192.0.2.20}
`
)

func TestRefusals(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"no object", "# nothing\n", "no object to convert"},
		{"no object of the operator", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n", "no object to convert"},
		{"invalid YAML", "a: [", "-, document 1: invalid YAML"},
		{"a list", "- a\n", "-, document 1: not an object"},
		{"a key twice", "kind: Infra\nkind: Infra\n", "already set"},
		{"an Ingress of an old version", "apiVersion: extensions/v1beta1\nkind: Ingress\nmetadata: {name: shop, namespace: web}\n", "-: Ingress web/shop: apiVersion extensions/v1beta1: want networking.k8s.io/v1"},
		{"an unknown field of an Ingress", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: shop}\nspec: {defaultBackend: {service: {name: a, labels: {a: b}, port: {number: 80}}}}\n", `unknown field "spec.defaultBackend.service.labels"`},
		{"an unknown kind", strings.Replace(infraText, "Infra", "Wizard", 1), "-: Wizard demo: unsupported kind"},
		{"an InfraClusterAttachment", strings.Replace(infraText, "Infra", "InfraClusterAttachment", 1), "spec.hostedClusterRef"},
		{"another version", strings.Replace(infraText, "v1alpha1", "v1", 1), "want hostedcluster.densityops.com/v1alpha1"},
		{"no name", strings.Replace(infraText, "name: demo", "", 1), "metadata.name is missing"},
		{"an unknown field of an Infra", strings.Replace(infraText, "spec: {", "spec: {size: 3, ", 1), `-: Infra demo: unknown field "spec.size"`},
		{"an unknown field of metadata", strings.Replace(infraText, "name: demo", "name: demo, nmespace: a", 1), `unknown field "metadata.nmespace"`},
		{"an unknown field of a DHCPServer", strings.Replace(dhcpText, "leaseConfig: {", "staticEntries: []\n  leaseConfig: {", 1), `-: DHCPServer demo-dhcp: unknown field "spec.staticEntries"`},
		{"an unknown field of a DNSServer", strings.Replace(dnsText, "proxyIP", "proxyip", 1), `-: DNSServer demo-dns: unknown field "spec.networkConfig.proxyip"`},
		{"a field of another type", strings.Replace(infraText, "192.0.2.1,", "3,", 1), "spec.networkConfig.gateway: expected a string, found a number; quote the value"},
		{"two Infras of one name", infraText + "---" + infraText, "duplicate Infra of Infra demo; the first one is in -"},
		{"no convertible backend", "apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: ProxyServer\nmetadata: {name: a}\nspec: {networkConfig: {serverIP: 192.0.2.4}, backends: [{name: a, hostname: a.example.com, port: 443, targetService: 192.0.2.9, targetPort: 443, targetNamespace: a}]}\n", "-: ProxyServer a: spec.backends: no backend can be converted"},
		{"a DNSServer without an Infra", strings.Replace(dnsText, "demo-dns", "names", 1), "-: DNSServer names: cannot determine the Infra of the object"},
		{"DNS alone", dnsText, "-: DNSServer demo-dns: cannot derive Infra demo, which is not in the files: spec.networkConfig.cidr and spec.networkConfig.gateway are unknown without DHCPServer demo-dhcp"},
		{"DHCP without a network", strings.Replace(dhcpText, ", networkAttachmentName: vlan", "", 1), "spec.networkConfig.networkAttachmentName is missing: cannot derive spec.networkConfig.networkAttachmentDefinition of Infra demo"},
		{"DNS without the proxy's address", dhcpText + "---" + strings.Replace(dnsText, ", proxyIP: 192.0.2.4", "", 1), "-: DNSServer demo-dns: spec.networkConfig.proxyIP is missing: cannot derive spec.infraComponents.proxy.serverIP"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, _, err := runConvert(t, tc.text, "yaml")
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want %q; the output is %q", err, tc.want, out)
			}
		})
	}
	if _, err := Files([]string{"nowhere.yaml"}, nil, ""); err == nil || !strings.Contains(err.Error(), "reading nowhere.yaml") {
		t.Errorf("the error is %v", err)
	}
}

func TestAllErrorsAreReported(t *testing.T) {
	_, _, err := runConvert(t, strings.Replace(infraText, "spec: {", "spec: {size: 3, colour: red, ", 1)+"---"+strings.Replace(dnsText, "demo-dns", "names", 1), "yaml")
	for _, want := range []string{"spec.size", "spec.colour", "DNSServer names"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}

// TestDeriveInfraFromDHCPServer checks that an Infra derived from a DHCPServer alone has neither DNS nor a proxy.
func TestDeriveInfraFromDHCPServer(t *testing.T) {
	out, warnings, err := runConvert(t, dhcpText, "json")
	if err != nil || strings.Contains(out, `"dns"`) || strings.Contains(out, `"proxy"`) || !strings.Contains(out, `"rangeStart": "192.0.2.10"`) {
		t.Errorf("%v: %s", err, out)
	}
	if !strings.Contains(warnings, "the files do not contain DNSServer demo-dns") || !strings.Contains(warnings, "the files do not contain ProxyServer demo-proxy: the Infra gets no proxy") {
		t.Errorf("the warnings are %s", warnings)
	}
	if !strings.HasPrefix(out, "{\n    \"apiVersion\": \"hostedcluster.densityops.com/v1alpha1\",\n    \"kind\": \"Infra\"") {
		t.Errorf("the output is not a JSON object: %s", out)
	}
}

// TestDeriveInfraFromAllChildren checks that each problem of a derived Infra and of its proxy image is reported once.
func TestDeriveInfraFromAllChildren(t *testing.T) {
	proxy := `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: demo-proxy}
spec:
  networkConfig: {serverIP: 192.0.2.5}
  backends:
  - {name: a, hostname: api.demo.example.com, port: 6443, targetService: kube-apiserver, targetPort: 6443, targetNamespace: one}
  - {name: b, hostname: oauth.demo.example.com, port: 443, targetService: oauth-openshift, targetPort: 6443, targetNamespace: two}
  proxyImage: envoy:dev
`
	_, warnings, err := runConvert(t, strings.Replace(dhcpText, "192.0.2.2,", "192.0.2.2/25,", 1)+"---"+dnsText+"---"+proxy, "yaml")
	if err != nil {
		t.Fatal(err)
	}
	for text, times := range map[string]int{
		"-: Infra demo: spec.infraComponents.dhcp.serverIP: the prefix length of 192.0.2.2/25 is dropped": 1,
		"envoy:dev is kept": 1,
		"-: ProxyServer demo-proxy: spec.backends: cannot determine the namespace of the control plane":                                               1,
		"-: ProxyServer demo-proxy: spec.networkConfig.serverIP: 192.0.2.5 is dropped: spec.infraComponents.proxy.serverIP of the Infra is 192.0.2.4": 1,
	} {
		if got := strings.Count(warnings, text); got != times {
			t.Errorf("%q occurs %d times, want %d, in\n%s", text, got, times, warnings)
		}
	}
}

// TestNullFields checks that null fields are treated as missing, including those below which convert sets a field.
func TestNullFields(t *testing.T) {
	out, _, err := runConvert(t, strings.Replace(infraText, "}}\n", "}, infraComponents: {dhcp: null, dns: {}}, appsIngress: {enabled: true, hostedClusterRef: {name: a}, service: null}}\n", 1), "yaml")
	if err != nil || strings.Contains(out, "null") || strings.Contains(out, "dhcp") || !strings.Contains(out, "dns: {}") || !strings.Contains(out, "name: oooi-ingress") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestOptions(t *testing.T) {
	for _, tc := range []struct {
		code        int
		value, want string
	}{
		{15, "example.com", "domain-name example.com"},
		{19, "true", "19 bool:true"},
		{19, "perhaps", "want true or false"},
		{26, "70000", "want an unsigned number of 16 bits"},
		{28, "192.0.2.255", "broadcast-address 192.0.2.255"},
		{28, "192.0.2.255, 192.0.2.254", "want an IPv4 address"},
		{42, "2001:db8::1", "want an IPv4 address"},
		{46, "8", "46 uint8:8"},
		{66, "", "the value is empty"},
		{82, "x", "the DHCP server sets this option"},
		{119, "a.example.com b.example.com", "domain-search a.example.com,b.example.com"},
		{150, "192.0.2.5,192.0.2.6", "150 ips:192.0.2.5,192.0.2.6"},
		{224, "x", `add {code: 224, value: "TYPE:VALUE"}`},
	} {
		option, err := convertOption(dhcpOption{tc.code, tc.value})
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprint(cmp.Or(option["name"], option["code"])) + " " + fmt.Sprint(option["value"])
		}
		if !strings.Contains(got, tc.want) {
			t.Errorf("option %d with value %q: %s, want %s", tc.code, tc.value, got, tc.want)
		}
	}
}

// TestComputedOptions checks that options that follow from the Infra are dropped, with a warning only if their values
// differ.
func TestComputedOptions(t *testing.T) {
	dhcp := strings.Replace(dhcpText, "leaseConfig:", `options:
  - {code: 1, value: 255.255.255.0}
  - {code: 3, value: 192.0.2.1}
  - {code: 6, value: "203.0.113.1, 203.0.113.2"}
  - {code: 51, value: "3600"}
  - {code: 54, value: 192.0.2.9}
  leaseConfig:`, 1)
	dhcp = strings.Replace(dhcp, "networkAttachmentName", "dnsServers: [203.0.113.1, 203.0.113.2], networkAttachmentName", 1)
	out, warnings, err := runConvert(t, dhcp, "yaml")
	if err != nil || strings.Contains(out, "options") || !strings.Contains(out, "- 203.0.113.2") {
		t.Errorf("%v: %s", err, out)
	}
	if strings.Count(warnings, "spec.options") != 1 || !strings.Contains(warnings, "option 54, 192.0.2.9, is dropped: the Infra determines its value: 192.0.2.2") {
		t.Errorf("the warnings are\n%s", warnings)
	}
}

func TestEnvoyMinor(t *testing.T) {
	for image, want := range map[string]int{
		"envoyproxy/envoy:v1.27-latest": 27, "envoyproxy/envoy:v1.36.4": 36, "docker.io/envoyproxy/envoy:distroless-v1.40.0": 40, "localhost:5000/envoy:1.31": 31,
		"envoyproxy/envoy": -1, "envoyproxy/envoy:dev": -1, "envoy@sha256:1.31": -1, "localhost:1.31/envoy": -1, "envoy:v1.36.4@sha256:2b3c": 36,
	} {
		if got := envoyMinor(image); got != want {
			t.Errorf("envoyMinor(%q) = %d, want %d", image, got, want)
		}
	}
}
