package kubevirt

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/internal/watch"
)

// State is the state of the plugin, as /state shows it. It contains no credentials.
type State struct {
	// Scope describes which VMs are served: their network, namespaces and labels.
	Scope string `json:"scope"`
	// Network is the identity of the network, such as "bridge br1 vlan 100"; empty if it is unknown, so that only
	// interfaces with the plugin's NetworkAttachmentDefinition are served.
	Network string `json:"network,omitempty"`
	// NetworkProblem describes why the NetworkAttachmentDefinition does not identify the network; empty if it does.
	// The last known identity is used then.
	NetworkProblem string `json:"networkProblem,omitempty"`
	// Ready is set if VMs are known, from the API server or the snapshot file.
	Ready bool `json:"ready"`
	// Synced is set if the known VMs are current.
	Synced bool `json:"synced"`
	// AsOf is when the snapshot file was written, if the known VMs come from it; otherwise zero.
	AsOf time.Time `json:"asOf,omitzero"`
	// SnapshotFailure is the error of the last write of the snapshot file, empty unless it failed.
	SnapshotFailure string `json:"snapshotFailure,omitempty"`
	// Watches contains the states of the watches.
	Watches []watch.ResourceStatus `json:"watches"`
	// Clients are the served interfaces, sorted by MAC address.
	Clients []Client `json:"clients"`
	// Infra is the Infra whose test clients are served, "namespace/name"; empty for none.
	Infra string `json:"infra,omitempty"`
	// Duplicates maps each MAC address that several interfaces have to these interfaces, "namespace/vm/interface",
	// without interfaces of instances that have ended or are being deleted. The first one is served.
	Duplicates map[string][]string `json:"duplicates,omitempty"`
	// Unknown are MAC addresses that belong to no VM and have requested addresses, the last one first.
	Unknown []UnknownClient `json:"unknown,omitempty"`
	// Problems contains errors in annotations and reasons of refused reservations, by VirtualMachineInstance,
	// "namespace/name".
	Problems map[string]string `json:"problems,omitempty"`
}

// A Client is a served interface.
type Client struct {
	MAC string `json:"mac"`
	// Interface is "namespace/vm/interface".
	Interface string `json:"interface"`
	// Hostname is the host name that DHCP sends to the VM.
	Hostname string `json:"hostname"`
	// Reserved are the addresses reserved for the interface.
	Reserved []netip.Addr `json:"reserved,omitempty"`
	// Running is when the VirtualMachineInstance was created, if it runs and is not paused. MayRun is the same also if its phase
	// is not known.
	Running time.Time `json:"running,omitzero"`
	MayRun  time.Time `json:"mayRun,omitzero"`
}

// Status returns the state of the plugin, or nil if the process does not run it.
func Status() *State {
	if d := processDirectory(); d != nil {
		return d.state()
	}
	return nil
}

// Ready reports whether VMs are known, from the API server or from a snapshot file of any age. It returns true if the
// process does not run the plugin.
func Ready() bool {
	d := processDirectory()
	return d == nil || d.ready()
}

// Warnings returns messages for users about faults that do not prevent replies; nil without any.
func Warnings() []string {
	d := processDirectory()
	if d == nil {
		return nil
	}
	if failure := d.file.Failure(); failure != "" {
		return []string{"kubevirt: after a restart during an outage of the API server, VMs would be missing or outdated: " + failure}
	}
	return nil
}

func processDirectory() *directory {
	process.mu.Lock()
	defer process.mu.Unlock()
	return process.directory
}

