package verify

import (
	"net/netip"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/golden"
)

// TestOutagePolicy compares the policy of an outage with a golden file, which test/integration/ovn applies.
func TestOutagePolicy(t *testing.T) {
	infra := &v1alpha1.Infra{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "demo"}}
	policy := outagePolicy(infra, []netip.AddrPort{netip.MustParseAddrPort("192.0.2.81:6443"), netip.MustParseAddrPort("[2001:db8::81]:6443")})
	policy.Name = "demo-test-abcde"
	text, err := yaml.Marshal(policy)
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, filepath.Join("testdata", "outage.yaml"), string(text))
}
