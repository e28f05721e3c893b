package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ovnPackages are the Debian packages of OVN and Open vSwitch, and libraries that they need and the host may
// lack. They are unpacked and not installed, because installing them would start daemons.
var ovnPackages = []string{
	"ovn-central", "ovn-host", "ovn-common", "openvswitch-switch", "openvswitch-common",
	"libunbound8", "libxdp1", "libbpf1", "libevent-2.1-7", "libhiredis0.14", "libprotobuf-c1", "ethtool",
}

// FindOVN returns the directory with the unpacked packages of OVN, which it downloads if they are missing.
func FindOVN(ctx context.Context, logf Logf) (string, error) {
	lab, err := labDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(lab, "ovn")
	return dir, buildOnce(ctx, dir, strings.Join(ovnPackages, " "), 5*startTimeout, logf, func(ctx context.Context) error {
		logf.printf("downloading OVN")
		work, err := os.MkdirTemp(lab, "ovn-")
		if err == nil {
			err = errors.Join(unpackOVN(ctx, work), os.RemoveAll(dir), os.Rename(filepath.Join(work, "root"), dir), os.RemoveAll(work))
		}
		if err != nil {
			return fmt.Errorf("downloading OVN: %w", err)
		}
		return nil
	})
}

func unpackOVN(ctx context.Context, work string) error {
	run := func(args ...string) error {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir = work
		return runCommand(cmd)
	}
	// When run by root, apt downloads as a user that cannot write to this folder.
	download := append([]string{"apt-get", "-o", "APT::Sandbox::User=root", "download", "-qq"}, ovnPackages...)
	if run(download...) != nil { // the package lists may be missing or out of date
		if err := errors.Join(run("apt-get", "update", "-qq"), run(download...)); err != nil {
			return err
		}
	}
	packages, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil {
		return fmt.Errorf("listing packages: %w", err)
	}
	for _, p := range packages {
		if err := run("dpkg", "-x", p, "root"); err != nil {
			return err
		}
	}
	return nil
}
