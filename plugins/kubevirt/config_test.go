package kubevirt

import (
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/objects"
)

func TestArguments(t *testing.T) {
	for _, tc := range []struct {
		name, args string
		want       config
		err        string
	}{
		{"minimum", "network=clusters/vlan", config{network: "clusters/vlan"}, ""},
		{
			"all arguments",
			"network=clusters/vlan namespace=b,a infra-id=demo-x7k2p kubeconfig=/k context=c snapshot=/s",
			config{network: "clusters/vlan", namespaces: "a,b", selector: objects.LabelInfraID + "=demo-x7k2p", kubeconfig: "/k", context: "c", snapshot: "/s"},
			"",
		},
		{
			"a selector with spaces", "selector=tier in (a,b), !canary network=clusters/vlan",
			config{network: "clusters/vlan", selector: "tier in (a,b), !canary"}, "",
		},
		{"an empty selector", "network=clusters/vlan selector=", config{network: "clusters/vlan"}, ""},
		{"test clients", "network=clusters/vlan test-clients=clusters/demo", config{network: "clusters/vlan", testClients: "clusters/demo"}, ""},
		{"test clients without a namespace", "network=a/b test-clients=demo", config{}, "test-clients=demo: want the namespace/name"},
		{"no network", "namespace=a", config{}, "network=: want the namespace/name"},
		{"a network without a namespace", "network=vlan", config{}, "network=vlan: want the namespace/name"},
		{"three parts", "network=a/b/c", config{}, "network=a/b/c: want"},
		{"an unknown argument", "network=a/b colour=blue", config{}, `unknown argument "colour=blue"; expected one of network, namespace`},
		{"no key", "a/b", config{}, `unknown argument "a/b"`},
		{"twice", "network=a/b network=a/c", config{}, "duplicate argument network"},
		{"empty", "network=a/b snapshot=", config{}, "snapshot is empty"},
		{"an empty namespace", "network=a/b namespace=a,,b", config{}, "namespace=a,,b: empty or duplicate namespace"},
		{"a namespace twice", "network=a/b namespace=a,a", config{}, "namespace=a,a: empty or duplicate namespace"},
		{"two selectors", "network=a/b infra-id=x selector=y", config{}, "infra-id and selector are mutually exclusive"},
		{"a broken selector", "network=a/b selector=a in", config{}, `selector "a in"`},
		{"a broken infra ID", "network=a/b infra-id=a/b", config{}, "selector"},
		{"a context without a kubeconfig", "network=a/b context=c", config{}, "context requires kubeconfig"},
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
