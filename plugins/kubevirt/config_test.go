package kubevirt

import (
	"strings"
	"testing"
)

func TestArguments(t *testing.T) {
	for _, tc := range []struct {
		name, args string
		want       config
		err        string
	}{
		{"the least", "network=clusters/vlan", config{network: "clusters/vlan"}, ""},
		{
			"all",
			"network=clusters/vlan namespace=b,a infra-id=demo-x7k2p kubeconfig=/k context=c snapshot=/s",
			config{network: "clusters/vlan", namespaces: "a,b", selector: infraIDLabel + "=demo-x7k2p", kubeconfig: "/k", context: "c", snapshot: "/s"},
			"",
		},
		{
			"a selector with spaces", "selector=tier in (a,b), !canary network=clusters/vlan",
			config{network: "clusters/vlan", selector: "tier in (a,b), !canary"}, "",
		},
		{"a selector of everything", "network=clusters/vlan selector=", config{network: "clusters/vlan"}, ""},
		{"no network", "namespace=a", config{}, "network=: want the namespace/name"},
		{"a bare network", "network=vlan", config{}, "network=vlan: want the namespace/name"},
		{"three parts", "network=a/b/c", config{}, "network=a/b/c: want"},
		{"an unknown argument", "network=a/b colour=blue", config{}, `"colour=blue" is none of the arguments network, namespace`},
		{"no key", "a/b", config{}, `"a/b" is none of the arguments`},
		{"twice", "network=a/b network=a/c", config{}, "network is there twice"},
		{"empty", "network=a/b snapshot=", config{}, "snapshot is empty"},
		{"an empty namespace", "network=a/b namespace=a,,b", config{}, "namespace=a,,b: one is empty"},
		{"a namespace twice", "network=a/b namespace=a,a", config{}, "there twice"},
		{"two selectors", "network=a/b infra-id=x selector=y", config{}, "infra-id and selector: give one"},
		{"a broken selector", "network=a/b selector=a in", config{}, `selector "a in"`},
		{"a broken infra ID", "network=a/b infra-id=a/b", config{}, "selector"},
		{"a context alone", "network=a/b context=c", config{}, "name that, too"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parse(strings.Fields(tc.args))
			switch {
			case tc.err == "" && (err != nil || got != tc.want):
				t.Errorf("got %+v, %v; want %+v", got, err, tc.want)
			case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("the error is %v, want %q in it", err, tc.err)
			}
		})
	}
}

func TestCheckReadsTheKubeconfig(t *testing.T) {
	if err := Check("network=a/b", "kubeconfig=missing.yaml"); err == nil || !strings.Contains(err.Error(), "missing.yaml") {
		t.Errorf("the error is %v", err)
	}
	if err := Check("network=a/b"); err != nil {
		t.Error(err)
	}
}
