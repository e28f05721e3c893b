package lab

import (
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

// A box isolates a node from the host. The node's processes, mounts and interfaces are in namespaces that end
// with their first process, which ends with this process. A sweeper process removes what the kernel does not:
// cgroups and a folder.
type box struct {
	dir      string // has the logs; lib and log in it are the node's /var/lib and /var/log
	cgroup   string // name of the cgroup in every hierarchy
	launcher *launcher
	init     *process
	sweeper  *process
	alive    *os.File // write end of a pipe, which is closed when this process ends for any reason
}

// sweeperScript waits for the end of its input, and then removes folder $1 and the cgroups $2, whose
// processes have ended or are about to.
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

// initScript keeps the namespaces alive and reaps orphaned processes. Its sleep is killed like all other
// processes by powerOffScript.
const initScript = `while :; do sleep infinity & wait; done`

// powerOffScript kills every process but the first one and itself, and removes volatile state: mounts, which
// keep the Pods' network namespaces alive, and the Pods' cgroups in $1.
const powerOffScript = `
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

// sysctls are the kernel parameters that a kubelet requires. They are files that are mounted over those in
// /proc/sys, so that the host's values do not change.
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
		return fmt.Errorf("creating its directory: %w", err)
	}
	if err := b.startSweeper(); err != nil { // before the cgroup is created
		return err
	}
	if err := makeCgroup(b.cgroup); err != nil {
		return err
	}
	init := exec.Command("sh", "-c", initScript) //nolint:noctx // the process outlives contexts
	init.Args[0] = "init"
	init.SysProcAttr = dieWithParent()
	init.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC
	if b.init, err = b.launcher.start(init, b.path("init.log")); err != nil {
		return err
	}
	return b.mount(ctx)
}

func (b *box) startSweeper() error {
	input, alive, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("starting the sweeper: %w", err)
	}
	defer func() { _ = input.Close() }() // the sweeper has inherited it
	b.alive = alive
	cmd := exec.Command("sh", "-c", sweeperScript, "sweeper", b.dir, b.cgroup) //nolint:noctx // the sweeper outlives this process
	cmd.Args[0] = "sweeper"
	cmd.Dir = "/"
	cmd.Stdin = input
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // signals to this process group must not end the sweeper
	b.sweeper, err = b.launcher.start(cmd, b.path("sweeper.log"))
	return err
}

// mount mounts the box's directories and files over the host's that the node's components would
// change.
func (b *box) mount(ctx context.Context) error {
	mounts := [][]string{
		{"--make-rprivate", "/"},
		{"-t", "proc", "proc", "/proc"},
		{"-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"},
	}
	for name, over := range map[string]string{"lib": "/var/lib", "log": "/var/log"} {
		if err := os.Mkdir(b.path(name), 0o755); err != nil {
			return fmt.Errorf("creating its directory: %w", err)
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
	return b.runAll(ctx, "mount", mounts...)
}

func (b *box) path(elem ...string) string {
	return filepath.Join(append([]string{b.dir}, elem...)...)
}

// pid returns the process ID of the first process, in the PID namespace of this process.
func (b *box) pid() string { return strconv.Itoa(b.init.cmd.Process.Pid) }

// entering returns a command line that runs args in the namespaces.
func (b *box) entering(args []string) []string {
	return slices.Concat([]string{"nsenter", "--target", b.pid(), "--mount", "--pid", "--net", "--ipc", "--"}, args)
}

// command returns a command that runs args in the namespaces.
func (b *box) command(ctx context.Context, args ...string) *exec.Cmd {
	line := b.entering(args)
	return exec.CommandContext(ctx, line[0], line[1:]...)
}

// run runs a command in the namespaces and waits for it.
func (b *box) run(ctx context.Context, args ...string) error {
	return runCommand(b.command(ctx, args...))
}

// runAll runs a command in the namespaces with each of the lists of arguments, in order.
func (b *box) runAll(ctx context.Context, command string, lists ...[]string) error {
	for _, args := range lists {
		if err := b.run(ctx, append([]string{command}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

// start starts a command in the namespaces, with its output in the file name.log.
func (b *box) start(name string, args ...string) (*process, error) {
	line := b.entering(args)
	cmd := exec.Command(line[0], line[1:]...) //nolint:noctx // the process outlives contexts
	cmd.Args[0] = name
	return b.launcher.start(cmd, b.path(name+".log"))
}

// stop ends all processes of the box and removes it. It also handles a box that failed to start.
func (b *box) stop() error {
	defer b.launcher.close()
	err := b.init.kill() // returns when all processes in its PID namespace have ended
	if b.sweeper == nil {
		return errors.Join(err, os.RemoveAll(b.dir))
	}
	if err := b.alive.Close(); err != nil {
		return fmt.Errorf("notifying the sweeper: %w", err)
	}
	select {
	case <-b.sweeper.ended:
		if b.sweeper.err != nil {
			err = errors.Join(err, fmt.Errorf("removing %s and the cgroups %s: %w", b.dir, b.cgroup, b.sweeper.failure()))
		}
	case <-time.After(30 * time.Second):
		err = errors.Join(err, fmt.Errorf("removing %s and the cgroups %s: timed out after 30s", b.dir, b.cgroup))
	}
	return err
}
