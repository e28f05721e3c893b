package kubevirt

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/densityops/oooi/internal/snapshotfile"
)

// fileInterval is the minimum time between two writes of the snapshot file.
const fileInterval = 2 * time.Second

// fileContent is the content of a snapshot file.
type fileContent struct {
	snapshotfile.Header

	// Scope is the config's String. Files of other scopes are not loaded.
	Scope string `json:"scope"`
	// Network is the identity of the network; empty if it is unknown.
	Network   string      `json:"network,omitempty"`
	Instances []*instance `json:"instances"`
	Machines  []savedVM   `json:"machines"`
	// Kept has when objects disappeared from the API server that stay in use, by resource and "namespace/name".
	Kept map[string]map[string]time.Time `json:"kept,omitempty"`
}

// savedVM is a VirtualMachine in the snapshot file.
type savedVM struct {
	Namespace  string   `json:"namespace"`
	Name       string   `json:"name"`
	Interfaces []string `json:"interfaces,omitempty"`
}

// snapshotFile returns the snapshot file of a directory.
func (d *directory) snapshotFile() *snapshotfile.File {
	return &snapshotfile.File{
		Path: d.config.snapshot, Objects: "VMs", Interval: fileInterval, Log: d.log,
		Changes: func() (n uint64, ok bool) {
			d.mu.RLock()
			defer d.mu.RUnlock()
			return d.changes, d.known && d.asOf.IsZero()
		},
		Current: d.Synced,
		Content: d.fileContent,
	}
}

// load loads the snapshot file.
func (d *directory) load() {
	f := &fileContent{}
	if !d.file.Load(f, func() error {
		switch {
		case slices.Contains(f.Instances, nil):
			return errors.New("instances has an empty entry")
		case f.Scope != d.config.String():
			return fmt.Errorf("the snapshot file was written for another scope: %s", f.Scope)
		}
		return nil
	}) {
		return
	}
	d.networks.identity = f.Network
	for _, i := range f.Instances {
		d.put(i)
	}
	for _, m := range f.Machines {
		at := key{m.Namespace, m.Name}
		d.declare(at)
		if restored := d.vms[at]; len(restored.running) == 0 {
			restored.interfaces = m.Interfaces
		}
	}
	if d.follower != nil {
		d.follower.restore(f)
	}
	d.known, d.asOf = true, f.Written
	d.log.Info("loaded VMs from the snapshot file", "file", d.config.snapshot, "written", f.Written, "instances", len(f.Instances))
}

// fileContent returns the content for the snapshot file.
func (d *directory) fileContent() snapshotfile.Content {
	f := &fileContent{Header: snapshotfile.Header{Written: time.Now().UTC()}, Scope: d.config.String(), Kept: d.follower.keptSince()}
	d.mu.RLock()
	defer d.mu.RUnlock()
	f.Network = d.networks.identity
	for _, i := range d.instances {
		if i.isVM() {
			f.Instances = append(f.Instances, i)
		}
	}
	for at, m := range d.vms {
		if m.declared {
			f.Machines = append(f.Machines, savedVM{Namespace: at.namespace, Name: at.name, Interfaces: m.interfaces})
		}
	}
	slices.SortFunc(f.Instances, func(a, b *instance) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	slices.SortFunc(f.Machines, func(a, b savedVM) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	return f
}
