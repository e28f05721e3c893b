package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/golden"
)

// TestNames runs the transcript testdata/names.txt. The commands are:
//
//	clean NAME               the normalized name; NAME may be a Go string
//	within NAME DOMAIN
//	split HOST               host and port
//	publish NAME             whether a name can be published, and the problem
//	namespace NAMESPACE/NAME the namespace of a control plane
//	egress HOST              checks a host of egress
//	service NAME             the Service that internalProxyService of Infra clusters/demo names
func TestNames(t *testing.T) {
	golden.Transcript(t, "testdata/names.txt", func(line string) []string {
		command, argument, _ := strings.Cut(line, " ")
		if text, err := strconv.Unquote(argument); err == nil {
			argument = text
		}
		switch command {
		case "clean":
			name, err := cleanName(argument)
			if err != nil {
				return []string{err.Error()}
			}
			return []string{name}
		case "egress":
			if err := CheckEgressHost(argument); err != nil {
				return []string{err.Error()}
			}
			return []string{"accepted"}
		case "within":
			name, domain, _ := strings.Cut(argument, " ")
			return []string{strconv.FormatBool(within(name, domain))}
		case "split":
			host, port := splitHost(argument)
			return []string{fmt.Sprintf("%q port %d", host, port)}
		case "publish":
			var found problems
			name, ok := publishable(Ref{Kind: "HostedCluster", Name: "demo"}, argument, "a field", &found)
			output := []string{fmt.Sprintf("%q %t", name, ok)}
			for _, p := range found {
				output = append(output, p.String())
			}
			return output
		case "namespace":
			namespace, name, _ := strings.Cut(argument, "/")
			return []string{ControlPlaneNamespace(namespace, name)}
		case "service":
			return []string{proxyService(Ref{Kind: "Infra", Namespace: "clusters", Name: "demo"}, argument)}
		}
		t.Fatalf("unknown command %s", line)
		return nil
	})
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

func TestKeepsFirstEndpointSource(t *testing.T) {
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
	if !slices.Equal(got[0].Endpoints, want) {
		t.Errorf("endpoints are %v, want %v", got[0].Endpoints, want)
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
	var got []string
	for _, one := range p.sorted() {
		got = append(got, one.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
