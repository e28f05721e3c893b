package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// hook is the script that dhclient runs. It sets the address of the interface, and writes the VM's resolv.conf to the
// directory of the script; the default script would overwrite /etc/resolv.conf of the host.
const hook = `#!/bin/sh
case $reason in
BOUND|RENEW|REBIND|REBOOT)
	ip address replace "$new_ip_address/$new_subnet_mask" dev eth0
	echo "nameserver $new_domain_name_servers" >"${0%/*}/resolv.conf" ;;
esac
`

// dhclientConf configures dhclient with a timeout in seconds, and a request every second.
const dhclientConf = `timeout %d;
initial-interval 1;
backoff-cutoff 1;
`

// findDHClient returns the path of dhclient. It also looks in /usr/sbin, which may not be in the PATH of a user.
func findDHClient() (string, error) {
	path, err := exec.LookPath("dhclient")
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/dhclient")
	}
	return path, err
}

// startDHClient starts ISC's dhclient in the VM, which gives up after the timeout.
func (m *virtualMachine) startDHClient(timeout time.Duration, flags ...string) error {
	installed, err := findDHClient()
	if err != nil {
		return fmt.Errorf("looking for dhclient: %w", err)
	}
	binary, err := os.ReadFile(installed)
	if err != nil {
		return fmt.Errorf("reading dhclient: %w", err)
	}
	conf := fmt.Appendf(nil, dhclientConf, int(timeout.Seconds()))
	// Run a copy, because the AppArmor profile of the installed binary allows writes only below /var and /run.
	for name, content := range map[string][]byte{"dhclient": binary, "hook": []byte(hook), "dhclient.conf": conf} {
		if err := os.WriteFile(filepath.Join(m.dir, name), content, 0o700); err != nil {
			return fmt.Errorf("writing %s for VM %s: %w", name, m.name, err)
		}
	}
	args := append([]string{filepath.Join(m.dir, "dhclient"), "-4", "-v", "-d"}, flags...)
	for flag, name := range map[string]string{"-cf": "dhclient.conf", "-sf": "hook", "-lf": "dhclient.leases", "-pf": "dhclient.pid"} {
		args = append(args, flag, filepath.Join(m.dir, name))
	}
	command := m.CommandLine(append(args, "eth0")...)
	m.client, err = startProcess(m.dir, "client", command[0], command[1:]...)
	return err
}

// awaitLine waits until the DHCP client has printed a line with a prefix. It returns this line, and the lines about
// packets before it.
func (m *virtualMachine) awaitLine(ctx context.Context, prefix string) (line string, before []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, followDeadline)
	defer cancel()
	for ended := false; ; {
		log, err := os.ReadFile(m.client.log)
		if err != nil {
			return "", nil, fmt.Errorf("reading the log of the DHCP client: %w", err)
		}
		before = nil
		for line := range strings.Lines(string(log)) {
			switch line = strings.TrimSpace(line); {
			case strings.HasPrefix(line, prefix):
				return line, before, nil
			case strings.HasPrefix(line, "DHCP"):
				before = append(before, line)
			}
		}
		if ended {
			return "", nil, m.client.withLog(fmt.Errorf("the DHCP client exited without printing %q: %w", prefix, m.client.err))
		}
		select {
		case <-m.client.ended: // read the log once more, since it may have printed the line before it exited
			ended = true
		case <-ctx.Done():
			return "", nil, m.client.withLog(fmt.Errorf("waiting for the DHCP client to print %q: %w", prefix, ctx.Err()))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// leaseOption returns the value of an option in the VM's lease file.
func (m *virtualMachine) leaseOption(option string) (string, error) {
	file, err := os.ReadFile(filepath.Join(m.dir, "dhclient.leases"))
	if err != nil {
		return "", fmt.Errorf("reading the lease of VM %s: %w", m.name, err)
	}
	_, rest, found := strings.Cut(string(file), "  option "+option+" ")
	if !found {
		return "", fmt.Errorf("the lease of VM %s has no option %s: %s", m.name, option, file)
	}
	value, _, _ := strings.Cut(rest, ";")
	return value, nil
}
