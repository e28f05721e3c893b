package setup_test

import (
	"testing"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/densityops/oooi/kubectl-oooi/internal/cmd"
	"github.com/densityops/oooi/kubectl-oooi/internal/cmdtest"
	"github.com/densityops/oooi/test/lab"
)

var management = lab.Shared{Config: cmdtest.Management(), Prepare: cmdtest.Install}

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	lab.Main(m, &management)
}

// A site is a management cluster with a hosted cluster and its control plane's namespace, in which setup has not run.
type site struct {
	*cmdtest.Site
}

func newSite(t *testing.T) *site {
	t.Helper()
	return &site{cmdtest.New(t, management.Get(t), cmd.Main)}
}
