package hcpapps

import (
	"testing"

	"github.com/coredns/coredns/plugin"

	"github.com/densityops/oooi/plugins/internal/viewstest"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

func TestQueries(t *testing.T) {
	viewstest.Transcripts(t, golden.Transcript, func(t *testing.T, block string) plugin.Handler {
		t.Helper()
		h, err := parse(viewstest.Controller(block))
		lab.Must(t, err)
		viewstest.Start(t, &h.Handler)
		return h
	})
}

func TestSetup(t *testing.T) {
	golden.Errors(t, "testdata/parse/blocks.txt", func(line string) error {
		_, err := parse(viewstest.Controller(viewstest.Block(line)))
		return err
	})
}
