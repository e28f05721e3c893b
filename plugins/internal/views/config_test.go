package views

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
)

// parseConfig parses the properties of a block in a server block with the given root.
func parseConfig(root, properties string) (*Config, error) {
	c := caddy.NewTestController("dns", "oooi {\n"+properties+"\n}")
	dnsserver.GetConfig(c).Root = root
	h := &Handler{}
	if err := h.Parse(c, nil); err != nil {
		return nil, err
	}
	return &h.Config, nil
}

// config parses the properties of a valid block.
func config(tb testing.TB, properties string) *Config {
	tb.Helper()
	cfg, err := parseConfig("", properties)
	if err != nil {
		tb.Fatal(err)
	}
	return cfg
}

func prefixes(list ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func addrs(list ...string) []netip.Addr {
	var all []netip.Addr
	for _, s := range list {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name, properties string
		want             Config
	}{
		{"nothing", "", Config{}},
		{"kubeconfig", "kubeconfig /etc/kubeconfig", Config{Source: watch.Config{Kubeconfig: "/etc/kubeconfig"}}},
		{"kubeconfig with a context", "kubeconfig /etc/kubeconfig prod", Config{
			Source: watch.Config{Kubeconfig: "/etc/kubeconfig", Context: "prod"},
		}},
		{"folder and snapshot file", "manifests must-gather\nsnapshot /var/lib/oooi.json", Config{
			Source: watch.Config{Manifests: "must-gather", File: "/var/lib/oooi.json"},
		}},
		{"objects are a set", "infra b/b a/a\ninfra c/c a/a\nhostedcluster clusters/two clusters/one clusters/two", Config{
			Source: watch.Config{Scope: model.Scope{
				Infras: []string{"a/a", "b/b", "c/c"}, HostedClusters: []string{"clusters/one", "clusters/two"},
			}},
		}},
		{"rules for published names", "management mgmt.example.com Apps.mgmt.example.com.\ndomains example.com", Config{
			Source: watch.Config{Names: model.NameRules{Management: []string{"apps.mgmt.example.com", "mgmt.example.com"}, Allowed: []string{"example.com"}}},
		}},
		{"a view for the block", "view vlan", Config{Block: VLAN}},
		{"views by address", "view vlan 192.0.2.0/24 2001:db8::/64\nview pod 10.0.0.0/8", Config{Views: []View{
			{Name: VLAN, CIDRs: prefixes("192.0.2.0/24", "2001:db8::/64")},
			{Name: Pod, CIDRs: prefixes("10.0.0.0/8")},
		}}},
		{"networks in other spellings", "view pod 10.1.2.3/8 192.0.2.7 2001:db8::7 ::ffff:192.0.2.8 2001:DB8:1::9/48 0.0.0.0/0", Config{
			Views: []View{{Name: Pod, CIDRs: prefixes(
				"10.0.0.0/8", "192.0.2.7/32", "2001:db8::7/128", "192.0.2.8/32", "2001:db8:1::/48", "0.0.0.0/0",
			)}},
		}},
		{"answer by address", "hostedcluster a/a\nview lab\nanswer lab 192.0.2.3 2001:db8::3 ::ffff:192.0.2.4", Config{
			Source:  watch.Config{Scope: model.Scope{HostedClusters: []string{"a/a"}}},
			Block:   "lab",
			Answers: map[string]Answer{"lab": {Addresses: addrs("192.0.2.3", "2001:db8::3", "192.0.2.4")}},
		}},
		{"duplicate addresses", "view pod\nanswer pod 192.0.2.3 192.0.2.4 192.0.2.3 ::ffff:192.0.2.4", Config{
			Block: Pod, Answers: map[string]Answer{Pod: {Addresses: addrs("192.0.2.3", "192.0.2.4")}},
		}},
		{"answer by Service, before its view", "answer pod service clusters/proxy\nview pod 10.0.0.0/8", Config{
			Views: []View{{Name: Pod, CIDRs: prefixes("10.0.0.0/8")}}, Answers: map[string]Answer{Pod: {Service: "clusters/proxy"}},
		}},
		{"answer for pods, views from Infras", "answer pod 192.0.2.3", Config{
			Answers: map[string]Answer{Pod: {Addresses: addrs("192.0.2.3")}},
		}},
		{"answer for VLANs with an Infra in scope", "infra a/a\nview vlan 192.0.2.0/24\nanswer vlan 192.0.2.3", Config{
			Source:  watch.Config{Scope: model.Scope{Infras: []string{"a/a"}}},
			Views:   []View{{Name: VLAN, CIDRs: prefixes("192.0.2.0/24")}},
			Answers: map[string]Answer{VLAN: {Addresses: addrs("192.0.2.3")}},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseConfig("", tc.properties)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tc.want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseErrorsNameLineAndRemedy(t *testing.T) {
	const place = "Testfile:2 - Error during parsing: "
	for _, tc := range []struct{ name, properties, want string }{
		{"kubeconfig without arguments", "kubeconfig", "kubeconfig: want FILE [CONTEXT], have 0 arguments"},
		{"kubeconfig with too many arguments", "kubeconfig a b c", "kubeconfig: want FILE [CONTEXT], have 3 arguments"},
		{"manifests without arguments", "manifests", "manifests: want one path, have 0 arguments"},
		{"manifests with two arguments", "manifests a b", "manifests: want one path, have 2 arguments"},
		{"snapshot without arguments", "snapshot", "snapshot: want one path, have 0 arguments"},
		{"snapshot with two arguments", "snapshot a b", "snapshot: want one path, have 2 arguments"},
		{"infra without arguments", "infra", "infra: want one or more NAMESPACE/NAME"},
		{"infra without a namespace", "infra a/a blue", `infra: "blue" is not NAMESPACE/NAME`},
		{"infra with an empty namespace", "infra /blue", `infra: "/blue" is not NAMESPACE/NAME`},
		{"infra with an empty name", "infra clusters/", `infra: "clusters/" is not NAMESPACE/NAME`},
		{"infra with too many parts", "infra clusters/blue/1", `infra: "clusters/blue/1" is not NAMESPACE/NAME`},
		{"hostedcluster without arguments", "hostedcluster", "hostedcluster: want one or more NAMESPACE/NAME"},
		{"hostedcluster without a namespace", "hostedcluster blue", `hostedcluster: "blue" is not NAMESPACE/NAME`},
		{"management without arguments", "management", "management: want one or more domains"},
		{"management with a wildcard", "management *.apps.example.com", `management: "*.apps.example.com" is not a domain`},
		{"domains with an address", "domains 192.0.2.0/24", `domains: "192.0.2.0/24" is not a domain`},
		{"domains with the root", "domains .", `domains: "." is not a domain`},
		{"view without arguments", "view", "view: want NAME [CIDR ...]"},
		{"view with an invalid network", "view lab 192.0.2.0/33", `view: "192.0.2.0/33" is not a network such as 192.0.2.0/24`},
		{"view with a name", "view lab vlan10", `view: "vlan10" is not a network such as 192.0.2.0/24`},
		{"view with an IPv4-mapped network", "view lab ::ffff:192.0.2.0/120",
			`view: "::ffff:192.0.2.0/120" is an IPv4-mapped network, which matches no client; write it as IPv4`},
		{"answer without arguments", "answer", "answer: want NAME ADDRESS, or NAME service NAMESPACE/NAME"},
		{"answer without an address", "answer lab", "answer: want NAME ADDRESS, or NAME service NAMESPACE/NAME"},
		{"answer with a name", "answer lab proxy.example.com", `answer: "proxy.example.com" is not an IP address that clients can use`},
		{"answer with a network", "answer lab 192.0.2.0/24", `answer: "192.0.2.0/24" is not an IP address that clients can use`},
		{"answer with an IPv6 zone", "answer lab fe80::1%eth0", `answer: "fe80::1%eth0" is not an IP address that clients can use`},
		{"answer with the unspecified address", "answer lab 192.0.2.1 0.0.0.0", `answer: "0.0.0.0" is not an IP address that clients can use`},
		{"answer with service but no name", "answer lab service", "answer: want NAME service NAMESPACE/NAME"},
		{"answer with two Services", "answer lab service a/a b/b", "answer: want NAME service NAMESPACE/NAME"},
		{"answer with a Service without a namespace", "answer lab service proxy", `answer: "proxy" is not NAMESPACE/NAME`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parseConfig("", tc.properties)
			if err == nil || err.Error() != place+tc.want {
				t.Errorf("error is %v\nwant %s", err, place+tc.want)
			}
		})
	}
}

func TestParseRejectsDuplicates(t *testing.T) {
	const place = "Testfile:3 - Error during parsing: "
	for _, tc := range []struct{ properties, want string }{
		{"kubeconfig a\nkubeconfig b", "kubeconfig: specified twice"},
		{"manifests a\nmanifests b", "manifests: specified twice"},
		{"snapshot a\nsnapshot b", "snapshot: specified twice"},
		{"view lab\nview lab", "view: duplicate view lab"},
		{"view lab\nview lab 192.0.2.0/24", "view: duplicate view lab"},
		{"view lab 192.0.2.0/24\nview lab", "view: duplicate view lab"},
		{"view lab 192.0.2.0/24\nview lab 198.51.100.0/24", "view: duplicate view lab"},
		{"view vlan\nview pod", "view: view vlan already applies to the whole block; remove view pod"},
		{"view vlan 192.0.2.0/24\nview pod 10.0.0.0/8 192.0.2.77/24", "view: 192.0.2.0/24 is already in view vlan"},
		{"view vlan 192.0.2.7\nview pod 192.0.2.7/32", "view: 192.0.2.7/32 is already in view vlan"},
		{"answer lab 192.0.2.1\nanswer lab service a/a", "answer: view lab already has an answer"},
	} {
		t.Run(tc.properties, func(t *testing.T) {
			_, err := parseConfig("", tc.properties)
			if err == nil || err.Error() != place+tc.want {
				t.Errorf("error is %v\nwant %s", err, place+tc.want)
			}
		})
	}
}

func TestCheckErrorsNameTheRemedy(t *testing.T) {
	for _, tc := range []struct{ name, properties, want string }{
		{"two sources", "kubeconfig a\nmanifests b",
			"kubeconfig and manifests are mutually exclusive"},
		{"a view for the block and one by address", "view vlan\nview pod 10.0.0.0/8",
			"view vlan applies to the whole block; add the CIDRs of its clients, or remove view pod"},
		{"a view by address and one for the block", "view pod 10.0.0.0/8\nview vlan",
			"view vlan applies to the whole block; add the CIDRs of its clients, or remove view pod"},
		{"answer for a view that is not defined", "answer lab 192.0.2.1", "answer lab: unknown view lab; the views of the block are vlan and pod"},
		{"answer for another view than the block's", "view vlan\nanswer pod 192.0.2.1",
			"answer pod: unknown view pod; the views of the block are vlan"},
		{"answer for none of the views by address", "view vlan 192.0.2.0/24\nview lab 10.0.0.0/8\nanswer pod 192.0.2.1",
			"answer pod: unknown view pod; the views of the block are vlan and lab"},
		{"answer without a hosted cluster", "view lab\nanswer lab 192.0.2.1",
			"answer lab: the block does not select hosted clusters for the view; add 'hostedcluster NAMESPACE/NAME' or 'infra NAMESPACE/NAME'"},
		{"answer without a hosted cluster on a VLAN", "view vlan 192.0.2.0/24\nanswer vlan 192.0.2.1",
			"answer vlan: the block does not select hosted clusters for the view; add 'hostedcluster NAMESPACE/NAME' or 'infra NAMESPACE/NAME'"},
		{"view without addresses", "view lab", "view lab has no addresses: add 'answer lab ADDRESS', or rename the view to vlan or pod"},
		{"view by address without addresses", "view pod 10.0.0.0/8\nview lab 192.0.2.0/24",
			"view lab has no addresses: add 'answer lab ADDRESS', or rename the view to vlan or pod"},
		{"answer for view vlan without clients", "infra a/a\nanswer vlan 192.0.2.1",
			"answer vlan: the block does not select the clients of the view; add 'view vlan' for the whole block, or 'view vlan CIDR'"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parseConfig("", tc.properties)
			if err == nil || !strings.HasSuffix(err.Error(), " - Error during parsing: "+tc.want) {
				t.Errorf("error is %v\nwant %s", err, tc.want)
			}
		})
	}
}

func TestPathsAreRelativeToTheRoot(t *testing.T) {
	for _, tc := range []struct{ name, root, properties, kubeconfig, manifests, file string }{
		{"no root", "", "manifests m\nsnapshot s", "", "m", "s"},
		{"absolute root", "/etc/coredns", "manifests m\nsnapshot ../s", "", "/etc/coredns/m", "/etc/s"},
		{"relative root, followed by more properties", "conf", "manifests m\nsnapshot s\ninfra a/a\nview pod", "", "conf/m", "conf/s"},
		{"absolute paths", "/etc/coredns", "kubeconfig /k\nsnapshot /var/s", "/k", "", "/var/s"},
		{"the pod's own service account has no path", "/etc/coredns", "infra a/a", "", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, err := parseConfig(tc.root, tc.properties)
			if err != nil {
				t.Fatal(err)
			}
			s := cfg.Source
			if s.Kubeconfig != tc.kubeconfig || s.Manifests != tc.manifests || s.File != tc.file {
				t.Errorf("paths are %q, %q, %q; want %q, %q, %q", s.Kubeconfig, s.Manifests, s.File, tc.kubeconfig, tc.manifests, tc.file)
			}
		})
	}
}

func TestAnswersDiffer(t *testing.T) {
	for _, tc := range []struct {
		name, properties string
		want             bool
	}{
		{"views from Infras", "", true},
		{"by address", "view vlan 192.0.2.0/24\nview pod 10.0.0.0/8", true},
		{"by address, others refused", "view pod 10.0.0.0/8", true},
		{"pods", "view pod", false},
		{"VLANs, each with its own names", "view vlan", true},
		{"VLANs with one answer", "infra a/a\nview vlan\nanswer vlan 192.0.2.1", false},
		{"VLANs with one answer by Service", "infra a/a\nview vlan\nanswer vlan service a/a-proxy", false},
		{"a custom view", "infra a/a\nview lab\nanswer lab 192.0.2.1", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := config(t, tc.properties).answersDiffer(); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestBoundAddresses(t *testing.T) {
	for _, tc := range []struct {
		name  string
		hosts []string
		want  string
	}{
		{"unbound", []string{""}, "[]"},
		{"one of each family, once", []string{"192.0.2.2", "2001:db8::2", "192.0.2.2"}, "[192.0.2.2 2001:db8::2]"},
		{"addresses that other hosts cannot reach", []string{"127.0.0.1", "::1", "fe80::1%eth0", "0.0.0.0"}, "[]"},
	} {
		if got := fmt.Sprint(boundAddresses(tc.hosts)); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}
