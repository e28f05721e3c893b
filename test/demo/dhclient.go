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

// hook gives the interface its address, and writes what would be the machine's
// /etc/resolv.conf beside itself. The script that comes with the client would write that of us all.
const hook = `#!/bin/sh
case $reason in
BOUND|RENEW|REBIND|REBOOT)
	ip address replace "$new_ip_address/$new_subnet_mask" dev eth0
	echo "nameserver $new_domain_name_servers" >"${0%/*}/resolv.conf" ;;
esac
`

// dhclientConf says for how long the client asks, and that it asks every second.
const dhclientConf = `timeout %d;
initial-interval 1;
backoff-cutoff 1;
`

// findDHClient looks where users without an administrator's PATH have it, too.
func findDHClient() (string, error) {
	path, err := exec.LookPath("dhclient")
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/dhclient")
	}
	return path, err
}

// startDHClient starts ISC's client on the machine, which asks for some time.
func (m *machine) startDHClient(patience time.Duration, flags ...string) error {
	installed, err := findDHClient()
	if err != nil {
		return fmt.Errorf("looking for dhclient: %w", err)
	}
	binary, err := os.ReadFile(installed)
	if err != nil {
		return fmt.Errorf("reading dhclient: %w", err)
	}
	conf := fmt.Appendf(nil, dhclientConf, int(patience.Seconds()))
	// A copy, since AppArmor has the installed one write below /var and /run alone.
	for name, content := range map[string][]byte{"dhclient": binary, "hook": []byte(hook), "dhclient.conf": conf} {
		if err := os.WriteFile(filepath.Join(m.dir, name), content, 0o700); err != nil {
			return fmt.Errorf("writing %s for machine %s: %w", name, m.name, err)
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

// hears waits until the DHCP client has printed a line that begins like this. It returns that
// line, and those about packets before it.
func (m *machine) hears(ctx context.Context, begins string) (line string, before []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, followDeadline)
	defer cancel()
	for ended := false; ; {
		log, err := os.ReadFile(m.client.log)
		if err != nil {
			return "", nil, fmt.Errorf("reading what the client says: %w", err)
		}
		before = nil
		for line := range strings.Lines(string(log)) {
			switch line = strings.TrimSpace(line); {
			case strings.HasPrefix(line, begins):
				return line, before, nil
			case strings.HasPrefix(line, "DHCP"):
				before = append(before, line)
			}
		}
		if ended {
			return "", nil, m.client.blame(fmt.Errorf("the client ended without %q: %w", begins, m.client.err))
		}
		select {
		case <-m.client.ended: // and may have said it just before
			ended = true
		case <-ctx.Done():
			return "", nil, m.client.blame(fmt.Errorf("waiting for the client to say %q: %w", begins, ctx.Err()))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// leased returns what the machine's lease has of an option.
func (m *machine) leased(option string) (string, error) {
	file, err := os.ReadFile(filepath.Join(m.dir, "dhclient.leases"))
	if err != nil {
		return "", fmt.Errorf("reading the lease of machine %s: %w", m.name, err)
	}
	_, rest, found := strings.Cut(string(file), "  option "+option+" ")
	if !found {
		return "", fmt.Errorf("machine %s was not told its %s: %s", m.name, option, file)
	}
	value, _, _ := strings.Cut(rest, ";")
	return value, nil
}
