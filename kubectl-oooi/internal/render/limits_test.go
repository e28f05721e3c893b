package render

import (
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/api/v1alpha1"
)

func TestLimitsOfNetworks(t *testing.T) {
	limits := &v1alpha1.SourceLimits{MaxConnections: new(int32(100)), ConnectionsPerSecond: new(int32(10)), Networks: []v1alpha1.SourceNetwork{
		{CIDR: "192.0.2.0/28", MaxConnections: new(int32(9000))},
		{CIDR: "192.0.2.16/28", ConnectionsPerSecond: new(int32(900))},
		{CIDR: "192.0.2.32/28", MaxConnections: new(int32(0)), ConnectionsPerSecond: new(int32(0))},
	}}
	if got, want := sourceLimits(limits), "192.0.2.0/28=9000/10,192.0.2.16/28=100/900,192.0.2.32/28=0/0"; !slices.Contains(got, want) {
		t.Errorf("got %s, want %s", strings.Join(got, " "), want)
	}
}
