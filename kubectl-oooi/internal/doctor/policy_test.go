package doctor

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

func TestPolicies(t *testing.T) {
	pod := func(namespace, name string, complete bool) policyPeer {
		return policyPeer{
			namespace: namespace, pod: knownLabels{labels.Set{"app": name}, complete},
			space: knownLabels{labels.Set{corev1.LabelMetadataName: namespace}, true}, address: netip.MustParseAddr("10.128.0.7"),
		}
	}
	web, bank := pod("shop", "web", true), pod("bank", "web", true)
	host := policyPeer{address: netip.MustParseAddr("203.0.113.7")}
	for _, tc := range []struct {
		name, specs string // one policy for each line
		other       policyPeer
		want        string // the names of the policies that deny TCP port 80, which are those of the lines
	}{
		{"no policy", "", host, ""},
		{"a pod that no policy selects", "{podSelector: {matchLabels: {app: db}}, policyTypes: [Egress]}", host, ""},
		{"a policy for ingress", "{podSelector: {}, policyTypes: [Ingress]}", host, ""},
		{"no types, without egress rules", "{podSelector: {}}", host, ""},
		{"no types, with egress rules", "{podSelector: {}, egress: [{ports: [{port: 81}]}]}", host, "0"},
		{"no rule", "{podSelector: {}, policyTypes: [Egress]}", host, "0"},
		{"two policies without a rule", "{podSelector: {}, policyTypes: [Egress]}\n{podSelector: {matchLabels: {app: cart}}, policyTypes: [Egress, Ingress]}", host, "0 1"},
		{"policies are additive", "{podSelector: {}, policyTypes: [Egress]}\n{podSelector: {}, policyTypes: [Egress], egress: [{}]}", host, ""},
		{"another protocol", "{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{protocol: UDP, port: 80}]}]}", host, "0"},
		{"another port", "{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 81}]}]}", host, "0"},
		{"the port", "{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 81}, {port: 80}]}]}", host, ""},
		{"a range of ports", "{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 79, endPort: 81}]}]}", host, ""},
		{"a range of other ports", "{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 70, endPort: 79}]}]}", host, "0"},
		{"a named port may be this one", "{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: http}]}]}", host, ""},
		{"a block", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 203.0.113.0/24}}]}]}", host, ""},
		{"an exception of a block", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 203.0.113.0/24, except: [203.0.113.0/28]}}]}]}", host, "0"},
		{"another block", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 198.51.100.0/24}}]}]}", host, "0"},
		{"a block may contain an unknown address", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 198.51.100.0/24}}]}]}", policyPeer{}, ""},
		{"no selector selects a host", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {}}, {podSelector: {}}]}]}", host, "0"},
		{"an unknown peer may be selected", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {}}]}]}", policyPeer{unknown: true}, ""},
		{"pods of the same namespace", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}]}]}", web, ""},
		{"pods of another namespace", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}]}]}", bank, "0"},
		{"pods of all namespaces", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {}}]}]}", bank, ""},
		{"other pods of all namespaces", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}]}]}", bank, "0"},
		{"pods of a namespace", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: bank}}}]}]}", bank, ""},
		{"a label that the peer lacks", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {tier: a}}}]}]}", web, "0"},
		{"a label that the peer may have", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {tier: a}}}]}]}", pod("shop", "web", false), ""},
		{"a label that the pod may have", "{podSelector: {matchLabels: {tier: a}}, policyTypes: [Egress]}", host, ""},
		{"a policy that may select the pod and admits", "{podSelector: {}, policyTypes: [Egress]}\n{podSelector: {matchLabels: {tier: a}}, policyTypes: [Egress], egress: [{}]}", host, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var all policySet
			for line := range strings.Lines(tc.specs) {
				p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: string(rune('0' + len(all)))}}
				if err := yaml.UnmarshalStrict([]byte(line), &p.Spec); err != nil {
					t.Fatal(err)
				}
				all = append(all, p)
			}
			var names []string
			for _, p := range all.deny(pod("shop", "cart", false), networkingv1.PolicyTypeEgress, tc.other, corev1.ProtocolTCP, 80) {
				names = append(names, p.Name)
			}
			if got := strings.Join(names, " "); got != tc.want {
				t.Errorf("denied by %q, want %q", got, tc.want)
			}
			if all.deny(pod("bank", "cart", false), networkingv1.PolicyTypeEgress, tc.other, corev1.ProtocolTCP, 80) != nil {
				t.Error("a policy of another namespace denies the connection")
			}
		})
	}
}

func TestResolvers(t *testing.T) {
	for text, want := range map[string]string{
		"203.0.113.53": "203.0.113.53:53 false", "203.0.113.53:5353": "203.0.113.53:5353 false", "dns://203.0.113.53": "203.0.113.53:53 false",
		"tls://203.0.113.53": "203.0.113.53:853 true", "tls://203.0.113.53%dns.example.com": "203.0.113.53:853 true", "2001:db8::53": "[2001:db8::53]:53 false", "[2001:db8::53]:54": "[2001:db8::53]:54 false",
	} {
		server, encrypted, err := parseResolver(text)
		got := server.String() + map[bool]string{true: " true", false: " false"}[encrypted]
		if err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
	if _, _, err := parseResolver("resolver.example.com"); err == nil {
		t.Error("a host name has no error")
	}
}
