package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/densityops/oooi/test/lab"
)

// The second VLAN of cluster demo, for DHCP. It is a bridge, because loopback has no broadcasts. DNS, proxy and DHCP
// listen on addresses of the bridge.
const (
	bridge      = "vlan51"
	bridgeDNS   = "198.18.51.2"
	bridgeProxy = "198.18.51.3"
	bridgeDHCP  = "198.18.51.4"
)

// The MAC addresses of a VM of KubeVirt, and of a client without a VirtualMachineInstance.
const (
	workerMAC  = "02:00:c6:12:33:01"
	unknownMAC = "02:00:c6:12:33:02"
)

// A vlan is a bridge with two VMs.
type vlan struct{ worker, unknown *virtualMachine }

// A virtualMachine is a network namespace with one interface. Unlike lab.Machine it is not tied to a test, and it
// shows the log of its DHCP client.
type virtualMachine struct {
	*lab.Namespace

	name string
	dir  string // for the files of its DHCP client
	// client is the DHCP client; nil before startDHClient.
	client *process
}

// newVLAN creates the bridge and attaches two VMs to it.
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
	if v.worker, err = newVM(bridge, dir, "worker", workerMAC); err != nil {
		return err
	}
	v.unknown, err = newVM(bridge, dir, "unknown", unknownMAC)
	return err
}

func (v *vlan) stop() {
	for _, m := range []*virtualMachine{v.worker, v.unknown} {
		m.stop()
	}
}

// stop stops the DHCP client and deletes the VM. It does nothing if m is nil.
func (m *virtualMachine) stop() {
	if m == nil {
		return
	}
	if m.client != nil {
		m.client.stop()
	}
	_ = m.Close() // the namespace ends with the demo in any case
}

// newVM creates a VM, and a veth pair from a bridge to its eth0. dir is for the files of its DHCP client.
func newVM(bridge, dir, name, mac string) (*virtualMachine, error) {
	m := &virtualMachine{name: name, dir: filepath.Join(dir, name)}
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating a directory for VM %s: %w", name, err)
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

// ip runs the command ip.
func ip(ctx context.Context, args ...string) error {
	_, err := output(ctx, "ip", args...)
	return err
}
