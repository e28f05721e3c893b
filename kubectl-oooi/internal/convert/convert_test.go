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

// converted is what is printed for a text, and the warnings before it.
func converted(t *testing.T, text, format string) (out, warnings string, err error) {
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
	for _, name := range []string{"demo", "children", "exported", "lone", "ingress"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", name, "old.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			out, warnings, err := converted(t, string(text), "yaml")
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, filepath.Join("testdata", name, "new.golden"), out)
			golden.Check(t, filepath.Join("testdata", name, "warnings.golden"), warnings)
			if again, _, err := converted(t, out, "yaml"); err != nil || again != out {
				t.Errorf("what was converted becomes something else: %v\n%s", err, again)
			}
		})
	}
}

// What the API's own tests have of the operator is converted whole; what means nothing stays, for
// setup to refuse.
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
				t.Errorf("a warning names no file: %s", w)
			}
		}
		for _, o := range result.Objects {
			if enabled := enabledDHCP(o.Object); strings.HasSuffix(file, "infra-full.yaml") && enabled != false {
				t.Errorf("%s: enabled: false has become %v", file, enabled)
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
	for _, tc := range []struct{ name, text, says string }{
		{"nothing", "# nothing\n", "no object of the operator in the files"},
		{"nothing of the operator's", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n", "no object of the operator in the files"},
		{"no YAML", "a: [", "-, document 1: it is no YAML"},
		{"a list", "- a\n", "-, document 1: it is no object"},
		{"a key twice", "kind: Infra\nkind: Infra\n", "already set"},
		{"an Ingress of old", "apiVersion: extensions/v1beta1\nkind: Ingress\nmetadata: {name: shop, namespace: web}\n", "-: Ingress web/shop: apiVersion extensions/v1beta1: want networking.k8s.io/v1"},
		{"an unknown field of an Ingress", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: shop}\nspec: {defaultBackend: {service: {name: a, labels: {a: b}, port: {number: 80}}}}\n", `unknown field "spec.defaultBackend.service.labels"`},
		{"an unknown kind", strings.Replace(infraText, "Infra", "Wizard", 1), "-: Wizard demo: convert does not know this kind"},
		{"an attachment", strings.Replace(infraText, "Infra", "InfraClusterAttachment", 1), "spec.hostedClusterRef"},
		{"another version", strings.Replace(infraText, "v1alpha1", "v1", 1), "want hostedcluster.densityops.com/v1alpha1"},
		{"no name", strings.Replace(infraText, "name: demo", "", 1), "metadata.name is missing"},
		{"an unknown field of an Infra", strings.Replace(infraText, "spec: {", "spec: {size: 3, ", 1), `-: Infra demo: unknown field "spec.size"`},
		{"an unknown field of metadata", strings.Replace(infraText, "name: demo", "name: demo, nmespace: a", 1), `unknown field "metadata.nmespace"`},
		{"an unknown field of a DHCPServer", strings.Replace(dhcpText, "leaseConfig: {", "staticEntries: []\n  leaseConfig: {", 1), `-: DHCPServer demo-dhcp: unknown field "spec.staticEntries"`},
		{"an unknown field of a DNSServer", strings.Replace(dnsText, "proxyIP", "proxyip", 1), `-: DNSServer demo-dns: unknown field "spec.networkConfig.proxyip"`},
		{"another type", strings.Replace(infraText, "192.0.2.1,", "3,", 1), "cannot unmarshal number"},
		{"two of one", infraText + "---" + infraText, "Infra demo has one already, in -"},
		{"nothing left", "apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: ProxyServer\nmetadata: {name: a}\nspec: {networkConfig: {serverIP: 192.0.2.4}, backends: [{name: a, hostname: a.example.com, port: 443, targetService: 192.0.2.9, targetPort: 443, targetNamespace: a}]}\n", "-: ProxyServer a: spec.backends: nothing is left of them"},
		{"whose is it", strings.Replace(dnsText, "demo-dns", "names", 1), "-: DNSServer names: whose is it?"},
		{"DNS alone", dnsText, "-: DNSServer demo-dns: there is no Infra demo in the files, and no DHCPServer demo-dhcp to make one of: spec.networkConfig.cidr and spec.networkConfig.gateway are missing"},
		{"DHCP without a network", strings.Replace(dhcpText, ", networkAttachmentName: vlan", "", 1), "spec.networkConfig.networkAttachmentName is missing, and with it spec.networkConfig.networkAttachmentDefinition of the Infra demo"},
		{"DNS without the proxy's address", dhcpText + "---" + strings.Replace(dnsText, ", proxyIP: 192.0.2.4", "", 1), "-: DNSServer demo-dns: spec.networkConfig.proxyIP is missing, and with it spec.infraComponents.proxy.serverIP"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, _, err := converted(t, tc.text, "yaml")
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("the error is %v, want %q in it; printed is %q", err, tc.says, out)
			}
		})
	}
	if _, err := Files([]string{"nowhere.yaml"}, nil, ""); err == nil || !strings.Contains(err.Error(), "reading nowhere.yaml") {
		t.Errorf("the error is %v", err)
	}
}

// All reasons are told at once.
func TestEveryFaultIsTold(t *testing.T) {
	_, _, err := converted(t, strings.Replace(infraText, "spec: {", "spec: {size: 3, colour: red, ", 1)+"---"+strings.Replace(dnsText, "demo-dns", "names", 1), "yaml")
	for _, says := range []string{"spec.size", "spec.colour", "DNSServer names"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v has no %s", err, says)
		}
	}
}

