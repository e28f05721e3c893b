package setup

import (
	"net/netip"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// TestLossesWithoutTheInfraThatWasApplied runs the transcript testdata/losses.txt, which covers an Infra that was edited or deleted before setup: its
// pods still serve. The output of check are the losses of a change, which the commands before it describe: applied is for an Infra that exists
// as it is then.
func TestLossesWithoutTheInfraThatWasApplied(t *testing.T) {
	newChange := func() *change {
		vm := &unstructured.Unstructured{Object: map[string]any{}}
		vm.SetNamespace("clusters-demo")
		vm.SetName("worker")
		c := &change{Known: exampleKnown(t)}
		c.attached, c.leased = []*unstructured.Unstructured{vm}, []*leases.Lease{{
			Infra: "demo", VM: "clusters-demo/worker", Interface: "vlan", MAC: "52:54:00:00:00:01", Address: netip.MustParseAddr("192.168.100.50"), State: "bound",
		}}
		c.serving = map[string]bool{v1alpha1.ComponentDHCP: true, v1alpha1.ComponentDNS: true, v1alpha1.ComponentProxy: true}
		return c
	}
	c := newChange()
	golden.Transcript(t, "testdata/losses.txt", func(line string) (output []string) {
		command, argument, _ := strings.Cut(line, " ")
		switch command {
		case "applied":
			c.before = c.Infra.DeepCopy()
		case "disabled":
			c.Infra.Spec.InfraComponents.DNS = nil
		case "disabled-before":
			c.before.Spec.InfraComponents.DNS = nil
		case "ended":
			delete(c.serving, argument)
		case "dhcp":
			lab.Must(t, yaml.UnmarshalStrict([]byte(argument), c.Infra.Spec.InfraComponents.DHCP))
		case "subnet":
			c.Infra.Spec.NetworkConfig.CIDR = argument
		case "reserved":
			c.attached[0].SetAnnotations(map[string]string{v1alpha1.AnnotationDHCPAddresses: argument})
		case "no-vm":
			c.attached = nil
		case "pod-network":
			c.podNetwork = argument
		case "check":
			c.is, c.was = c.site(), c.siteBefore()
			for _, check := range checks {
				check(c)
			}
			for _, p := range c.problems {
				if p.severity == loss {
					output = append(output, p.text)
				}
			}
			c = newChange()
		default:
			t.Fatalf("unknown command %s", line)
		}
		return output
	})
}

// TestAddressesOfClients covers addresses that clients of DHCP have and that a change uses otherwise.
func TestAddressesOfClients(t *testing.T) {
	for address, want := range map[string]string{"192.168.100.3": "", "192.168.100.50": "192.168.100.50 of StatefulSet demo-dns is leased to VM clusters-demo/worker"} {
		c := &change{Known: exampleKnown(t)}
		c.leased = []*leases.Lease{{Infra: "demo", VM: "clusters-demo/worker", Address: netip.MustParseAddr("192.168.100.50"), State: "bound"}}
		c.Infra.Spec.InfraComponents.DNS.ServerIP = address
		got := ""
		c.leasedAddresses()
		for _, p := range c.problems {
			got += p.text
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}
