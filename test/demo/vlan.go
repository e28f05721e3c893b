package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/densityops/oooi/test/lab"
)

// The second VLAN of cluster demo, whose machines get their addresses by DHCP. Loopback has
// no broadcasts, so this VLAN is a bridge, on which DNS, proxy and DHCP have their addresses.
const (
	bridge      = "vlan51"
	bridgeDNS   = "198.18.51.2"
	bridgeProxy = "198.18.51.3"
	bridgeDHCP  = "198.18.51.4"
)

// The MAC addresses of the machine that KubeVirt runs, and of one that nobody knows.
const (
	workerMAC   = "02:00:c6:12:33:01"
	strangerMAC = "02:00:c6:12:33:02"
)

// vlan is the bridge with the machines that are plugged into it.
type vlan struct{ worker, stranger *machine }

// machine stands for a virtual machine: a network namespace with one interface. It is no
// lab.Machine, which is a test's: what its DHCP client says is shown.
type machine struct {
	*lab.Namespace

	name string
	dir  string // for the files of its DHCP client
	// client is the DHCP client, once it was started.
	client *process
}

// newVLAN makes the bridge, and plugs two machines into it.
func newVLAN(ctx context.Context, dir string) (*vlan, error) {
	v := &vlan{}
	if err := v.setUp(ctx, dir); err != nil {
		v.stop()
		return nil, err
	}
	return v, nil
}

func (v *vlan) setUp(ctx context.Context, dir string) (err error) {
	if err := ip(ctx, "link", "add", bridge, "type", "bridge"); err != nil {
		return err
	}
	for _, address := range []string{bridgeDNS, bridgeProxy, bridgeDHCP} {
		if err := ip(ctx, "address", "add", address+"/24", "dev", bridge); err != nil {
			return err
		}
	}
	if err := ip(ctx, "link", "set", bridge, "up"); err != nil {
		return err
	}
	if v.worker, err = plugIn(bridge, dir, "worker", workerMAC); err != nil {
		return err
	}
	v.stranger, err = plugIn(bridge, dir, "stranger", strangerMAC)
	return err
}

func (v *vlan) stop() {
	for _, m := range []*machine{v.worker, v.stranger} {
		m.stop()
	}
}

// stop is fine for a machine that there is not.
func (m *machine) stop() {
	if m == nil {
		return
	}
	if m.client != nil {
		m.client.stop()
	}
	_ = m.Close() // it was only held
}

// plugIn makes a machine, and a cable from a bridge to it.
func plugIn(bridge, dir, name, mac string) (*machine, error) {
	m := &machine{name: name, dir: filepath.Join(dir, name)}
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		return nil, fmt.Errorf("making a folder for machine %s: %w", name, err)
	}
	var err error
	if m.Namespace, err = lab.OpenNamespace(); err != nil {
		return nil, err
	}
	if err := lab.Cable(lab.End{Bridge: bridge}, lab.End{In: m.Namespace, Device: "eth0", MAC: mac}); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func ip(ctx context.Context, args ...string) error {
	_, err := output(ctx, "ip", args...)
	return err
}
