package model

import (
	"strings"
	"testing"
)

func TestCleanName(t *testing.T) {
	label := strings.Repeat("x", 63)
	longest := strings.Join([]string{label, label, label, label}, ".")[2:]
	for _, tc := range []struct{ name, in, want string }{ // want is "" for an error
		{"plain", "api.example.com", "api.example.com"},
		{"upper case", "API.Example.COM", "api.example.com"},
		{"with a final dot", "api.example.com.", "api.example.com"},
		{"single label", "localhost", "localhost"},
		{"digits and hyphens inside", "0a-b--c9.x1", "0a-b--c9.x1"},
		{"underscores", "_x._tcp.example.com", "_x._tcp.example.com"},
		{"the longest label", label, label},
		{"the longest name", longest, longest},
		{"the longest name with a final dot", longest + ".", longest},

		{"empty", "", ""},
		{"root", ".", ""},
		{"two final dots", "example.com..", ""},
		{"empty label", "api..example.com", ""},
		{"leading dot", ".example.com", ""},
		{"label too long", label + "x.example.com", ""},
		{"name too long", "x" + longest, ""},
		{"leading hyphen", "-api.example.com", ""},
		{"trailing hyphen", "api-.example.com", ""},
		{"wildcard", "*.example.com", ""},
		{"escaped dot", `a\.b.example.com`, ""},
		{"space", "a b.example.com", ""},
		{"port", "api.example.com:6443", ""},
		{"line break", "api.example.com\n", ""},
		{"invalid UTF-8", "a\xff.example.com", ""},
		{"letter of another script", "пример.example.com", ""},
		{"letter that is ASCII in lower case", "\u212aelvin.example.com", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := cleanName(tc.in)
			if got != tc.want || (err != nil) != (tc.want == "") {
				t.Errorf("got %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

func TestCleanNameErrors(t *testing.T) {
	for in, want := range map[string]string{
		"":           `"" is not a domain name: length 0, want 1 to 253`,
		"A..b":       `"A..b" is not a domain name: label "" has length 0, want 1 to 63`,
		"x.-a":       `"x.-a" is not a domain name: label "-a" begins or ends with a hyphen`,
		"*.apps.a.b": `"*.apps.a.b" is not a domain name: label "*" contains '*'`,
	} {
		if _, err := cleanName(in); err == nil || err.Error() != want {
			t.Errorf("%q: error %v\nwant %s", in, err, want)
		}
	}
}

func FuzzCleanName(f *testing.F) {
	for _, seed := range []string{"api.example.com", "API.Example.COM.", "a..b", "-a.b", "*.a.b", `a\.b`, "\u212a.b", "\u0130.b", "a\x00", "_a.b-c", strings.Repeat("a.", 130)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		name, err := cleanName(in)
		if err != nil {
			if name != "" {
				t.Errorf("%q: got both a name %q and an error", in, name)
			}
			return
		}
		if want := strings.Map(lowerASCII, strings.TrimSuffix(in, ".")); name != want {
			t.Errorf("%q became %q, want %q", in, name, want)
		}
		if cleanedAgain, err := cleanName(name); cleanedAgain != name || err != nil {
			t.Errorf("%q is normalized, but cleanName returns %q, %v", name, cleanedAgain, err)
		}
		if len(name) > maxName || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
			t.Errorf("%q is not a valid name", name)
		}
		if !within(name, name) || !within("x."+name, name) || within("x"+name, name) {
			t.Errorf("within(%q) is wrong for itself, a subdomain or a longer label", name)
		}
	})
}

func lowerASCII(r rune) rune {
	if 'A' <= r && r <= 'Z' {
		r += 'a' - 'A'
	}
	return r
}

func TestWithin(t *testing.T) {
	for _, tc := range []struct {
		name, domain string
		want         bool
	}{
		{"example.com", "example.com", true},
		{"api.example.com", "example.com", true},
		{"a.b.example.com", "example.com", true},
		{"myexample.com", "example.com", false},
		{"com", "example.com", false},
		{"example.com", "api.example.com", false},
		{"example.com.net", "example.com", false},
	} {
		if got := within(tc.name, tc.domain); got != tc.want {
			t.Errorf("%s within %s: %t", tc.name, tc.domain, got)
		}
	}
}

func TestSplitHost(t *testing.T) {
	for _, tc := range []struct {
		in, host string
		port     int32
	}{
		{"", "", 0},
		{"api.example.com", "api.example.com", 0},
		{"api.example.com:443", "api.example.com", 443},
		{"api.example.com:65535", "api.example.com", 65535},
		{"192.0.2.1:443", "192.0.2.1", 443},
		{"[2001:db8::1]:443", "2001:db8::1", 443},
		{"[2001:db8::1]", "2001:db8::1", 0},
		{"2001:db8::1", "2001:db8::1", 0},
		{"api.example.com:", "api.example.com", 0},
		{"api.example.com:https", "api.example.com", 0},
		{"api.example.com:443x", "api.example.com", 0},
		{"api.example.com:-1", "api.example.com", 0},
		{"api.example.com:65536", "api.example.com", 0},
		{"api.example.com:4294967739", "api.example.com", 0},
	} {
		if host, port := splitHost(tc.in); host != tc.host || port != tc.port {
			t.Errorf("%q: got %q and %d, want %q and %d", tc.in, host, port, tc.host, tc.port)
		}
	}
}

func TestPublishable(t *testing.T) {
	for _, tc := range []struct{ name, in, want, problem string }{
		{"hostname", "API.example.com", "api.example.com", ""},
		{"address", "192.0.2.1", "", ""},
		{"IPv6 address", "2001:db8::1", "", ""},
		{"HyperShift's private names", "api.demo.hypershift.local", "", ""},
		{"a suffix that is not a parent domain", "api.nothypershift.local", "api.nothypershift.local", ""},
		{"single label", "localhost", "", `a field: "localhost" is a single label; want a name with a domain`},
		{"the management cluster's own", "kube-apiserver.clusters-demo.svc.cluster.local", "",
			`a field: "kube-apiserver.clusters-demo.svc.cluster.local" is in cluster.local, the domain of the management cluster's Services`},
		{"not a name", "not a name", "", `a field: "not a name" is not a domain name: label "not a name" contains ' '`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var found problems
			name, ok := publishable(Ref{Kind: "HostedCluster", Name: "demo"}, tc.in, "a field", &found)
			if name != tc.want || ok != (tc.want != "") {
				t.Errorf("got %q, %t; want %q", name, ok, tc.want)
			}
			switch {
			case tc.problem == "" && len(found) == 0:
			case len(found) != 1 || found[0].Reason != ReasonInvalidName || found[0].Message != tc.problem:
				t.Errorf("problems are %v, want %q", found, tc.problem)
			}
		})
	}
}

func TestControlPlaneNamespace(t *testing.T) {
	for _, tc := range []struct{ namespace, name, want string }{
		{"clusters", "demo", "clusters-demo"},
		{"clusters", "demo.v2.x", "clusters-demo-v2-x"},
		{"team.a", "demo", "team.a-demo"},
	} {
		if got := ControlPlaneNamespace(tc.namespace, tc.name); got != tc.want {
			t.Errorf("%s/%s: got %s, want %s", tc.namespace, tc.name, got, tc.want)
		}
	}
}

func TestProxyService(t *testing.T) {
	for in, want := range map[string]string{
		"":                          "clusters/demo-proxy",
		"edge":                      "clusters/edge",
		"edge.ingress":              "ingress/edge",
		"edge.ingress.svc":          "ingress/edge",
		"edge.ingress.svc.cluster.": "ingress/edge",
		"edge.":                     "clusters/edge",
	} {
		if got := proxyService(Ref{Kind: "Infra", Namespace: "clusters", Name: "demo"}, in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

func TestFirstSourceOfAnEndpointIsKept(t *testing.T) {
	h := hostnames{}
	h.add("api.a.test", RoleOAuth, 443, "spec")
	h.add("api.a.test", RoleAPI, 6443, "status")
	h.add("api.a.test", RoleAPI, 6443, "convention")
	h.add("api.a.test", RoleAPI, 443, "route")
	got := h.sorted()
	if len(got) != 1 {
		t.Fatalf("%d names, want 1", len(got))
	}
	want := []Endpoint{
		{RoleAPI, 443, "route"},
		{RoleOAuth, 443, "spec"},
		{RoleAPI, 6443, "status"},
	}
	if len(got[0].Endpoints) != len(want) {
		t.Fatalf("endpoints are %v", got[0].Endpoints)
	}
	for i, e := range got[0].Endpoints {
		if e != want[i] {
			t.Errorf("endpoint %d is %+v, want %+v", i, e, want[i])
		}
	}
}

func TestProblemsAreSortedAndUnique(t *testing.T) {
	a, b := Ref{"Infra", "x", "a"}, Ref{"Infra", "x", "b"}
	var p problems
	p.add(b, ReasonInvalidName, "%d", 1)
	p.add(a, ReasonInvalidName, "2")
	p.add(a, ReasonInvalidAddress, "3")
	p.add(b, ReasonInvalidName, "1")
	want := []string{"Infra x/a: InvalidAddress: 3", "Infra x/a: InvalidName: 2", "Infra x/b: InvalidName: 1"}
	got := p.sorted()
	if len(got) != len(want) {
		t.Fatalf("got %v", got)
	}
	for i := range got {
		if got[i].String() != want[i] {
			t.Errorf("got %s, want %s", got[i], want[i])
		}
	}
}
