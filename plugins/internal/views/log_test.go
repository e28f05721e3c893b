package views

import (
	"bytes"
	"errors"
	golog "log"
	"log/slog"
	"testing"

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

func TestLogLines(t *testing.T) {
	for _, tc := range []struct {
		name string
		log  func(*slog.Logger)
		want string
	}{
		{"message without attributes", func(l *slog.Logger) { l.Info("synced") }, "[INFO] plugin/hcpviews: synced\n"},
		{"error", func(l *slog.Logger) { l.Error("watch failed", "err", errors.New("forbidden")) },
			"[ERROR] plugin/hcpviews: watch failed err=forbidden\n"},
		{"warning", func(l *slog.Logger) { l.Warn("retrying", "n", 1) }, "[WARNING] plugin/hcpviews: retrying n=1\n"},
		{"debug", func(l *slog.Logger) { l.Debug("detail") }, "[DEBUG] plugin/hcpviews: detail\n"},
		{"several keys", func(l *slog.Logger) { l.Info("synced", "clusters", 2, "infras", 3) },
			"[INFO] plugin/hcpviews: synced clusters=2 infras=3\n"},
		{"keys of the logger come first", func(l *slog.Logger) { l.With("a", 1).With("b", 2, "c", 3).Info("m", "d", 4) },
			"[INFO] plugin/hcpviews: m a=1 b=2 c=3 d=4\n"},
		{"groups are flat", func(l *slog.Logger) { l.WithGroup("g").With("a", 1).Info("m", "b", 2) },
			"[INFO] plugin/hcpviews: m a=1 b=2\n"},
		{"values with spaces are quoted", func(l *slog.Logger) { l.Info("m", "object", "Infra clusters/blue") },
			"[INFO] plugin/hcpviews: m object=\"Infra clusters/blue\"\n"},
		{"values with line breaks, quotes or equal signs are quoted", func(l *slog.Logger) { l.Info("m", "a", "x\ny", "b", `"`, "c", "k=v", "d", "x\ty") },
			"[INFO] plugin/hcpviews: m a=\"x\\ny\" b=\"\\\"\" c=\"k=v\" d=\"x\\ty\"\n"},
		{"values with control characters are quoted", func(l *slog.Logger) { l.Info("m", "a", "x\ry", "b", "\x1b[2J", "c", "x\u2028y") },
			"[INFO] plugin/hcpviews: m a=\"x\\ry\" b=\"\\x1b[2J\" c=\"x\\u2028y\"\n"},
		{"empty values are quoted", func(l *slog.Logger) { l.Info("m", "a", "", "b", 1) }, "[INFO] plugin/hcpviews: m a=\"\" b=1\n"},
		{"percent signs are not formatted", func(l *slog.Logger) { l.Info("100%s", "a", "%d") }, "[INFO] plugin/hcpviews: 100%s a=%d\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			buf := capture(t, true)
			tc.log(NewLogger("hcpviews"))
			if buf.String() != tc.want {
				t.Errorf("got  %swant %s", buf, tc.want)
			}
		})
	}
}

func TestDebugLinesNeedTheDebugPlugin(t *testing.T) {
	buf := capture(t, false)
	NewLogger("hcpviews").Debug("detail")
	if buf.Len() != 0 {
		t.Errorf("logged %s", buf)
	}
}

func TestLoggersDoNotShareKeys(t *testing.T) {
	buf := capture(t, false)
	base := NewLogger("hcpviews").With("a", 1)
	one, two := base.With("b", 2), base.With("c", 3)
	one.Info("m")
	two.Info("m")
	base.Info("m")
	want := "[INFO] plugin/hcpviews: m a=1 b=2\n[INFO] plugin/hcpviews: m a=1 c=3\n[INFO] plugin/hcpviews: m a=1\n"
	if buf.String() != want {
		t.Errorf("got\n%swant\n%s", buf, want)
	}
}