func (d *directory) state() *State {
	s := &State{Scope: d.config.String(), Ready: d.ready(), Synced: d.Synced(), SnapshotFailure: d.file.Failure(),
		Clients: []Client{}, Infra: d.config.testClients}
	if d.follower != nil {
		s.Watches = d.follower.status()
	}
	s.Unknown = d.unknownClients.list(func(mac net.HardwareAddr) bool {
		_, known := d.Lookup(mac)
		return known
	})
	d.mu.RLock()
	defer d.mu.RUnlock()
	s.AsOf, s.Network, s.NetworkProblem = d.asOf, d.networks.identity, d.networks.problem()
	for mac, claims := range d.index {
		text := net.HardwareAddr(mac).String()
		first := claims[0].client
		client := Client{MAC: text, Interface: first.String(), Hostname: first.Hostname, Reserved: first.Reserved}
		i := claims[0].instance
		if i.Running {
			client.Running = i.Created.Time
		}
		if i.MayRun {
			client.MayRun = i.Created.Time
		}
		s.Clients = append(s.Clients, client)
		var owners []string
		for _, c := range claims {
			if c.current() {
				owners = append(owners, c.client.String())
			}
		}
		if len(owners) > 1 {
			if s.Duplicates == nil {
				s.Duplicates = map[string][]string{}
			}
			s.Duplicates[text] = owners
		}
	}
	slices.SortFunc(s.Clients, func(a, b Client) int { return strings.Compare(a.MAC, b.MAC) })
	for at, problem := range d.allProblems() {
		if s.Problems == nil {
			s.Problems = map[string]string{}
		}
		s.Problems[at.namespace+"/"+at.name] = problem
	}
	return s
}

// allProblems returns errors in annotations and reasons of refused reservations, by instance.
func (d *directory) allProblems() map[key]string {
	all := maps.Clone(d.problems)
	for at, why := range d.refused {
		if before := all[at]; before != "" {
			why = before + "; " + why
		}
		all[at] = why
	}
	return all
}

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName("coredhcp", "kubevirt", name), help, nil, nil)
}

var (
	syncedDesc     = desc("synced", "1 if the known VMs are current, 0 if they may be out of date.")
	ageDesc        = desc("snapshot_age_seconds", "Age of the known VMs while they come from the snapshot file, otherwise 0.")
	clientsDesc    = desc("clients", "MAC addresses of VM interfaces on the network.")
	machinesDesc   = desc("machines", "VMs in the scope, running or not, on this network or not.")
	duplicatesDesc = desc("duplicate_macs", "MAC addresses of more than one interface.")
	networkDesc    = desc("network_identified", "1 if the NetworkAttachmentDefinition identifies the network, 0 if interfaces with others may be missing.")
	problemsDesc   = desc("problems", "VMs with an ignored annotation or a refused reservation.")
	keptDesc       = prometheus.NewDesc("coredhcp_kubevirt_kept_objects",
		"Number of objects that disappeared from the API server and stay in use, by resource.", []string{"resource"}, nil)
	unknownDesc = desc("unknown_total", "Packets dropped because no VM in the scope has their MAC address.")
)

// Collector returns a collector of the plugin's metrics.
func Collector() prometheus.Collector { return collector{} }

type collector struct{}

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{syncedDesc, ageDesc, clientsDesc, machinesDesc, duplicatesDesc, networkDesc, problemsDesc, keptDesc, unknownDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (collector) Collect(ch chan<- prometheus.Metric) {
	d := processDirectory()
	if d == nil {
		return
	}
	gauge := func(desc *prometheus.Desc, value float64) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
	if d.follower != nil {
		for resource, n := range watch.CountKept(d.follower.status()) {
			ch <- prometheus.MustNewConstMetric(keptDesc, prometheus.GaugeValue, float64(n), resource)
		}
	}
	synced, identified, age, duplicates := 0.0, 0.0, 0.0, 0
	if d.Synced() {
		synced = 1
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.networks.problem() == "" {
		identified = 1
	}
	if !d.asOf.IsZero() {
		age = time.Since(d.asOf).Seconds()
	}
	for _, claims := range d.index {
		if len(claims) > 1 {
			duplicates++
		}
	}
	gauge(syncedDesc, synced)
	gauge(ageDesc, age)
	gauge(clientsDesc, float64(len(d.index)))
	gauge(machinesDesc, float64(len(d.vms)))
	gauge(duplicatesDesc, float64(duplicates))
	gauge(networkDesc, identified)
	gauge(problemsDesc, float64(len(d.allProblems())))
	ch <- prometheus.MustNewConstMetric(unknownDesc, prometheus.CounterValue, float64(d.unknown.Load()))
}
