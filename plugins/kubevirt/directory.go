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

	"github.com/densityops/oooi/internal/subscribers"
	"github.com/densityops/oooi/plugins/internal/vm"
)

// key names an object.
type key struct{ namespace, name string }

// machine is a virtual machine as such, running or not.
type machine struct {
	// declared: a VirtualMachine is there.
	declared bool
	// running are its instances; a second one is there for a moment at most.
	running map[string]*instance
	// interfaces are the names of those on the network that it has or, while it does not run,
	// had.
	interfaces []string
}

// directory knows the machines on one network. It is a vm.Directory.
type directory struct {
	config config
	log    *slog.Logger

	mu          sync.RWMutex
	index       index // by MAC address
	reserved    index // by reserved address
	instances   map[key]*instance
	machines    map[key]*machine
	problems    map[key]string // of instances: what is wrong in their annotations
	refused     map[key]string // of instances: reservations that are not honoured
	known       bool           // what is there was all there is, now or when the snapshot was written
	asOf        time.Time      // when the snapshot was written, until the API server is seen
	changes     int
	subscribers subscribers.Set[func(vm.Interface)]

	// fileFailure is why the snapshot file cannot be written; nil where it can.
	fileFailure atomic.Pointer[string]
	// unknown are the packets of nobody that is known.
	unknown atomic.Uint64
	follow  *following // nil in tests of the index alone
}

var _ vm.Directory = (*directory)(nil)

func newDirectory(c config, log *slog.Logger) *directory {
	return &directory{
		config: c, log: log, index: index{}, reserved: index{}, instances: map[key]*instance{}, machines: map[key]*machine{},
		problems: map[key]string{},
	}
}

// Lookup is vm.Directory's. It takes one look into a map.
func (d *directory) Lookup(mac net.HardwareAddr) (vm.Client, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	claims := d.index[string(mac)]
	if len(claims) == 0 {
		return vm.Client{}, false
	}
	return claims[0].client, true
}

// Clients is vm.Directory's.
func (d *directory) Clients() []vm.Client {
	d.mu.RLock()
	defer d.mu.RUnlock()
	list := make([]vm.Client, 0, len(d.index))
	for _, claims := range d.index {
		list = append(list, claims[0].client)
	}
	return list
}

// ReservedFor is vm.Directory's.
func (d *directory) ReservedFor(addr netip.Addr) (vm.Interface, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	claims := d.reserved[string(addr.AsSlice())]
	if len(claims) == 0 {
		return vm.Interface{}, false
	}
	return claims[0].client.Interface, true
}

// Reservations is vm.Directory's.
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

// Refused is vm.Directory's. What is new is logged and becomes an Event of the instance.
func (d *directory) Refused(all map[vm.Interface]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	refused := map[key]string{}
	for _, i := range slices.SortedFunc(maps.Keys(all), func(a, b vm.Interface) int { return strings.Compare(a.String(), b.String()) }) {
		m := d.machines[key{i.Namespace, i.VM}]
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
			d.log.Warn("a reservation is not honoured", "instance", at.namespace+"/"+at.name, "reason", why)
			d.follow.record(d.instances[at], why)
		}
	}
	d.refused = refused
}

// Exists is vm.Directory's. A machine that does not run keeps its interfaces; one that runs
// without an interface has it no more.
func (d *directory) Exists(i vm.Interface) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	m := d.machines[key{i.Namespace, i.VM}]
	if m == nil {
		return false
	}
	return len(m.running) == 0 || slices.Contains(m.interfaces, i.Name)
}

// Synced is vm.Directory's.
func (d *directory) Synced() bool {
	d.mu.RLock()
	known, live := d.known, d.asOf.IsZero()
	d.mu.RUnlock()
	return known && live && d.follow != nil && d.follow.current()
}

// Subscribe is vm.Directory's.
func (d *directory) Subscribe(f func(vm.Interface)) (cancel func()) {
	return d.subscribers.Add(f)
}

// ready reports whether there is something to answer from, whatever its age.
func (d *directory) ready() bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.known
}

// put takes an instance in, in place of what it was before.
func (d *directory) put(i *instance) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changes++
	at := key{i.Namespace, i.Name}
	if before := d.instances[at]; before != nil {
		d.unindex(before)
		if before.owner() != i.owner() {
			d.settle(key{before.Namespace, before.owner()}, false)
		}
	}
	d.instances[at] = i
	m := d.machine(key{i.Namespace, i.owner()})
	m.running[i.Name] = i
	m.interfaces = nil
	for _, running := range m.running {
		for _, n := range running.Interfaces {
			m.interfaces = append(m.interfaces, n.Name)
		}
	}
	d.addToIndex(i)
}

