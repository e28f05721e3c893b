package lab

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A box keeps a node apart from the machine that it runs on. Its processes, mounts and
// interfaces are in namespaces, which end with the first process, and that one ends with us.
// What the kernel would leave behind then, cgroups and a folder, a sweeper removes.
type box struct {
	dir      string // its folder, with the logs; lib and log in it are the node's own /var/lib and /var/log
	cgroup   string // its name in every hierarchy
	launcher *launcher
	init     *process
	sweeper  *process
	alive    *os.File // a pipe, which is closed when we end, however we do
}

// sweeperScript removes folder $1 and the cgroups $2 when its input ends. The processes in
// them are gone, or are about to go.
const sweeperScript = `
cat
for try in $(seq 100); do
	busy=
	for cgroup in /sys/fs/cgroup/"$2" /sys/fs/cgroup/*/"$2"; do
		test ! -d "$cgroup" || find "$cgroup" -depth -type d -exec rmdir {} + || busy=1
	done
	test -z "$busy" && rm -rf "$1" && exit
	sleep 0.1
done 2>/dev/null
exit 1
`

// initScript keeps the namespaces, and buries processes that lost their parents. Its sleep is
// killed with all others when the power is cut.
const initScript = `while :; do sleep infinity & wait; done`

// cutScript kills every process but the first and itself, and forgets what is in memory: mounts,
// by which the Pods' networks go, too, and the Pods' cgroups in $1.
const cutScript = `
kill -KILL -1
umount --lazy /run
mount -t tmpfs -o mode=755 tmpfs /run
grep -o ' /var/lib/kubelet/[^ ]*' /proc/mounts | xargs -r -n1 umount --lazy
for try in $(seq 100); do
	busy=
	for pods in /sys/fs/cgroup/"$1"/kubepods /sys/fs/cgroup/*/"$1"/kubepods; do
		test ! -d "$pods" || find "$pods" -depth -type d -exec rmdir {} + 2>/dev/null || busy=1
	done
	test -z "$busy" && exit
	sleep 0.1
done
exit 1
`

// sysctls are what a kubelet wants the machine to be like. The machine stays what it is: the
// node sees files in their place.
var sysctls = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0",
	"kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

func newBox(ctx context.Context, name string) (*box, error) {
	b := &box{launcher: newLauncher(), cgroup: "oooi-" + name + "-" + strings.ToLower(rand.Text()[:8])}
	if err := b.up(ctx); err != nil {
		return nil, errors.Join(err, b.stop())
	}
	return b, nil
}

func (b *box) up(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", b.cgroup+"-"); err != nil {
		return fmt.Errorf("making its folder: %w", err)
	}
	if err := b.startSweeper(); err != nil { // before there is more to sweep
		return err
	}
	if err := makeCgroup(b.cgroup); err != nil {
		return err
	}
	init := exec.Command("sh", "-c", initScript) //nolint:noctx // it outlives contexts
	init.Args[0] = "init"
	init.SysProcAttr = dieWithParent()
	init.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC
	if b.init, err = b.launcher.start(init, b.path("init.log")); err != nil {
		return err
	}
	return b.mount(ctx)
}

func (b *box) startSweeper() error {
	asleep, alive, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("starting the sweeper: %w", err)
	}
	defer func() { _ = asleep.Close() }() // the sweeper has its own by then
	b.alive = alive
	cmd := exec.Command("sh", "-c", sweeperScript, "sweeper", b.dir, b.cgroup) //nolint:noctx // it outlives us
	cmd.Args[0] = "sweeper"
	cmd.Dir = "/"
	cmd.Stdin = asleep
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what ends us is not to end it
	b.sweeper, err = b.launcher.start(cmd, b.path("sweeper.log"))
	return err
}

// mount has the node see folders of its own where its components would write to the machine's.
func (b *box) mount(ctx context.Context) error {
	mounts := [][]string{
		{"--make-rprivate", "/"},
		{"-t", "proc", "proc", "/proc"},
		{"-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"},
	}
	for name, over := range map[string]string{"lib": "/var/lib", "log": "/var/log"} {
		if err := os.Mkdir(b.path(name), 0o755); err != nil {
			return fmt.Errorf("making its folder: %w", err)
		}
		mounts = append(mounts, []string{"--bind", b.path(name), over})
	}
	for name, value := range sysctls {
		file := b.path(strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o600); err != nil {
			return err
		}
		mounts = append(mounts, []string{"--bind", file, "/proc/sys/" + name})
	}
	for _, args := range mounts {
		if err := b.run(ctx, append([]string{"mount"}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

func (b *box) path(elem ...string) string {
	return filepath.Join(append([]string{b.dir}, elem...)...)
}

// pid is that of the first process, as we see it.
func (b *box) pid() string { return strconv.Itoa(b.init.cmd.Process.Pid) }

// entering is the command line that runs another one in the namespaces.
func (b *box) entering(args []string) []string {
	return slices.Concat([]string{"nsenter", "--target", b.pid(), "--mount", "--pid", "--net", "--ipc", "--"}, args)
}

// command makes a command in the namespaces.
func (b *box) command(ctx context.Context, args ...string) *exec.Cmd {
	line := b.entering(args)
	return exec.CommandContext(ctx, line[0], line[1:]...)
}

// run runs a command in the namespaces to its end.
func (b *box) run(ctx context.Context, args ...string) error {
	if out, err := b.command(ctx, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%q on a node: %w: %s", args, err, bytes.TrimSpace(out))
	}
	return nil
}

// start starts a command in the namespaces, with its output in a file named after it.
func (b *box) start(name string, args ...string) (*process, error) {
	line := b.entering(args)
	cmd := exec.Command(line[0], line[1:]...) //nolint:noctx // it outlives contexts
	cmd.Args[0] = name
	return b.launcher.start(cmd, b.path(name+".log"))
}

// stop ends everything in the box, and removes it. A box that came up halfway is fine.
func (b *box) stop() error {
	defer b.launcher.close()
	err := b.init.kill() // it waits until all processes in its namespace are gone
	if b.sweeper == nil {
		return errors.Join(err, os.RemoveAll(b.dir))
	}
	if err := b.alive.Close(); err != nil {
		return fmt.Errorf("waking the sweeper: %w", err)
	}
	select {
	case <-b.sweeper.ended:
		if b.sweeper.err != nil {
			err = errors.Join(err, fmt.Errorf("removing %s and the cgroups %s: %w", b.dir, b.cgroup, b.sweeper.failure()))
		}
	case <-time.After(30 * time.Second):
		err = errors.Join(err, fmt.Errorf("removing %s and the cgroups %s: not done after 30s", b.dir, b.cgroup))
	}
	return err
}
