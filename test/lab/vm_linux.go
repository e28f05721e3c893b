package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// VMTimeout bounds each wait for a VM. Without KVM its processors are emulated: booting takes a minute on an
// idle host, and many minutes on a busy one.
const VMTimeout = 15 * time.Minute

// VMConfig is the configuration of a VM to start.
type VMConfig struct {
	Image VMImage
	// Memory is in MiB.
	Memory int
	// NICs are its network interfaces in order: eth0, eth1 and so on.
	NICs []NIC
	// Services are systemd units to start in addition to the guest agent.
	Services []string
	// Folder, if not empty, is a local directory whose files are copied to a disk that the VM mounts read-write
	// at /folder.
	Folder string
}

// NIC is a network interface of a VM, attached to a bridge of the test's network. The bridge is created if it
// does not exist.
type NIC struct{ Bridge, MAC string }

// A VM is a QEMU virtual machine with Debian, systemd and cgroups v2. It is killed when the test ends.
type VM struct {
	config   VMConfig
	dir      string
	launcher *launcher
	disks    []string

	starts int // number of QEMU processes started for it so far
	qemu   *process
}

// StartVM starts a VM, and returns when its guest agent responds. If the test fails, the end of the VM's
// console output is printed. It must be called in a Network.
func StartVM(tb testing.TB, config VMConfig) *VM {
	tb.Helper()
	vm := &VM{config: config, dir: TempDir(tb), launcher: newLauncher()}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("end of the VM's console:\n%s", vm.console())
		}
		Report(tb, vm.qemu.kill())
		vm.launcher.close()
	})
	ctx, cancel := context.WithTimeout(tb.Context(), VMTimeout)
	defer cancel()
	if err := vm.start(ctx); err != nil {
		tb.Fatalf("starting a VM: %v", err)
	}
	return vm
}

func (vm *VM) start(ctx context.Context) (err error) {
	root := filepath.Join(vm.dir, "root.qcow2") // copy-on-write, so that the image does not change
	if err := runTool(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", vm.config.Image.disk, root); err != nil {
		return err
	}
	vm.disks = []string{"file=" + root + ",format=qcow2"}
	if vm.config.Folder != "" {
		folder := filepath.Join(vm.dir, "folder.img")
		if err := makeDisk(ctx, folder, vm.config.Folder, 8<<30); err != nil {
			return err
		}
		vm.disks = append(vm.disks, "file="+folder+",format=raw")
	}
	if vm.qemu, err = vm.startQEMU(); err != nil {
		return err
	}
	if err := vm.awaitAgent(ctx); err != nil {
		return err
	}
	if vm.config.Folder != "" {
		_, err = vm.run(ctx, "mkdir -p /folder && mount /dev/vdb /folder")
	}
	return err
}

// acceleration returns the arguments of -accel and -cpu. It selects KVM only if the processor supports
// virtualization, because /dev/kvm may exist without that. Emulated processors are Westmere, for which the
// guest's kernel loads few drivers and uses no wide vector instructions.
func acceleration() (accelerator, processor string) {
	processors, err := os.ReadFile("/proc/cpuinfo")
	if err == nil && (strings.Contains(string(processors), " vmx ") || strings.Contains(string(processors), " svm ")) {
		if kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err == nil && kvm.Close() == nil {
			return "kvm", "max"
		}
	}
	return "tcg,thread=multi", "Westmere"
}

// startQEMU starts a QEMU process for the VM, with new tap interfaces and files.
func (vm *VM) startQEMU(more ...string) (*process, error) {
	vm.starts++
	accelerator, processor := acceleration()
	kernel := []string{"console=ttyS0", "quiet", "root=/dev/vda", "rw", "net.ifnames=0"}
	for _, service := range vm.config.Services {
		kernel = append(kernel, "systemd.wants="+service)
	}
	args := []string{
		"-accel", accelerator, "-cpu", processor, "-smp", "2", "-m", strconv.Itoa(vm.config.Memory),
		"-display", "none", "-nodefaults", "-no-user-config",
		"-kernel", vm.config.Image.kernel, "-initrd", vm.config.Image.initrd,
		"-append", strings.Join(kernel, " "),
		"-serial", "file:" + vm.file("console"),
		"-device", "virtio-rng-pci", "-device", "virtio-serial-pci",
		"-chardev", "socket,id=agent,server=on,wait=off,path=" + vm.file("agent"),
		"-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
		"-qmp", "unix:" + vm.file("qmp") + ",server=on,wait=off",
	}
	for _, disk := range vm.disks {
		// With locks QEMU would refuse a disk that the source of a migration has open.
		args = append(args, "-drive", "if=virtio,file.locking=off,"+disk)
	}
	for i, nic := range vm.config.NICs {
		tap := "tap-" + strings.ToLower(rand.Text()[:8])
		_, err := makeBridge(nic.Bridge)
		err = errors.Join(err, ip("tuntap", "add", tap, "mode", "tap"), ip("link", "set", tap, "master", nic.Bridge, "up"))
		if err != nil {
			return nil, err
		}
		id := "nic" + strconv.Itoa(i)
		args = append(args, "-netdev", "tap,script=no,downscript=no,id="+id+",ifname="+tap, "-device", "virtio-net-pci,netdev="+id+",mac="+nic.MAC)
	}
	return vm.launcher.start(exec.Command("qemu-system-x86_64", append(args, more...)...), vm.file("log")) //nolint:noctx // the process is killed when the test ends
}

