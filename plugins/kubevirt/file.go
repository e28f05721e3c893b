package kubevirt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/densityops/oooi/internal/atomicfile"
)

const (
	// fileVersion is of the snapshot file's layout. A file of another is not read.
	fileVersion = 1
	// fileEvery is how often the file is written, at most, while things change.
	fileEvery = 2 * time.Second
	// fileRefresh is how often it is written though nothing changes, so that its age tells how
	// old the knowledge in it is.
	fileRefresh = time.Minute
)

// file is what a snapshot file holds.
type file struct {
	Version int       `json:"version"`
	Written time.Time `json:"written"`
	// Scope is whose machines they are.
	Scope     string         `json:"scope"`
	Instances []*instance    `json:"instances"`
	Machines  []savedMachine `json:"machines"`
}

// savedMachine is a VirtualMachine.
type savedMachine struct {
	Namespace  string   `json:"namespace"`
	Name       string   `json:"name"`
	Interfaces []string `json:"interfaces,omitempty"`
}

// load takes in what the snapshot file has. A file that cannot be used costs the bridge over
// an outage, nothing else.
func (d *directory) load() {
	if d.config.snapshot == "" {
		return
	}
	f, err := readFile(d.config.snapshot)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err == nil && f.Scope != d.config.String():
		err = fmt.Errorf("it is of another scope: %s", f.Scope)
	}
	if err != nil {
		atomicfile.SetAside(d.log, d.config.snapshot, err)
		return
	}
	for _, i := range f.Instances {
		d.put(i)
	}
	for _, m := range f.Machines {
		at := key{m.Namespace, m.Name}
		d.declare(at)
		if to := d.machines[at]; len(to.running) == 0 {
			to.interfaces = m.Interfaces
		}
	}
	d.known, d.asOf = true, f.Written
	d.log.Info("virtual machines are known from the snapshot file", "file", d.config.snapshot, "written", f.Written, "instances", len(f.Instances))
}

func readFile(path string) (*file, error) {
	data, err := atomicfile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("reading the snapshot file: %w", err)
	}
	f := &file{}
	if err := json.Unmarshal(data, f); err != nil {
		return nil, fmt.Errorf("decoding the snapshot: %w", err)
	}
	if f.Version != fileVersion || slices.Contains(f.Instances, nil) {
		return nil, fmt.Errorf("unsupported version %d, want %d", f.Version, fileVersion)
	}
	return f, nil
}

// keep writes the file after changes, every while without any, and at the end.
func (d *directory) keep(ctx context.Context) {
	tick := time.NewTicker(fileEvery)
	defer tick.Stop()
	var written time.Time
	version, failing := -1, false
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-tick.C:
		}
		d.mu.RLock()
		now, live := d.changes, d.known && d.asOf.IsZero()
		d.mu.RUnlock()
		if !live || now == version && (time.Since(written) < fileRefresh || !d.Synced()) {
			continue
		}
		err := d.write()
		if err != nil && !failing {
			d.log.Error("a restart during an outage of the API server would know no virtual machine", "err", err)
		}
		if failing = err != nil; failing {
			text := err.Error()
			d.fileFailure.Store(&text)
			continue
		}
		d.fileFailure.Store(nil)
		written, version = time.Now(), now
	}
}

// write replaces the file as a whole: a reader finds the old one or the new.
func (d *directory) write() error {
	data, err := json.Marshal(d.saved())
	if err != nil {
		return fmt.Errorf("encoding the snapshot: %w", err)
	}
	if err := atomicfile.Replace(d.config.snapshot, data); err != nil {
		return fmt.Errorf("writing the snapshot file: %w", err)
	}
	return nil
}

// saved returns what a file is to hold.
func (d *directory) saved() *file {
	f := &file{Version: fileVersion, Written: time.Now().UTC(), Scope: d.config.String()}
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, i := range d.instances {
		f.Instances = append(f.Instances, i)
	}
	for at, m := range d.machines {
		if m.declared {
			f.Machines = append(f.Machines, savedMachine{Namespace: at.namespace, Name: at.name, Interfaces: m.interfaces})
		}
	}
	slices.SortFunc(f.Instances, func(a, b *instance) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	slices.SortFunc(f.Machines, func(a, b savedMachine) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	return f
}
