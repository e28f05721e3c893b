package daemon

import (
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"
)

// FromEnvironment sets the flags that were not given to what the environment says:
// --log-level to PREFIX_LOG_LEVEL.
func FromEnvironment(flags *pflag.FlagSet, prefix string, lookup func(string) (string, bool)) error {
	var wrong error
	flags.VisitAll(func(f *pflag.Flag) {
		name := prefix + "_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, ok := lookup(name)
		if !ok || f.Changed || wrong != nil || f.Name == "help" || f.Name == "version" {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			wrong = fmt.Errorf("environment variable %s: %w", name, err)
		}
	})
	return wrong
}

// NewLogger makes a logger of what --log-format and --log-level say.
func NewLogger(to io.Writer, format, level string) (*slog.Logger, error) {
	var threshold slog.Level
	if err := threshold.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: want debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: threshold}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(to, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(to, options)), nil
	default:
		return nil, fmt.Errorf("--log-format %q: want text or json", format)
	}
}
