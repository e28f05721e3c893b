package envoy

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// LogLevels are the log levels of one Envoy.
type LogLevels struct {
	Header `json:",inline"`

	Loggers []Logger `json:"loggers"`
	// Set is the query from ParseLevels, which sets levels; if it is empty, Read only reads them.
	Set string `json:"-"`
}

// A Logger is a logger of Envoy with its log level.
type Logger struct {
	Name  string `json:"name"`
	Level string `json:"level"`
}

// Levels returns Envoy's log levels.
func Levels() []string {
	return []string{"trace", "debug", "info", "warning", "error", "critical", "off"}
}

// ParseLevels returns the query of /logging that sets levels: either one LEVEL of all loggers, or a NAME=LEVEL for each
// logger to change. It returns an empty query for an empty list.
func ParseLevels(list []string) (string, error) {
	var paths []string
	for _, text := range list {
		name, level, single := strings.Cut(text, "=")
		if !single {
			level = text
		}
		switch {
		case !slices.Contains(Levels(), level):
			return "", fmt.Errorf("%q: must be one of the levels %s", text, strings.Join(Levels(), ", "))
		case !single && len(list) > 1:
			return "", fmt.Errorf("%q sets all loggers and cannot be combined with other levels", text)
		case !single:
			return "level=" + level, nil
		case name == "" || strings.ContainsAny(name, ":,"):
			return "", fmt.Errorf("%q: must be LEVEL or NAME=LEVEL", text)
		}
		paths = append(paths, name+":"+level)
	}
	if len(paths) == 0 {
		return "", nil
	}
	return "paths=" + url.QueryEscape(strings.Join(paths, ",")), nil
}

// Read sets levels, and reads the levels of all loggers, in Envoy's order.
func (l *LogLevels) Read(ctx context.Context, get Getter) error {
	page, err := get(ctx, "/logging?"+l.Set)
	if err != nil {
		return err
	}
	l.Loggers = []Logger{}
	for line := range strings.Lines(string(page)) {
		// "active loggers:", then "  NAME: LEVEL" for each logger
		if name, level, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			l.Loggers = append(l.Loggers, Logger{name, level})
		}
	}
	return nil
}

// LogLevelsTable returns a table with a row for each logger.
func LogLevelsTable(reports []*LogLevels, wide bool) *output.Table {
	var list []Row[Logger]
	for _, r := range reports {
		list = rows(list, r.Metadata.Name, r.Loggers)
	}
	return output.NewTable([]output.Column[Row[Logger]]{
		podColumn[Logger](),
		{Title: "LOGGER", Value: func(r Row[Logger]) string { return r.Part.Name }},
		{Title: "LEVEL", Value: func(r Row[Logger]) string { return r.Part.Level }},
	}, list, wide)
}