// Reboot reboots the VM, and returns when its guest agent responds again.
func (vm *VM) Reboot(tb testing.TB) {
	tb.Helper()
	const bootID = "cat /proc/sys/kernel/random/boot_id"
	previous := vm.Run(tb, bootID)
	vm.Run(tb, "systemd-run --no-block --on-active=1 systemctl reboot")
	vm.Await(tb, bootID, func(now string) bool { return now != previous })
}

// Migrate live-migrates the VM to another QEMU process whose interfaces are nics.
func (vm *VM) Migrate(tb testing.TB, nics ...NIC) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), VMTimeout)
	defer cancel()
	if err := vm.migrate(ctx, nics); err != nil {
		tb.Fatalf("migrating a VM: %v", err)
	}
}

func (vm *VM) migrate(ctx context.Context, nics []NIC) error {
	source, err := vm.awaitQEMU(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // everything has been read
	previous := vm.qemu
	vm.config.NICs = nics
	channel := "unix:" + filepath.Join(vm.dir, "migration")
	if vm.qemu, err = vm.startQEMU("-incoming", channel); err != nil {
		return errors.Join(err, previous.kill())
	}
	destination, err := vm.awaitQEMU(ctx) // the process has started to listen on the channel
	if err == nil {
		err = errors.Join(source.call("migrate", map[string]any{"uri": channel}, nil), destination.Close())
	}
	for status := ""; err == nil && status != "completed"; {
		var migration struct {
			Status string `json:"status"`
			Desc   string `json:"error-desc"`
		}
		switch err = source.call("query-migrate", nil, &migration); {
		case err != nil:
		case migration.Status == "failed":
			err = errors.New(migration.Desc)
		default:
			status = migration.Status
			time.Sleep(100 * time.Millisecond)
		}
	}
	return errors.Join(err, previous.kill())
}

// awaitQEMU connects to the monitor of the current QEMU process, and retries while the process starts.
func (vm *VM) awaitQEMU(ctx context.Context) (*monitor, error) {
	for {
		m, err := openQEMU(ctx, vm.file("qmp"))
		switch {
		case err == nil:
			return m, nil
		case !vm.qemu.running():
			return nil, vm.qemu.failure()
		case ctx.Err() != nil:
			return nil, errors.Join(ctx.Err(), err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// file returns the path of a file of the current QEMU process.
func (vm *VM) file(name string) string {
	return filepath.Join(vm.dir, fmt.Sprintf("%s-%d", name, vm.starts))
}

func (vm *VM) console() string {
	data, err := os.ReadFile(vm.file("console"))
	if err != nil {
		return err.Error()
	}
	return lastLines(string(data), 30)
}

// awaitAgent waits until the guest agent responds.
func (vm *VM) awaitAgent(ctx context.Context) error {
	for {
		try, cancel := context.WithTimeout(ctx, 30*time.Second)
		agent, err := openAgent(try, vm.file("agent"))
		cancel()
		switch {
		case err == nil:
			return agent.Close()
		case !vm.qemu.running():
			return vm.qemu.failure()
		case ctx.Err() != nil:
			return errors.Join(ctx.Err(), err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Run runs a shell command in the VM and returns its standard output. The test fails if the command does.
func (vm *VM) Run(tb testing.TB, command string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), VMTimeout)
	defer cancel()
	out, err := vm.run(ctx, command)
	if err != nil {
		tb.Fatalf("in the VM: %v", err)
	}
	return out
}

// Await runs a shell command in the VM every 2 seconds until it succeeds and satisfies returns true for its
// output, and returns that output. The test fails after VMTimeout.
func (vm *VM) Await(tb testing.TB, command string, satisfies func(string) bool) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), VMTimeout)
	defer cancel()
	for {
		out, err := vm.run(ctx, command)
		if err == nil && satisfies(out) {
			return out
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("in the VM: %s: output %q, error %v", command, out, err)
		case <-time.After(2 * time.Second):
		}
	}
}

func (vm *VM) run(ctx context.Context, command string) (out string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", command, err)
		}
	}()
	agent, err := openAgent(ctx, vm.file("agent"))
	if err != nil {
		return "", err
	}
	defer func() { _ = agent.Close() }() // everything has been read
	var started struct {
		PID int `json:"pid"`
	}
	arguments := map[string]any{"path": "/bin/sh", "arg": []string{"-c", command}, "capture-output": true}
	if err := agent.call("guest-exec", arguments, &started); err != nil {
		return "", err
	}
	for {
		var status struct {
			Exited   bool   `json:"exited"`
			ExitCode int    `json:"exitcode"`
			Signal   int    `json:"signal"`
			Out      []byte `json:"out-data"`
			Err      []byte `json:"err-data"`
		}
		err := agent.call("guest-exec-status", map[string]any{"pid": started.PID}, &status)
		switch {
		case err != nil:
			return "", err
		case status.ExitCode != 0 || status.Signal != 0:
			return string(status.Out), fmt.Errorf("exit code %d, signal %d: %s%s", status.ExitCode, status.Signal, status.Out, status.Err)
		case status.Exited:
			return string(status.Out), nil
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}
