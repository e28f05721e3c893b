package kubevirt

import (
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/densityops/oooi/internal/snapshotfile"
	"github.com/densityops/oooi/internal/subscribers"
	"github.com/densityops/oooi/plugins/internal/vm"
)

// A key identifies an object.
type key struct{ namespace, name string }

// A vmState is the state of a VM, running or not.
type vmState struct {
	// declared is set if the VirtualMachine exists.
	declared bool
	// running contains the VM's VirtualMachineInstances by name. There are two for a moment at most.
	running map[string]*instance
	// interfaces are the names of the VM's interfaces on the network, of the last run if the VM does not run.
	interfaces []string
}

// A directory contains the VMs on one network. It implements vm.Directory.
type directory struct {
	config config
	log    *slog.Logger

	mu          sync.RWMutex
	index       index // by MAC address
	reserved    index // by reserved address
	instances   map[key]*instance
	vms         map[key]*vmState
	problems    map[key]string // errors in annotations, by instance
	refused     map[key]string // reasons of refused reservations, by instance
	networks    networks
	known       bool      // the VMs are complete, now or as of asOf
	asOf        time.Time // when the snapshot file was written; zero once the API server has been listed
	changes     uint64
	subscribers subscribers.Set[func(vm.Interface)]

	file *snapshotfile.File
	// unknown counts packets from unknown MAC addresses, and unknownClients has the last requests.
	unknown        atomic.Uint64
	unknownClients *unknownClients
	follower       *apiFollower // nil in tests of the index
}

var _ vm.Directory = (*directory)(nil)

func newDirectory(c config, log *slog.Logger) *directory {
	d := &directory{
		config: c, log: log, index: index{}, reserved: index{}, instances: map[key]*instance{}, vms: map[key]*vmState{},
		problems: map[key]string{}, networks: networks{own: c.network, unused: c.withoutVMs}, unknownClients: newUnknownClients(),
	}
	d.file = d.snapshotFile()
	return d
}

// Lookup implements vm.Directory. It costs one map lookup.
func (d *directory) Lookup(mac net.HardwareAddr) (vm.Client, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	claims := d.index[string(mac)]
	if len(claims) == 0 {
		return vm.Client{}, false
	}
	return claims[0].client, true
}

// Clients implements vm.Directory.
func (d *directory) Clients() []vm.Client {
	d.mu.RLock()
	defer d.mu.RUnlock()
	list := make([]vm.Client, 0, len(d.index))
	for _, claims := range d.index {
		list = append(list, claims[0].client)
	}
	return list
}

// ReservedFor implements vm.Directory.
func (d *directory) ReservedFor(addr netip.Addr) (vm.Interface, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	claims := d.reserved[string(addr.AsSlice())]
	if len(claims) == 0 {
		return vm.Interface{}, false
	}
	return claims[0].client.Interface, true
}

// Reservations implements vm.Directory.
func (d *directory) Reservations() []vm.Client {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var list []vm.Client
	for _, claims := range d.reserved {
		for _, c := range claims {
			if !c.instance.Final {
				list = append(list, c.client)
			}
		}
	}
	return list
}

// ReportRefused implements vm.Directory. It logs each new reason and creates an Event of the instance.
func (d *directory) ReportRefused(all map[vm.Interface]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	refused := map[key]string{}
	for _, i := range slices.SortedFunc(maps.Keys(all), func(a, b vm.Interface) int { return strings.Compare(a.String(), b.String()) }) {
		m := d.vms[key{i.Namespace, i.VM}]
		if m == nil {
			continue
		}
		for name := range m.running {
			at, why := key{i.Namespace, name}, "interface "+i.Name+": "+all[i]
			if refused[at] != "" {
				why = refused[at] + "; " + why
			}
			refused[at] = why
		}
	}
	for at, why := range refused {
		if d.refused[at] != why {
			d.log.Warn("reservation refused", "instance", at.namespace+"/"+at.name, "reason", why)
			if i := d.instances[at]; i.isVM() {
				d.follower.record(i, why)
			}
		}
	}
	d.refused = refused
}

// Exists implements vm.Directory. A stopped VM keeps its interfaces. A running VM has only its instance's interfaces,
// and interfaces that may be on the network, since their addresses may be in use.
func (d *directory) Exists(i vm.Interface) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	m := d.vms[key{i.Namespace, i.VM}]
	if m == nil {
		return false
	}
	if len(m.running) == 0 || slices.Contains(m.interfaces, i.Name) {
		return true
	}
	for _, running := range m.running {
		for _, a := range running.attachments {
			if _, known := d.networks.compare(a.network); a.Name == i.Name && !known {
				return true
			}
		}
	}
	return false
}

// Synced implements vm.Directory.
func (d *directory) Synced() bool {
	d.mu.RLock()
	known, live := d.known, d.asOf.IsZero()
	d.mu.RUnlock()
	return known && live && d.follower != nil && d.follower.current()
}

// Subscribe implements vm.Directory.
func (d *directory) Subscribe(f func(vm.Interface)) (cancel func()) {
	return d.subscribers.Add(f)
}

// ready reports whether VMs are known, from the API server or the snapshot file.
func (d *directory) ready() bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.known
}

// put adds or replaces an instance.
func (d *directory) put(i *instance) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replace(i)
}

