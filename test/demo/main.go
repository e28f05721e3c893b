// Command demo demonstrates oooi with real components. It exits with 0 only if every answer is correct.
//
// With -mode node it starts a management cluster with a node, and the control plane of a hosted cluster. It runs
// kubectl oooi setup there and boots a VM on the VLAN. The VM and a pod then resolve the names and connect by them.
//
// With -mode loopback, for hosts that cannot run a node, it starts an API server with HyperShift's CRDs and two
// hosted clusters, and oooi's daemons as processes. It queries CoreDNS with dig as a VM on each VLAN and as a pod,
// connects through Envoy with curl, and requests an address from coredhcp on a bridge.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/term"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/densityops/oooi/test/lab"
)

// options are the flags and properties of the environment.
type options struct {
	mode mode

	coredns, xdsd, coredhcp, oooi string // paths of the binaries
	// leftOut is the reason why proxy and DHCP are skipped; nil if they are not.
	leftOut error
	// stay means to keep everything running until ctx is done or the user leaves the shell.
	stay bool
}

// A mode is where oooi's daemons run.
type mode string

const (
	onNode     mode = "node"     // in pods
	onLoopback mode = "loopback" // as processes
	auto       mode = "auto"     // onNode if the host meets the requirements, else onLoopback
)

func main() {
	runtime.LockOSThread() // the kernel kills children when the thread that started them ends (Pdeathsig)
	terminal := term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))
	o := options{mode: auto, stay: terminal}
	flag.Func("mode", "where the daemons run: node (in pods), loopback (as processes) or auto (default: a node if possible)", func(text string) error {
		if o.mode = mode(text); !slices.Contains([]mode{onNode, onLoopback, auto}, o.mode) {
			return errors.New("must be node, loopback or auto")
		}
		return nil
	})
	flag.StringVar(&o.coredns, "coredns", "bin/coredns", "path to the coredns binary (make build)")
	flag.StringVar(&o.xdsd, "xdsd", "bin/xdsd", "path to the xdsd binary (make build)")
	flag.StringVar(&o.coredhcp, "coredhcp", "bin/coredhcp", "path to the coredhcp binary (make build)")
	flag.StringVar(&o.oooi, "kubectl-oooi", "bin/kubectl-oooi", "path to the kubectl-oooi binary (make build)")
	flag.Parse()
	ctrllog.SetLogger(logr.Discard()) // the lab's client would warn about a missing logger
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// Writing to a closed output is an error then, and does not end the demo before it has cleaned up. SIGPIPE itself is
	// no reason to end: a connection that its peer has closed also raises it.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	err := start(ctx, o, os.Stdout)
	interrupted := ctx.Err() != nil
	stop()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && !isolated(): // the demo in the namespace has printed the error
		os.Exit(exit.ExitCode())
	case interrupted && err != nil:
		fmt.Fprintln(os.Stderr, "\ndemo: interrupted; all processes have been stopped")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// isolatedEnv is set in the environment of a demo that runs in a separate network namespace, to the namespace's creator. There,
// pods and load balancers can have addresses that are not loopback addresses, which API servers reject, and no traffic leaves
// the host.
const (
	isolatedEnv                  = "OOOI_DEMO_ISOLATED"
	createdByRoot, createdByUser = "root", "user"
)

func isolated() bool { return os.Getenv(isolatedEnv) != "" }

// networks are the networks whose addresses are all local in the demo's network namespace, like 127.0.0.0/8. Pods,
// and servers that simulate pods, use addresses of these, and MetalLB's pool is one.
var networks = map[mode][]string{onNode: {"192.0.2.0/24"}, onLoopback: {"198.51.100.0/24", "192.168.50.200/29"}}

// start runs the demo in a new network namespace. If it cannot create one, it runs on loopback, without proxy and DHCP.
func start(ctx context.Context, o options, out io.Writer) error {
	play := func() error {
		if o.mode == onNode {
			return perform(ctx, out, o, playOnNode)
		}
		return perform(ctx, out, o, playOnLoopback)
	}
	if isolated() {
		if err := lab.SetUpNetwork(networks[o.mode]); err != nil {
			return err
		}
		return play()
	}
	if err := o.mode.choose(); err != nil {
		return err
	}
	if err := checkTools(o); err != nil {
		return err
	}
	creator, err := namespaceCreator(ctx)
	switch {
	case err == nil:
		return isolate(ctx, o, creator)
	case o.mode == onNode:
		return fmt.Errorf("creating a network namespace: %w", err)
	default:
		o.leftOut = err
		return play()
	}
}

