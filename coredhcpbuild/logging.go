package main

import (
	"context"
	"io"
	"log/slog"

	"github.com/coredhcp/coredhcp/logger"
	"github.com/sirupsen/logrus"

	"github.com/densityops/oooi/internal/daemon"
)

// newLogger returns a logger, and redirects CoreDHCP's logger to it.
func newLogger(to io.Writer, format, level string) (*slog.Logger, error) {
	log, err := daemon.NewLogger(to, format, level)
	if err != nil {
		return nil, err
	}
	slog.SetDefault(log) // used by the plugins
	stock := logger.GetLogger("coredhcp").Logger
	stock.SetOutput(io.Discard)
	stock.ReplaceHooks(logrus.LevelHooks{})
	stock.AddHook(forward{log})
	return log, nil
}

// forward is a logrus hook that forwards log entries of CoreDHCP and its stock plugins. Their info level has a line
// for each packet, so it becomes debug.
type forward struct{ to *slog.Logger }

// Levels implements logrus.Hook.
func (forward) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook.
func (f forward) Fire(e *logrus.Entry) error {
	level := slog.LevelDebug
	switch e.Level {
	case logrus.WarnLevel:
		level = slog.LevelWarn
	case logrus.ErrorLevel, logrus.FatalLevel, logrus.PanicLevel:
		level = slog.LevelError
	default:
	}
	f.to.Log(context.Background(), level, e.Message, "from", e.Data["prefix"])
	return nil
}
