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
	// fileVersion is the version of the file format. Files of other versions are not loaded.
	fileVersion = 1
	// fileInterval is the minimum time between writes of the file.
	fileInterval = 2 * time.Second
	// fileRefresh is the maximum time between writes while the directory is synced, so that the file's time shows
	// the age of its data.
	fileRefresh = time.Minute
)

// file is the content of a snapshot file.
type file struct {
	Version int       `json:"version"`
	Written time.Time `json:"written"`
	// Scope is the config's String. Files of other scopes are not loaded.
	Scope     string      `json:"scope"`
	Instances []*instance `json:"instances"`
	Machines  []savedVM   `json:"machines"`
}

// savedVM is a VirtualMachine in the snapshot file.
type savedVM struct {
	Namespace  string   `json:"namespace"`
	Name       string   `json:"name"`
	Interfaces []string `json:"interfaces,omitempty"`
}

// load loads the snapshot file. An unusable file is renamed and ignored: the file is needed only for a start during
// an outage of the API server.
func (d *directory) load() {
	if d.config.snapshot == "" {
		return
	}
	f, err := readFile(d.config.snapshot)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err == nil && f.Scope != d.config.String():
		err = fmt.Errorf("the snapshot file was written for another scope: %s", f.Scope)
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
		if restored := d.vms[at]; len(restored.running) == 0 {
			restored.interfaces = m.Interfaces
		}
	}
	d.known, d.asOf = true, f.Written
	d.log.Info("loaded VMs from the snapshot file", "file", d.config.snapshot, "written", f.Written, "instances", len(f.Instances))
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
	if f.Version != fileVersion {
		return nil, fmt.Errorf("unsupported version %d, want %d", f.Version, fileVersion)
	}
	if slices.Contains(f.Instances, nil) {
		return nil, errors.New("instances has an empty entry")
	}
	return f, nil
}

// maintainFile writes the snapshot file after changes, at least every fileRefresh while the directory is synced,
// and when ctx is done.
func (d *directory) maintainFile(ctx context.Context) {
	tick := time.NewTicker(fileInterval)
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
		err := d.writeFile()
		if err != nil && !failing {
			d.log.Error("cannot write the snapshot file; after a restart during an outage of the API server, VMs would be missing or outdated", "err", err)
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

// writeFile replaces the file atomically.
func (d *directory) writeFile() error {
	data, err := json.Marshal(d.fileContent())
	if err != nil {
		return fmt.Errorf("encoding the snapshot: %w", err)
	}
	if err := atomicfile.Replace(d.config.snapshot, data); err != nil {
		return fmt.Errorf("writing the snapshot file: %w", err)
	}
	return nil
}

// fileContent returns the content for the snapshot file.
func (d *directory) fileContent() *file {
	f := &file{Version: fileVersion, Written: time.Now().UTC(), Scope: d.config.String()}
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, i := range d.instances {
		f.Instances = append(f.Instances, i)
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
