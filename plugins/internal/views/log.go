package views

import (
	"context"
	"log/slog"
	"strconv"
	"strings"

	clog "github.com/coredns/coredns/plugin/pkg/log"
)

// NewLogger returns a structured logger that writes through CoreDNS's own, under
// the name of a plugin.
func NewLogger(plugin string) *slog.Logger {
	return slog.New(logHandler{log: clog.NewWithPlugin(plugin)})
}

// logHandler turns records into lines of CoreDNS's log: the message, then key=value.
type logHandler struct {
	log   clog.P
	attrs string
}

// Enabled is slog.Handler's. CoreDNS's own switch for debug lines decides later.
func (h logHandler) Enabled(context.Context, slog.Level) bool { return true }

// Handle is slog.Handler's.
func (h logHandler) Handle(_ context.Context, r slog.Record) error {
	var line strings.Builder
	line.WriteString(r.Message)
	line.WriteString(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		line.WriteString(format(a))
		return true
	})
	switch {
	case r.Level >= slog.LevelError:
		h.log.Error(line.String())
	case r.Level >= slog.LevelWarn:
		h.log.Warning(line.String())
	case r.Level >= slog.LevelInfo:
		h.log.Info(line.String())
	default:
		h.log.Debug(line.String())
	}
	return nil
}

func format(a slog.Attr) string {
	value := a.Value.String()
	if value == "" || strings.ContainsFunc(value, breaksLine) {
		value = strconv.Quote(value)
	}
	return " " + a.Key + "=" + value
}

// breaksLine reports whether a reader of key=value would stumble over c, or a
// terminal obey it.
func breaksLine(c rune) bool {
	return c == ' ' || c == '"' || c == '=' || !strconv.IsPrint(c)
}

// WithAttrs is slog.Handler's.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		h.attrs += format(a)
	}
	return h
}

// WithGroup is slog.Handler's. The lines are flat.
func (h logHandler) WithGroup(string) slog.Handler { return h }