// demoCommands are the commands that the demo needs in node mode, in addition to a node's commands.
var demoCommands = []string{"bash", "curl", "dig", "dhclient", "ldd", "sleep", "unshare"}

// choose replaces auto by the mode that the host can run. In CI as root, where the node must be tested, auto is an error if
// requirements are missing.
func (m *mode) choose() error {
	const remedy = "install commands and plugins with 'sudo make demo-deps'"
	missing := lab.NodeMissing(demoCommands...)
	switch {
	case *m == onLoopback:
	case len(missing) == 0:
		*m = onNode
	case *m == onNode || os.Getenv("CI") != "" && os.Geteuid() == 0:
		return fmt.Errorf("cannot run a node; missing: %s; %s", strings.Join(missing, ", "), remedy)
	default:
		progress("cannot run a node, so the daemons run as processes on loopback; missing: %s; %s", strings.Join(missing, ", "), remedy)
		*m = onLoopback
	}
	return nil
}

// checkTools returns an error for a missing program, with the command that installs it.
func checkTools(o options) error {
	for tool, remedy := range map[string]string{
		"dig":      "sudo make deps (Debian's bind9-dnsutils)",
		"curl":     "sudo make deps",
		"ip":       "sudo make deps (Debian's iproute2)",
		o.coredns:  "make build",
		o.xdsd:     "make build",
		o.coredhcp: "make build",
		o.oooi:     "make build",
	} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing; install it with: %s", tool, remedy)
		}
	}
	if _, err := lab.FindDHClient(); err != nil {
		return errors.New("dhclient is missing; install it with: sudo make deps (Debian's isc-dhcp-client)")
	}
	return nil
}

// attributes returns the attributes of a process in a new network namespace. The process gets SIGTERM when this one exits.
func attributes(creator string) *syscall.SysProcAttr {
	a := lab.NetworkNamespace(creator == createdByUser)
	a.Pdeathsig = syscall.SIGTERM
	return a
}

// namespaceCreator returns who can create a usable network namespace, or an error if neither can. It creates a bridge in one,
// because some systems let users create a namespace, but configure nothing in it.
func namespaceCreator(ctx context.Context) (creator string, err error) {
	for _, creator := range []string{createdByRoot, createdByUser} {
		probe := exec.CommandContext(ctx, "ip", "link", "add", "probe", "type", "bridge")
		probe.SysProcAttr = attributes(creator)
		out, failure := probe.CombinedOutput()
		if failure == nil {
			return creator, nil
		}
		err = fmt.Errorf("%w %s", failure, strings.TrimSpace(string(out)))
	}
	return "", err
}

// isolate runs the demo again in a new network namespace, and waits until it exits.
func isolate(ctx context.Context, o options, creator string) error {
	if err := prepare(ctx, o); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append(os.Args[1:], "-mode="+string(o.mode))...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // Ctrl-C at a terminal has interrupted it already
	cmd.WaitDelay = time.Minute
	cmd.Env = append(os.Environ(), isolatedEnv+"="+creator, lab.InsideNetwork())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = attributes(creator)
	err := cmd.Run()
	if cmd.ProcessState != nil && cmd.ProcessState.Success() {
		return nil // even if it was interrupted
	}
	return err
}

// prepare downloads and builds everything that needs the network, which the namespace does not have.
func prepare(ctx context.Context, o options) error {
	crds := []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.Oooi, lab.MetalLB, lab.KubeVirt, lab.KubeVirtMachines}
	_, crdsErr := lab.CRDs(ctx, crds...)
	_, assetsErr := lab.Build(ctx, nil)
	_, metalLBErr := lab.BuildMetalLB(ctx, nil)
	envoy, envoyErr := lab.InstallEnvoy(ctx, nil)
	err := errors.Join(crdsErr, assetsErr, metalLBErr, envoyErr)
	if err != nil || o.mode != onNode {
		return err
	}
	if err := lab.PrepareNode(ctx, nil); err != nil {
		return err
	}
	envoyProxy, envoyErr := lab.ProgramsImage(ctx, envoyImage, envoy)
	clients, clientsErr := lab.ProgramsImage(ctx, clientImage, "sleep", "curl", "dig")
	if err := errors.Join(envoyErr, clientsErr); err != nil {
		return err
	}
	oooi := lab.OooiImage(oooiImage, map[string]string{"coredns": o.coredns, "coredhcp": o.coredhcp, "xdsd": o.xdsd})
	for _, image := range []lab.Image{oooi, envoyProxy, clients} {
		if err := image.Build(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// progress prints a line about the progress to standard error; the transcript goes to standard output.
func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
