package main

import (
	"context"
	"io"
	"log/slog"

	"github.com/coredhcp/coredhcp/logger"
	"github.com/sirupsen/logrus"

	"github.com/densityops/oooi/internal/daemon"
)

// newLogger makes a logger, and has CoreDHCP's own logger write to it.
func newLogger(to io.Writer, format, level string) (*slog.Logger, error) {
	log, err := daemon.NewLogger(to, format, level)
	if err != nil {
		return nil, err
	}
	slog.SetDefault(log) // which is what plugins log to
	stock := logger.GetLogger("coredhcp").Logger
	stock.SetOutput(io.Discard)
	stock.ReplaceHooks(logrus.LevelHooks{})
	stock.AddHook(forward{log})
	return log, nil
}

// forward passes on what CoreDHCP and its stock plugins log. What they say for information
// is a line for each packet.
type forward struct{ to *slog.Logger }

// Levels is logrus.Hook's.
func (forward) Levels() []logrus.Level { return logrus.AllLevels }

// Fire is logrus.Hook's.
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