// addToIndex adds an instance's interfaces, and takes down what is wrong with it.
func (d *directory) addToIndex(i *instance) {
	at := key{i.Namespace, i.Name}
	before := d.problems[at]
	delete(d.problems, at)
	for _, n := range i.Interfaces {
		addresses, options, err := i.annotated(n.Name)
		if err != nil {
			d.problems[at] = err.Error()
		}
		one := claim{instance: i, client: vm.Client{
			Interface: vm.Interface{Namespace: i.Namespace, VM: i.owner(), Name: n.Name},
			Hostname:  i.Hostname, Reserved: addresses, Options: options,
		}}
		for _, a := range addresses {
			d.reserved.add(string(a.AsSlice()), one)
		}
		mac, err := net.ParseMAC(n.MAC)
		if err != nil {
			continue // nobody has given it one yet
		}
		d.index.add(string(mac), one)
		if claims := d.index[string(mac)]; len(claims) > 1 {
			d.log.Warn("a MAC address was given twice; the first is served", "mac", n.MAC,
				"first", claims[0].client.String(), "second", claims[1].client.String())
		}
	}
	if text := d.problems[at]; text != "" && text != before {
		d.log.Warn("an annotation of a virtual machine is left out", "instance", at.namespace+"/"+at.name, "err", text)
	}
}

// unindex takes an instance's interfaces out.
func (d *directory) unindex(i *instance) {
	for _, n := range i.Interfaces {
		if mac, err := net.ParseMAC(n.MAC); err == nil {
			d.index.remove(string(mac), i)
		}
		addresses, _, _ := i.annotated(n.Name) // what cannot be read was not added
		for _, a := range addresses {
			d.reserved.remove(string(a.AsSlice()), i)
		}
	}
	if m := d.machines[key{i.Namespace, i.owner()}]; m != nil {
		delete(m.running, i.Name)
	}
}

// remove takes an instance out. With seen, its deletion was seen, and not merely that it is
// not there; its machine may be there still.
func (d *directory) remove(at key, seen bool) {
	d.mu.Lock()
	i := d.instances[at]
	if i == nil {
		d.mu.Unlock()
		return
	}
	if i.Machine != "" && d.follow != nil && !d.follow.machinesCurrent() {
		seen = false // whether its machine is there is not known
	}
	d.changes++
	d.unindex(i)
	delete(d.instances, at)
	delete(d.problems, at)
	gone := d.settle(key{i.Namespace, i.owner()}, seen)
	d.mu.Unlock()
	d.tell(gone)
}

// declare takes a VirtualMachine in.
func (d *directory) declare(at key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := d.machine(at); !m.declared {
		m.declared = true
		d.changes++
	}
}

// undeclare takes a VirtualMachine out, as remove does an instance.
func (d *directory) undeclare(at key, seen bool) {
	d.mu.Lock()
	m := d.machines[at]
	if m == nil || !m.declared {
		d.mu.Unlock()
		return
	}
	d.changes++
	m.declared = false
	gone := d.settle(at, seen)
	d.mu.Unlock()
	d.tell(gone)
}

// settle forgets a machine of which nothing is left, and returns its interfaces if that
// was seen.
func (d *directory) settle(at key, seen bool) []vm.Interface {
	m := d.machines[at]
	if m == nil || m.declared || len(m.running) > 0 {
		return nil
	}
	delete(d.machines, at)
	if !seen {
		return nil
	}
	gone := make([]vm.Interface, len(m.interfaces))
	for i, name := range m.interfaces {
		gone[i] = vm.Interface{Namespace: at.namespace, VM: at.name, Name: name}
	}
	return gone
}

// tell tells the subscribers, without a lock.
func (d *directory) tell(gone []vm.Interface) {
	if len(gone) == 0 {
		return
	}
	listeners := d.subscribers.List()
	for _, i := range gone {
		d.log.Info("a virtual machine was deleted", "interface", i.String())
		for _, f := range listeners {
			f(i)
		}
	}
}

// machine returns a machine, a new one if there is none yet.
func (d *directory) machine(at key) *machine {
	m := d.machines[at]
	if m == nil {
		m = &machine{running: map[string]*instance{}}
		d.machines[at] = m
	}
	return m
}
