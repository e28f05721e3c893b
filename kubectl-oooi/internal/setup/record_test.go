package setup

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/densityops/oooi/test/lab"
)

// TestFlagsForAnotherInfra expects a new Infra to have the flags of another one, but not to change the cluster's DNS as that did.
func TestFlagsForAnotherInfra(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	other := &history{client: c, infra: types.NamespacedName{Namespace: "clusters", Name: "other"}}
	lab.Must(t, other.add(t.Context(), &Record{Status: StatusDeployed, Flags: &Remembered{
		Image: "mirror/oooi:1", ClusterDNS: "patch", Given: []string{FlagImage, FlagClusterDNS},
	}}, nil))
	flags, err := (&history{client: c, infra: types.NamespacedName{Namespace: "clusters", Name: "demo"}}).flagsOfOthers(t.Context())
	lab.Must(t, err)
	if flags.Source != "clusters/other" || flags.Image != "mirror/oooi:1" || !slices.Equal(flags.Given, []string{FlagImage}) {
		t.Errorf("%+v", flags)
	}
}