// Of DHCP alone an Infra with DHCP alone is made.
func TestAnInfraOfDHCPAlone(t *testing.T) {
	out, warnings, err := converted(t, dhcpText, "json")
	if err != nil || strings.Contains(out, `"dns"`) || strings.Contains(out, `"proxy"`) || !strings.Contains(out, `"rangeStart": "192.0.2.10"`) {
		t.Errorf("%v: %s", err, out)
	}
	if !strings.Contains(warnings, "there is no DNSServer demo-dns in the files") || !strings.Contains(warnings, "there is no ProxyServer demo-proxy in the files: the Infra has no proxy") {
		t.Errorf("the warnings are %s", warnings)
	}
	if !strings.HasPrefix(out, "{\n    \"apiVersion\": \"hostedcluster.densityops.com/v1alpha1\",\n    \"kind\": \"Infra\"") {
		t.Errorf("it is no JSON object: %s", out)
	}
}

// An image of the proxy is looked at once, and what is wrong with a made Infra is said of that.
func TestAnInfraOfAllThree(t *testing.T) {
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
	_, warnings, err := converted(t, strings.Replace(dhcpText, "192.0.2.2,", "192.0.2.2/25,", 1)+"---"+dnsText+"---"+proxy, "yaml")
	if err != nil {
		t.Fatal(err)
	}
	for says, times := range map[string]int{
		"-: Infra demo: spec.infraComponents.dhcp.serverIP: the prefix length of 192.0.2.2/25 is left out": 1,
		"envoy:dev stays": 1,
		"-: ProxyServer demo-proxy: spec.backends: they do not tell where the control plane is":                                                        1,
		"-: ProxyServer demo-proxy: spec.networkConfig.serverIP: 192.0.2.5 is left out: spec.infraComponents.proxy.serverIP of the Infra is 192.0.2.4": 1,
	} {
		if got := strings.Count(warnings, says); got != times {
			t.Errorf("%q is said %d times in\n%s", says, got, warnings)
		}
	}
}

// A field with no value is as if it were not there, also where convert has something to put.
func TestFieldsWithoutAValue(t *testing.T) {
	out, _, err := converted(t, strings.Replace(infraText, "}}\n", "}, infraComponents: {dhcp: null, dns: {}}, appsIngress: {enabled: true, hostedClusterRef: {name: a}, service: null}}\n", 1), "yaml")
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
		{19, "perhaps", "it takes true or false"},
		{26, "70000", "it takes a number of 16 bits"},
		{28, "192.0.2.255", "broadcast-address 192.0.2.255"},
		{28, "192.0.2.255, 192.0.2.254", "it takes IPv4 addresses"},
		{42, "2001:db8::1", "it takes IPv4 addresses"},
		{46, "8", "46 uint8:8"},
		{66, "", "it has no value"},
		{82, "x", "the server itself decides on it"},
		{119, "a.example.com b.example.com", "domain-search a.example.com,b.example.com"},
		{150, "192.0.2.5,192.0.2.6", "150 ips:192.0.2.5,192.0.2.6"},
		{224, "x", `write {code: 224, value: "TYPE:VALUE"}`},
	} {
		option, err := optionOf(dhcpOption{tc.code, tc.value})
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprint(cmp.Or(option["name"], option["code"])) + " " + fmt.Sprint(option["value"])
		}
		if !strings.Contains(got, tc.want) {
			t.Errorf("%d %q: %s, want %s", tc.code, tc.value, got, tc.want)
		}
	}
}

// Options that follow from the Infra are left out, without a word where they say the same.
func TestOptionsThatFollow(t *testing.T) {
	dhcp := strings.Replace(dhcpText, "leaseConfig:", `options:
  - {code: 1, value: 255.255.255.0}
  - {code: 3, value: 192.0.2.1}
  - {code: 6, value: "203.0.113.1, 203.0.113.2"}
  - {code: 51, value: "3600"}
  - {code: 54, value: 192.0.2.9}
  leaseConfig:`, 1)
	dhcp = strings.Replace(dhcp, "networkAttachmentName", "dnsServers: [203.0.113.1, 203.0.113.2], networkAttachmentName", 1)
	out, warnings, err := converted(t, dhcp, "yaml")
	if err != nil || strings.Contains(out, "options") || !strings.Contains(out, "- 203.0.113.2") {
		t.Errorf("%v: %s", err, out)
	}
	if strings.Count(warnings, "spec.options") != 1 || !strings.Contains(warnings, "option 54, 192.0.2.9, is left out: the Infra says it, 192.0.2.2") {
		t.Errorf("the warnings are\n%s", warnings)
	}
}

func TestEnvoyMinor(t *testing.T) {
	for image, want := range map[string]int{
		"envoyproxy/envoy:v1.27-latest": 27, "envoyproxy/envoy:v1.36.4": 36, "docker.io/envoyproxy/envoy:distroless-v1.40.0": 40, "localhost:5000/envoy:1.31": 31,
		"envoyproxy/envoy": -1, "envoyproxy/envoy:dev": -1, "envoy@sha256:1.31": -1, "localhost:1.31/envoy": -1, "envoy:v1.36.4@sha256:2b3c": 36,
	} {
		if got := envoyMinor(image); got != want {
			t.Errorf("%s: %d, want %d", image, got, want)
		}
	}
}
