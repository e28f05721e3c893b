package cmd

import (
	"testing"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/densityops/oooi/kubectl-oooi/internal/cmdtest"
	"github.com/densityops/oooi/test/lab"
)

var management = lab.Shared{Config: cmdtest.Management(), Prepare: cmdtest.Install}

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	lab.Main(m, &management)
}

// A testSite is a management cluster with a hosted cluster, before setup.
type testSite struct {
	*cmdtest.Site
}

func newSite(t *testing.T) *testSite {
	t.Helper()
	return &testSite{cmdtest.New(t, management.Get(t), Main)}
}
