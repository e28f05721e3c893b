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

// State is what the plugin knows, for people. It holds no secret.
type State struct {
	Scope string `json:"scope"`
	// Ready: there is something to answer from, whatever its age.
	Ready bool `json:"ready"`
	// Synced: everything is seen as it is now.
	Synced bool `json:"synced"`
	// AsOf is when the snapshot was written that all of this is from; zero where it is from the
	// API server.
	AsOf time.Time `json:"asOf,omitzero"`
	// Watches tell how the API server is followed.
	Watches []watch.ResourceStatus `json:"watches"`
	// Clients are the interfaces that are served, by MAC address.
	Clients []Client `json:"clients"`
	// Duplicates are MAC addresses that were given twice, with whose they are.
	Duplicates map[string][]string `json:"duplicates,omitempty"`
	// Problems are the faults in annotations and the reservations that are not honoured, by instance.
	Problems map[string]string `json:"problems,omitempty"`
}

// Client is an interface that is served.
type Client struct {
	MAC       string       `json:"mac"`
	Interface string       `json:"interface"`
	Hostname  string       `json:"hostname"`
	Reserved  []netip.Addr `json:"reserved,omitempty"`
}

// Status returns the state of the process's plugin; nil where there is none.
func Status() *State {
	if d := current(); d != nil {
		return d.state()
	}
	return nil
}

// Ready reports whether the process's plugin has something to answer from, whatever its age;
// and true where there is none.
func Ready() bool {
	d := current()
	return d == nil || d.ready()
}

// Warnings says, for people, what is wrong although clients are answered.
func Warnings() []string {
	d := current()
	if d == nil {
		return nil
	}
	if failure := d.fileFailure.Load(); failure != nil {
		return []string{"kubevirt: a restart during an outage of the API server would know no virtual machine: " + *failure}
	}
	return nil
}

func current() *directory {
	process.mu.Lock()
	defer process.mu.Unlock()
	return process.directory
}

func (d *directory) state() *State {
	s := &State{Scope: d.config.String(), Ready: d.ready(), Synced: d.Synced(), Clients: []Client{}}
	if d.follow != nil {
		s.Watches = d.follow.status()
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	s.AsOf = d.asOf
	for mac, claims := range d.index {
		text := net.HardwareAddr(mac).String()
		first := claims[0].client
		s.Clients = append(s.Clients, Client{MAC: text, Interface: first.String(), Hostname: first.Hostname, Reserved: first.Reserved})
		if len(claims) > 1 {
			if s.Duplicates == nil {
				s.Duplicates = map[string][]string{}
			}
			for _, c := range claims {
				s.Duplicates[text] = append(s.Duplicates[text], c.client.String())
			}
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

// allProblems are those of annotations and of reservations.
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
	syncedDesc     = desc("synced", "Whether the virtual machines are seen as they are now (1), or as they were before (0).")
	ageDesc        = desc("snapshot_age_seconds", "How old the knowledge of virtual machines is, while it comes from the snapshot file; else 0.")
	clientsDesc    = desc("clients", "Interfaces of virtual machines on the network that have a MAC address.")
	machinesDesc   = desc("machines", "Virtual machines in the scope, running or not, on this network or not.")
	duplicatesDesc = desc("duplicate_macs", "MAC addresses that more than one interface has.")
	problemsDesc   = desc("problems", "Virtual machines with an annotation that is left out or a reservation that is not honoured.")
	unknownDesc    = desc("unknown_total", "Packets from MAC addresses of no virtual machine in the scope, met with silence.")
)

// Collector shows the process's plugin as metrics. It reads when it is asked.
func Collector() prometheus.Collector { return collector{} }

type collector struct{}

// Describe is prometheus.Collector's.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{syncedDesc, ageDesc, clientsDesc, machinesDesc, duplicatesDesc, problemsDesc, unknownDesc} {
		ch <- d
	}
}

// Collect is prometheus.Collector's.
func (collector) Collect(ch chan<- prometheus.Metric) {
	d := current()
	if d == nil {
		return
	}
	gauge := func(desc *prometheus.Desc, value float64) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
	synced, age, duplicates := 0.0, 0.0, 0
	if d.Synced() {
		synced = 1
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
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
	gauge(machinesDesc, float64(len(d.machines)))
	gauge(duplicatesDesc, float64(duplicates))
	gauge(problemsDesc, float64(len(d.allProblems())))
	ch <- prometheus.MustNewConstMetric(unknownDesc, prometheus.CounterValue, float64(d.unknown.Load()))
}
