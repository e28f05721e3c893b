package render_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

func TestMachineNetworkConfig(t *testing.T) {
	nad := types.NamespacedName{Namespace: "clusters", Name: "vlan100"}
	for text, want := range map[string]string{
		"bridge=br-vlan100":                 `{"bridge":"br-vlan100","cniVersion":"0.3.1","name":"vlan100","type":"bridge"}`,
		"bridge=br1,vlan=100,mtu=9000":      `{"bridge":"br1","cniVersion":"0.3.1","mtu":9000,"name":"vlan100","type":"bridge","vlan":100}`,
		"macvlan=eth1.100,mtu=1500":         `{"cniVersion":"0.3.1","master":"eth1.100","mode":"bridge","mtu":1500,"name":"vlan100","type":"macvlan"}`,
		"localnet=physnet1,vlan=100":        `{"cniVersion":"0.3.1","name":"clusters-vlan100","netAttachDefName":"clusters/vlan100","physicalNetworkName":"physnet1","topology":"localnet","type":"ovn-k8s-cni-overlay","vlanID":100}`,
		"localnet=physnet1,mtu=1400,vlan=1": `{"cniVersion":"0.3.1","mtu":1400,"name":"clusters-vlan100","netAttachDefName":"clusters/vlan100","physicalNetworkName":"physnet1","topology":"localnet","type":"ovn-k8s-cni-overlay","vlanID":1}`,
	} {
		network, err := render.ParseMachineNetwork(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, err := network.Config(nad)
		if err != nil || got != want {
			t.Errorf("%s: got %s (%v), want %s", text, got, err, want)
		}
		if ipam, err := cni.IPAM(got); ipam != "" || err != nil {
			t.Errorf("%s: the configuration assigns addresses by %q (%v)", text, ipam, err)
		}
	}
}
