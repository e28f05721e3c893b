package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/densityops/oooi/internal/daemon"
	"github.com/densityops/oooi/xdsd/internal/leader"
)

// daemonFlags are the flags of each daemon, and the logger that they configure.
type daemonFlags struct {
	kubeconfig, context string
	http                string
	log                 *slog.Logger
}

// add adds the flags to a command, and makes it create the logger before it runs. address is the default of --http.
func (f *daemonFlags) add(cmd *cobra.Command, address, usage string) {
	var format, level string
	flags := cmd.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default: the pod's ServiceAccount)")
	flags.StringVar(&f.context, "context", "", "context of the kubeconfig (default: its current context)")
	flags.StringVar(&f.http, "http", address, usage)
	flags.StringVar(&format, "log-format", "text", "format of log messages: text or json")
	flags.StringVar(&level, "log-level", "info", "minimum level of log messages: debug, info, warn or error")
	cmd.PreRunE = func(*cobra.Command, []string) (err error) {
		f.log, err = daemon.NewLogger(os.Stderr, format, level)
		return err
	}
}

// run serves a handler on --http and runs functions, until ctx is done or one of them fails.
func (f *daemonFlags) run(ctx context.Context, handler http.Handler, functions ...func(context.Context) error) error {
	l, err := daemon.Listen(ctx, f.http)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return daemon.ServeHTTP(ctx, l, handler, f.log) })
	for _, function := range functions {
		group.Go(func() error { return function(ctx) })
	}
	return group.Wait()
}

// untilDone adapts a function that cannot fail to run's signature.
func untilDone(function func(context.Context)) func(context.Context) error {
	return func(ctx context.Context) error { function(ctx); return nil }
}

// leaderFlags are the flags of daemons whose replicas elect a leader.
type leaderFlags struct {
	namespace, identity string
	leaseDuration       time.Duration
}

func (f *leaderFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.namespace, "namespace", ownNamespace(), "namespace of the leader election Lease")
	flags.StringVar(&f.identity, "identity", "",
		"unique holder identity in the Lease; with the pod's name and UID a restarted leader continues immediately (default: random)")
	flags.DurationVar(&f.leaseDuration, "lease-duration", 15*time.Second,
		"duration of the Lease: another replica leads when the leader has not renewed it for this long")
}

func (f *leaderFlags) validate() error {
	if err := leader.CheckIdentity(f.identity); err != nil {
		return fmt.Errorf("--identity: %w", err)
	}
	if f.leaseDuration < time.Second {
		return fmt.Errorf("--lease-duration %s: must be a second or more", f.leaseDuration)
	}
	return nil
}

// ownNamespace returns the pod's namespace, or the namespace of the cluster-wide daemons if the process does not run
// in a pod.
func ownNamespace() string {
	data, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return "oooi-system"
	}
	return strings.TrimSpace(string(data))
}

// setControllerLoggers sets the loggers of controller-runtime, which would discard its log messages, and of klog, which would write
// its own format to stderr.
func setControllerLoggers(log *slog.Logger) {
	klog.SetSlogLogger(log)
	ctrllog.SetLogger(logr.FromSlogHandler(log.Handler()))
}

// listVar defines a flag with a comma-separated list, and parses each element. Values of several flags are joined.
func listVar[T any](flags *pflag.FlagSet, to *[]T, name, usage string, parse func(string) (T, error)) {
	flags.Func(name, usage, func(list string) error {
		if list == "" {
			return nil
		}
		for text := range strings.SplitSeq(list, ",") {
			value, err := parse(text)
			if err != nil {
				return err
			}
			*to = append(*to, value)
		}
		return nil
	})
}

// keysVar defines a flag whose value is a list of objects.
func keysVar(flags *pflag.FlagSet, to *[]string, name, usage string) {
	listVar(flags, to, name, usage, func(text string) (string, error) {
		key, err := parseKey(text)
		return key.String(), err
	})
}

// keyVar defines a required flag whose value is an object.
func keyVar(cmd *cobra.Command, to *types.NamespacedName, name, usage string) {
	cmd.Flags().Func(name, usage, func(text string) (err error) {
		*to, err = parseKey(text)
		return err
	})
	_ = cmd.MarkFlagRequired(name) // the flag exists
}

// parseKey parses the name of an object.
func parseKey(text string) (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return types.NamespacedName{}, fmt.Errorf("%q must be NAMESPACE/NAME", text)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

func parseAddress(text string) (netip.Addr, error) {
	address, err := netip.ParseAddr(text)
	if err != nil {
		return address, fmt.Errorf("%q is not an IP address", text)
	}
	return address, nil
}

// isURL reports whether a text is an HTTP URL, for example the endpoint of another daemon.
func isURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "http" && u.Host != ""
}

// portsVar defines a flag with a list of PORT=LIMIT elements, which it adds to a map. other handles an element
// without a port; nil rejects it.
func portsVar(flags *pflag.FlagSet, to map[uint16]uint32, name, usage string, other func(text string) error) {
	var list []struct{}
	listVar(flags, &list, name, usage, func(text string) (none struct{}, err error) {
		left, right, found := strings.Cut(text, "=")
		if !found && other != nil {
			return none, other(text)
		}
		port, portErr := strconv.ParseUint(left, 10, 16)
		limit, err := strconv.ParseUint(right, 10, 32)
		if portErr != nil || err != nil || port == 0 {
			return none, errors.New("must be PORT=NUMBER")
		}
		to[uint16(port)] = uint32(limit)
		return none, nil
	})
}
