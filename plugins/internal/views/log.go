package views

import (
	"context"
	"log/slog"
	"strconv"
	"strings"

	clog "github.com/coredns/coredns/plugin/pkg/log"
)

// NewLogger returns a structured logger that writes to CoreDNS's log under the name of a plugin.
func NewLogger(plugin string) *slog.Logger {
	return slog.New(logHandler{log: clog.NewWithPlugin(plugin)})
}

// A logHandler formats records as lines of CoreDNS's log: the message, then key=value pairs.
type logHandler struct {
	log   clog.P
	attrs string
}

// Enabled implements slog.Handler. CoreDNS itself filters debug lines, by the debug plugin.
func (h logHandler) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
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
	if value == "" || strings.ContainsFunc(value, needsQuotes) {
		value = strconv.Quote(value)
	}
	return " " + a.Key + "=" + value
}

// needsQuotes reports whether c would make a key=value pair ambiguous, or is a control character of a terminal.
func needsQuotes(c rune) bool {
	return c == ' ' || c == '"' || c == '=' || !strconv.IsPrint(c)
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		h.attrs += format(a)
	}
	return h
}

// WithGroup implements slog.Handler. Groups are ignored.
func (h logHandler) WithGroup(string) slog.Handler { return h }
