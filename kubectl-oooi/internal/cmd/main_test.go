package cmd

import (
	"strings"
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

// TestTranscripts runs commands on sites whose pods do not start.
func TestTranscripts(t *testing.T) {
	cmdtest.Transcripts(t, "testdata/transcripts", func(t *testing.T) (*cmdtest.Site, map[string]cmdtest.Command) {
		s := newSite(t)
		return s.Site, map[string]cmdtest.Command{
			// grant gives a user permissions: USER RULES.
			"grant": func(argument string) []string {
				user, rules, _ := strings.Cut(argument, " ")
				s.Grant(user, rules)
				return nil
			},
			// forget deletes what setup has stored.
			"forget": func(string) []string {
				s.DeleteRecords()
				return nil
			},
		}
	})
}
