// Command coredhcp is CoreDHCP with oooi's plugins, the stock plugins that are useful for VMs, and an IPv4 server
// that runs without capabilities.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/densityops/oooi/internal/daemon"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "coredhcp:", err)
		os.Exit(1)
	}
}

// flags contains the flags of the command.
type flags struct {
	config, http        string
	check               bool
	limit               int
	drain               time.Duration
	logFormat, logLevel string
}

func newCommand() *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:   "coredhcp",
		Short: "Serve DHCP to VMs",
		Long: "coredhcp serves DHCP with CoreDHCP's plugins, in the order of its configuration file.\n\n" +
			"Each flag can also be set by an environment variable: --log-level as COREDHCP_LOG_LEVEL.",
		Example: "  coredhcp --config /etc/coredhcp/config.yml --check\n" +
			"  coredhcp --config /etc/coredhcp/config.yml --http 10.128.0.17:9903",
		Version:       version(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := daemon.FromEnvironment(cmd.Flags(), "COREDHCP", os.LookupEnv); err != nil {
				return err
			}
			log, err := newLogger(cmd.ErrOrStderr(), f.logFormat, f.logLevel)
			if err != nil {
				return err
			}
			if f.limit < 1 || f.drain < 0 {
				return errors.New("--max-in-flight must be at least 1, and --drain must not be negative")
			}
			if f.check {
				return check(f.config, cmd.OutOrStdout())
			}
			return f.run(cmd.Context(), log)
		},
	}
	cmd.AddCommand(newImport())
	cmd.CompletionOptions.DisableDefaultCmd = true
	flagSet := cmd.Flags()
	flagSet.StringVar(&f.config, "config", "/etc/coredhcp/config.yml", "configuration file, in CoreDHCP's format")
	flagSet.BoolVar(&f.check, "check", false, "check the configuration file and exit, without starting the server")
	flagSet.StringVar(&f.http, "http", "127.0.0.1:9903",
		"listen address of /healthz, /readyz, /metrics, /problems and /state; in a pod on a VLAN, its address in the pod network")
	flagSet.IntVar(&f.limit, "max-in-flight", 1024, "maximum number of packets that the plugins process at a time; further packets are dropped, and clients retry")
	flagSet.DurationVar(&f.drain, "drain", 5*time.Second, "maximum time to reply to received packets at shutdown")
	flagSet.StringVar(&f.logFormat, "log-format", "text", "format of log messages: text or json")
	flagSet.StringVar(&f.logLevel, "log-level", "info", "minimum level of log messages: debug, info, warn or error")
	return cmd
}

// version returns the module version, revision and Go version of the build.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	words := []string{info.Main.Version}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" || s.Key == "vcs.time" {
			words = append(words, s.Value)
		}
	}
	return strings.Join(append(words, info.GoVersion), " ")
}
