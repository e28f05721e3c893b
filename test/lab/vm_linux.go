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

// VMPatience bounds each wait for a virtual machine. Without KVM its processors are emulated: it boots in a minute on an
// idle machine, and in many where others work.
const VMPatience = 15 * time.Minute

// VMConfig says what virtual machine to start.
type VMConfig struct {
	Image VMImage
	// Memory is in MiB.
	Memory int
	// NICs are its interfaces, in this order.
	NICs []NIC
	// Services are units of systemd that it starts, beside the guest agent.
	Services []string
	// Folder, where it is not empty, is one of which the machine gets the files: at /folder, to read and write, on a disk of
	// its own.
	Folder string
}

// NIC is an interface of a virtual machine: a port of a bridge of the test's network, which is made if it is not there.
type NIC struct{ Bridge, MAC string }

// A VM is a virtual machine of Debian with systemd and cgroups v2, in QEMU. It ends with the test.
type VM struct {
	config   VMConfig
	dir      string
	launcher *launcher
	disks    []string

	starts int // how many QEMUs it has had
	qemu   *process
}

// StartVM starts a virtual machine, and returns when its guest agent answers. If the test fails, the end of what it has
// written to its console is shown. It is for tests in a Network.
func StartVM(tb testing.TB, config VMConfig) *VM {
	tb.Helper()
	vm := &VM{config: config, dir: TempDir(tb), launcher: newLauncher()}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the end of the virtual machine's console:\n%s", vm.console())
		}
		if err := vm.qemu.kill(); err != nil {
			tb.Error(err)
		}
		vm.launcher.close()
	})
	ctx, cancel := context.WithTimeout(tb.Context(), VMPatience)
	defer cancel()
	if err := vm.start(ctx); err != nil {
		tb.Fatalf("starting a virtual machine: %v", err)
	}
	return vm
}

func (vm *VM) start(ctx context.Context) (err error) {
	root := filepath.Join(vm.dir, "root.qcow2") // what it changes; the image stays
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

// acceleration returns the arguments of -accel and -cpu: KVM where the processor has what it needs; the kernel may have its
// device without that. Of an emulated processor the kernel has few drivers to load and no wide vectors to use.
func acceleration() (accelerator, processor string) {
	processors, err := os.ReadFile("/proc/cpuinfo")
	if err == nil && (strings.Contains(string(processors), " vmx ") || strings.Contains(string(processors), " svm ")) {
		if kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err == nil && kvm.Close() == nil {
			return "kvm", "max"
		}
	}
	return "tcg,thread=multi", "Westmere"
}

// startQEMU starts a QEMU with interfaces of its own.
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
		// Locks would refuse the disk to the QEMU that the machine migrates to.
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
	return vm.launcher.start(exec.Command("qemu-system-x86_64", append(args, more...)...), vm.file("log")) //nolint:noctx // it ends with the test
}

// Reboot has the machine reboot, and returns when its guest agent answers again.
func (vm *VM) Reboot(tb testing.TB) {
	tb.Helper()
	const bootID = "cat /proc/sys/kernel/random/boot_id"
	before := vm.Run(tb, bootID)
	vm.Run(tb, "systemd-run --no-block --on-active=1 systemctl reboot")
	vm.Await(tb, bootID, func(now string) bool { return now != before })
}

// Migrate moves the machine, while it runs, to another QEMU, whose interfaces are ports of these bridges.
func (vm *VM) Migrate(tb testing.TB, nics ...NIC) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), VMPatience)
	defer cancel()
	if err := vm.migrate(ctx, nics); err != nil {
		tb.Fatalf("migrating a virtual machine: %v", err)
	}
}

func (vm *VM) migrate(ctx context.Context, nics []NIC) error {
	source, err := vm.awaitQEMU(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // all was read
	before := vm.qemu
	vm.config.NICs = nics
	channel := "unix:" + filepath.Join(vm.dir, "migration")
	if vm.qemu, err = vm.startQEMU("-incoming", channel); err != nil {
		return errors.Join(err, before.kill())
	}
	destination, err := vm.awaitQEMU(ctx) // from then on it listens at the channel
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
	return errors.Join(err, before.kill())
}

// awaitQEMU connects to the present QEMU, which may just be starting.
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

// file is one of the present QEMU's.
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

// awaitAgent waits until the guest agent answers.
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

// Run runs a shell command in the machine to its end, and returns what it prints. The test fails if the command does.
func (vm *VM) Run(tb testing.TB, command string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), VMPatience)
	defer cancel()
	out, err := vm.run(ctx, command)
	if err != nil {
		tb.Fatalf("in the virtual machine: %v", err)
	}
	return out
}

// Await runs a shell command in the machine again and again until what it prints satisfies a condition, and returns that.
func (vm *VM) Await(tb testing.TB, command string, satisfies func(string) bool) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), VMPatience)
	defer cancel()
	for {
		out, err := vm.run(ctx, command)
		if err == nil && satisfies(out) {
			return out
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("in the virtual machine: %s prints %q (%v)", command, out, err)
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
	defer func() { _ = agent.Close() }() // all was read
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
