package lab

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// vmRelease is the Debian release of VMs.
const vmRelease = "bookworm"

// vmPackages are the packages of VMs: systemd and the cloud kernel; what a cluster node and the demo need;
// NetworkManager and chrony, which RHCOS has too; and the guest agent, with which tests run commands.
var vmPackages = []string{
	"systemd-sysv", "udev", "dbus", "linux-image-cloud-amd64", "initramfs-tools", "zstd", "kmod", "qemu-guest-agent",
	"containerd", "runc", "containernetworking-plugins", "nftables", "openssl", "ca-certificates", "buildah",
	"iproute2", "procps", "bind9-dnsutils", "curl", "isc-dhcp-client", "busybox-static",
	"network-manager", "chrony",
}

// vmSetup changes the root file system $1 before its initial RAM disk is built, so that the RAM disk contains
// the modules for the disk and not hundreds of others.
const vmSetup = `
mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/usr/share/initramfs-tools/modules.d"
echo MODULES=list >"$1/etc/initramfs-tools/conf.d/lab"
printf 'virtio_pci\nvirtio_blk\n' >"$1/usr/share/initramfs-tools/modules.d/lab"
`

// vmCleanup changes the root file system $1 at the end. It removes the host's name, resolvers and machine ID,
// and disables all services but the guest agent: tests name additional services when they start a VM.
const vmCleanup = `
rm -f "$1/etc/hostname" "$1/etc/resolv.conf"
: >"$1/etc/machine-id"
for service in NetworkManager chrony containerd; do rm "$1/etc/systemd/system/multi-user.target.wants/$service.service"; done
systemctl --root="$1" --quiet disable NetworkManager-wait-online apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer \
	e2scrub_all.timer e2scrub_reap fstrim.timer
`

// A VMImage is a disk image that VMs boot from, with its kernel and initial RAM disk.
type VMImage struct{ disk, kernel, initrd string }

// VMMissing returns what this host lacks for BuildVMImage and StartVM.
func VMMissing() []string {
	var missing []string
	if !isMachineRoot() {
		missing = append(missing, "root privileges")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		missing = append(missing, "tap devices (/dev/net/tun)")
	}
	for _, command := range []string{"cp", "ip", "mkfs.ext4", "mmdebstrap", "qemu-img", "qemu-system-x86_64", "unshare"} {
		if _, err := exec.LookPath(command); err != nil {
			missing = append(missing, "the command "+command)
		}
	}
	return missing
}

// NeedVM skips a test, or fails it in CI, if the host lacks a requirement of StartVM.
func NeedVM(tb testing.TB) {
	tb.Helper()
	need(tb, VMMissing(), "make vm-deps installs commands")
}

// BuildVMImage returns the image. It builds the image from Debian packages if it is missing or out of date.
func BuildVMImage(ctx context.Context, logf Logf) (VMImage, error) {
	dir, err := labDir()
	if err != nil {
		return VMImage{}, err
	}
	image := VMImage{disk: filepath.Join(dir, "vm-disk.img"), kernel: filepath.Join(dir, "vm-kernel"), initrd: filepath.Join(dir, "vm-initrd")}
	sum := sha256.Sum256([]byte(vmRelease + strings.Join(vmPackages, ",") + vmSetup + vmCleanup))
	return image, buildOnce(ctx, image.disk, fmt.Sprintf("%x", sum), 30*time.Minute, logf, func(ctx context.Context) error {
		logf.printf("building a VM image of Debian packages")
		if err := image.build(ctx, dir); err != nil {
			return fmt.Errorf("building a VM image: %w", err)
		}
		return nil
	})
}

func (i VMImage) build(ctx context.Context, dir string) (err error) {
	root, err := os.MkdirTemp(dir, "vm-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	// The namespaces remove mounts and processes of mmdebstrap when it ends.
	err = runTool(ctx, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "mmdebstrap", "--quiet", "--variant=minbase", "--include="+strings.Join(vmPackages, ","),
		"--essential-hook="+vmSetup, "--customize-hook="+vmCleanup, vmRelease, root)
	if err != nil {
		return err
	}
	for pattern, to := range map[string]string{"vmlinuz-*": i.kernel, "initrd.img-*": i.initrd} {
		found, err := filepath.Glob(filepath.Join(root, "boot", pattern))
		if err != nil {
			return err
		}
		if len(found) != 1 {
			return fmt.Errorf("the image has %d files boot/%s, want 1", len(found), pattern)
		}
		if err := install(found[0], to); err != nil {
			return err
		}
	}
	return makeDisk(ctx, i.disk, root, 8<<30)
}

// makeDisk creates a disk image of at most size bytes, with an ext4 file system that contains the files of
// folder.
func makeDisk(ctx context.Context, disk, folder string, size int64) error {
	scratch := disk + ".new"
	if err := errors.Join(os.RemoveAll(scratch), os.WriteFile(scratch, nil, 0o600), os.Truncate(scratch, size)); err != nil {
		return fmt.Errorf("creating a disk: %w", err)
	}
	if err := runTool(ctx, "mkfs.ext4", "-q", "-d", folder, scratch); err != nil {
		return err
	}
	return os.Rename(scratch, disk)
}