// replace is put for a caller that holds d.mu.
func (d *directory) replace(i *instance) {
	d.changes++
	at := key{i.Namespace, i.Name}
	before := d.instances[at]
	if i.attachments != nil { // not from the snapshot file
		own := *i // the watch compares its own with the next version
		own.Interfaces = d.networks.on(i, before)
		i = &own
	}
	if before != nil {
		d.unindex(before)
		if before.owner() != i.owner() {
			d.removeIfUnused(key{before.Namespace, before.owner()}, false)
		}
	}
	d.instances[at] = i
	m := d.ensureVM(key{i.Namespace, i.owner()})
	m.running[i.Name] = i
	m.interfaces = nil
	for _, running := range m.running {
		for _, n := range running.Interfaces {
			m.interfaces = append(m.interfaces, n.Name)
		}
	}
	d.addToIndex(i)
}

// addToIndex adds the interfaces of an instance to the indexes, and records errors in its annotations.
func (d *directory) addToIndex(i *instance) {
	at := key{i.Namespace, i.Name}
	before := d.problems[at]
	delete(d.problems, at)
	for _, n := range i.Interfaces {
		addresses, options, err := i.parseAnnotations(n.Name)
		if err != nil {
			d.problems[at] = err.Error()
		}
		c := claim{instance: i, client: vm.Client{
			Interface: vm.Interface{Namespace: i.Namespace, VM: i.owner(), Name: n.Name},
			Hostname:  i.Hostname, Reserved: addresses, Options: options,
		}}
		for _, a := range addresses {
			d.reserved.add(string(a.AsSlice()), c)
		}
		mac, err := net.ParseMAC(n.MAC)
		if err != nil {
			continue // no MAC address yet
		}
		d.index.add(string(mac), c)
		if claims := d.index[string(mac)]; len(claims) > 1 {
			d.log.Warn("duplicate MAC address; serving the first interface", "mac", n.MAC,
				"first", claims[0].client.String(), "second", claims[1].client.String())
		}
	}
	if text := d.problems[at]; text != "" && text != before {
		d.log.Warn("ignoring an invalid annotation of a VM", "instance", at.namespace+"/"+at.name, "err", text)
	}
}

// unindex removes the interfaces of an instance from the indexes.
func (d *directory) unindex(i *instance) {
	for _, n := range i.Interfaces {
		if mac, err := net.ParseMAC(n.MAC); err == nil {
			d.index.remove(string(mac), i)
		}
		addresses, _, _ := i.parseAnnotations(n.Name) // invalid addresses were not added
		for _, a := range addresses {
			d.reserved.remove(string(a.AsSlice()), i)
		}
	}
	if m := d.vms[key{i.Namespace, i.owner()}]; m != nil {
		delete(m.running, i.Name)
	}
}

// remove removes an instance. observed is set if its deletion was observed, and not only its absence. The VM
// remains if its VirtualMachine exists.
func (d *directory) remove(at key, observed bool) {
	d.mu.Lock()
	i := d.instances[at]
	if i == nil {
		d.mu.Unlock()
		return
	}
	if i.Machine != "" && d.follower != nil && !d.follower.vmsCurrent() {
		observed = false // the VirtualMachine may still exist
	}
	d.changes++
	d.unindex(i)
	delete(d.instances, at)
	delete(d.problems, at)
	deleted := d.removeIfUnused(key{i.Namespace, i.owner()}, observed)
	d.mu.Unlock()
	d.notify(deleted)
}

// declare adds a VirtualMachine.
func (d *directory) declare(at key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := d.ensureVM(at); !m.declared {
		m.declared = true
		d.changes++
	}
}

// undeclare removes a VirtualMachine. observed is as in remove.
func (d *directory) undeclare(at key, observed bool) {
	d.mu.Lock()
	m := d.vms[at]
	if m == nil || !m.declared {
		d.mu.Unlock()
		return
	}
	d.changes++
	m.declared = false
	deleted := d.removeIfUnused(at, observed)
	d.mu.Unlock()
	d.notify(deleted)
}

// removeIfUnused removes a VM that has neither a VirtualMachine nor instances. If the deletion was observed, it returns
// the interfaces of the VM.
func (d *directory) removeIfUnused(at key, observed bool) []vm.Interface {
	m := d.vms[at]
	if m == nil || m.declared || len(m.running) > 0 {
		return nil
	}
	delete(d.vms, at)
	if !observed {
		return nil
	}
	deleted := make([]vm.Interface, len(m.interfaces))
	for i, name := range m.interfaces {
		deleted[i] = vm.Interface{Namespace: at.namespace, VM: at.name, Name: name}
	}
	return deleted
}

// notify calls the subscribers for each interface. The caller must not hold d.mu.
func (d *directory) notify(deleted []vm.Interface) {
	if len(deleted) == 0 {
		return
	}
	listeners := d.subscribers.List()
	for _, i := range deleted {
		d.log.Info("VM was deleted", "interface", i.String())
		for _, f := range listeners {
			f(i)
		}
	}
}

// ensureVM returns the state of a VM, and adds it if it does not exist.
func (d *directory) ensureVM(at key) *vmState {
	m := d.vms[at]
	if m == nil {
		m = &vmState{running: map[string]*instance{}}
		d.vms[at] = m
	}
	return m
}
