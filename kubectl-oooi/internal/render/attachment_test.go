package render

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/densityops/oooi/api/v1alpha1"
)

func TestGatewayFamilyMatchesAddress(t *testing.T) {
	in := &Input{Infra: &v1alpha1.Infra{}}
	in.Infra.Spec.NetworkConfig = v1alpha1.NetworkConfig{CIDR: "192.0.2.0/24", Gateway: "192.0.2.1", AdditionalCIDRs: []v1alpha1.CIDR{"2001:db8::/64"}}
	got := in.staticIPAM(instance{addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")}})["addresses"]
	want := []any{map[string]any{"address": "192.0.2.2/24", "gateway": "192.0.2.1"}, map[string]any{"address": "2001:db8::2/64"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
