package daemon

import (
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"
)

// FromEnvironment sets each flag that was not given on the command line from its environment variable, if
// that is set: --log-level from PREFIX_LOG_LEVEL. It ignores --help and --version. It stops at the first
// invalid value and returns an error that names the variable.
func FromEnvironment(flags *pflag.FlagSet, prefix string, lookup func(string) (string, bool)) error {
	var firstErr error
	flags.VisitAll(func(f *pflag.Flag) {
		name := prefix + "_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, ok := lookup(name)
		if !ok || f.Changed || firstErr != nil || f.Name == "help" || f.Name == "version" {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			firstErr = fmt.Errorf("environment variable %s: %w", name, err)
		}
	})
	return firstErr
}

// NewLogger returns a logger that writes to the given writer. format is the value of --log-format, text or json. level
// is the value of --log-level: debug, info, warn or error, in the syntax of slog.Level. Any other value is an error.
func NewLogger(to io.Writer, format, level string) (*slog.Logger, error) {
	var threshold slog.Level
	if err := threshold.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: must be debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: threshold}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(to, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(to, options)), nil
	default:
		return nil, fmt.Errorf("--log-format %q: must be text or json", format)
	}
}
