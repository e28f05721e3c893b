package lab_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// TestProgramsUseNoTemplates checks that programs do not call text/template, or html/template, which calls methods by reflection: the linker
// would keep all exported methods of all types, which enlarged xdsd by a quarter. CoreDNS is left out: its plugin template needs it.
func TestProgramsUseNoTemplates(t *testing.T) {
	for _, name := range []string{"coredhcp", "kubectl-oooi", "xdsd"} {
		program, err := os.ReadFile(lab.Binary(t, name))
		lab.Must(t, err)
		if !bytes.Contains(program, []byte("runtime.main")) {
			t.Fatalf("%s has no names of functions", name)
		}
		if bytes.Contains(program, []byte("text/template.(*state).evalField")) {
			t.Errorf("%s uses text/template: find out why with go build -ldflags=-dumpdep", name)
		}
	}
}
