package views

import (
	"bytes"
	"errors"
	golog "log"
	"testing"

	"github.com/densityops/oooi/test/golden"

	clog "github.com/coredns/coredns/plugin/pkg/log"
)

// capture returns a buffer with the output of CoreDNS's log, without time.
func capture(t *testing.T, debug bool) *bytes.Buffer {
	t.Helper()
	var buf bytes.Buffer
	writer, flags := golog.Writer(), golog.Flags()
	golog.SetOutput(&buf)
	golog.SetFlags(0)
	if debug {
		clog.D.Set()
	}
	t.Cleanup(func() {
		golog.SetOutput(writer)
		golog.SetFlags(flags)
		clog.D.Clear()
	})
	return &buf
}

// TestLogLines compares lines with a golden file: of each level; with keys, of which the logger's come first and are not shared;
// with groups, which are flat; and with values that must be quoted, and with percent signs, which must not be formatted.
func TestLogLines(t *testing.T) {
	buf := capture(t, true)
	l := NewLogger("hcpviews")
	l.Info("synced")
	l.Error("watch failed", "err", errors.New("forbidden"))
	l.Warn("retrying", "n", 1)
	l.Debug("detail")
	l.Info("synced", "clusters", 2, "infras", 3)
	l.With("a", 1).With("b", 2, "c", 3).Info("m", "d", 4)
	l.WithGroup("g").With("a", 1).Info("m", "b", 2)
	base := l.With("a", 1)
	one, two := base.With("b", 2), base.With("c", 3)
	one.Info("m")
	two.Info("m")
	base.Info("m")
	l.Info("m", "object", "Infra clusters/blue")
	l.Info("m", "a", "x\ny", "b", `"`, "c", "k=v", "d", "x\ty")
	l.Info("m", "a", "x\ry", "b", "\x1b[2J", "c", "x\u2028y")
	l.Info("m", "a", "", "b", 1)
	l.Info("100%s", "a", "%d")
	golden.Check(t, "testdata/log.txt", buf.String())
}

func TestDebugLinesNeedTheDebugPlugin(t *testing.T) {
	buf := capture(t, false)
	NewLogger("hcpviews").Debug("detail")
	if buf.Len() != 0 {
		t.Errorf("logged %s", buf)
	}
}
