package main

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/densityops/oooi/coredhcpbuild/internal/dhcp4"
	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/plugins/kubevirt"
)

// maxNamed limits the clients that a problem names.
const maxNamed = 8

// A reporter reports the problems of the server. It is safe for concurrent use.
type reporter struct {
	config  *configuration
	server  *dhcp4.Server
	monitor *neighbours.Monitor
	started time.Time
	log     problem.Log
}

// report returns the content of /problems.
func (r *reporter) report(ctx context.Context) problem.Report {
	s := r.state(ctx)
	var devices []string
	for _, a := range r.config.Server4.Addresses {
		devices = append(devices, a.Zone)
	}
	view := r.monitor.View(devices...)
	s.nameVMs(view.Hosts)
	return problem.Report{Problems: s.Problems, VLAN: view}
}

// problems returns the problems that exist now; not nil.
func (r *reporter) problems(s *state) []problem.Problem {
	now := time.Now()
	f := &facts{
		state: s, now: now, started: r.started, selected: r.server.Selected, traffic: r.server.Traffic(), hosts: r.monitor.Hosts(),
		foreign: r.config.routersAndResolvers(),
	}
	return r.log.Update(now, append(f.problems(), r.config.outdated(now)...))
}

// outdated returns the problem of a configuration file that was changed and not loaded.
func (c *configuration) outdated(now time.Time) []problem.Problem {
	content, err := os.ReadFile(c.path)
	if err != nil || bytes.Equal(content, c.content) {
		return nil
	}
	info, err := os.Stat(c.path)
	if err != nil {
		return nil
	}
	return watch.OutdatedProblems("coredhcp", c.path, info.ModTime(), now)
}

// facts are the observations from which problems are derived.
type facts struct {
	*state

	now, started time.Time
	// selected returns the server that a client with a MAC address selected, and when; the zero Addr if that is not known.
	selected func(mac string) (netip.Addr, time.Time)
	traffic  []dhcp4.Traffic
	hosts    []problem.Host
	// foreign are addresses that hosts other than oooi's pods may have, although leasedb protects them.
	foreign []netip.Addr
}

// problems returns all problems except an outdated configuration file.
func (f *facts) problems() []problem.Problem {
	return slices.Concat(
		f.watchProblems(), f.storeProblems(), f.rangeProblems(), f.dropProblems(), f.otherServers(), f.ignoredOffers(),
		f.usedAddresses(), f.takenAddresses(), f.lostLeases(), f.unrenewedLeases(), f.clientProblems(),
	)
}

// infra returns the Infra that the server serves; empty if it is not known, for problems of the pod. The replicas of an Infra
// report the same problems about it.
func (s *state) infra() model.Ref {
	if s.Kubevirt == nil || s.Kubevirt.Infra == "" {
		return model.Ref{}
	}
	return model.ParseRef("Infra", s.Kubevirt.Infra)
}

// interfaceOf returns the interface of the VM with a MAC address, "namespace/vm/interface"; empty for none.
func (s *state) interfaceOf(mac string) string {
	if s.Kubevirt == nil || mac == "" {
		return ""
	}
	for i := range s.Kubevirt.Clients {
		if c := &s.Kubevirt.Clients[i]; c.MAC == mac {
			return c.Interface
		}
	}
	return ""
}

// nameVMs sets the VMs of hosts.
func (s *state) nameVMs(hosts []problem.Host) {
	if s.Kubevirt == nil {
		return
	}
	for i := range hosts {
		at := slices.IndexFunc(s.Kubevirt.Clients, func(c kubevirt.Client) bool { return c.MAC == hosts[i].LastMAC })
		if at < 0 {
			continue
		}
		hosts[i].VM = s.Kubevirt.Clients[at].Interface
		if s.Kubevirt.Synced {
			hosts[i].Running = s.Kubevirt.Clients[at].MayRun
		}
	}
}

// vmRef returns the VirtualMachineInstance of "namespace/vm" or "namespace/vm/interface".
func vmRef(name string) model.Ref {
	parts := strings.SplitN(name, "/", 3)
	ref := model.Ref{Kind: "VirtualMachineInstance", Namespace: parts[0]}
	if len(parts) > 1 {
		ref.Name = parts[1]
	}
	return ref
}

// isVM reports whether the holder of a binding is the interface of a VM.
func isVM(holder string) bool {
	_, err := dhcplease.ParseInterface(holder)
	return err == nil
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// watchProblems returns the problems of data that is not current, is kept although it disappeared, or cannot be written to a
// snapshot file.
func (f *facts) watchProblems() []problem.Problem {
	var list []problem.Problem
	stale := func(since time.Time, consequence string, evidence []string) {
		if since.Before(f.started) {
			since = f.started
		}
		if f.now.Sub(since) >= watch.MaxStaleness {
			p := watch.WithDeniedRight(problem.Failed(problem.DataStale, model.Ref{}, "coredhcp does not receive updates of %s", consequence).WithEvidence(evidence...))
			p.Since = since
			list = append(list, p)
		}
	}
	if k := f.Kubevirt; k != nil {
		if !k.Synced {
			since, evidence := f.now, []string(nil)
			for i := range k.Watches {
				if w := &k.Watches[i]; !w.Connected && !w.Missing && w.Error != "" {
					evidence = append(evidence, fmt.Sprintf("%s in %q: %s", w.Resource, w.Namespace, w.Error))
					if w.LastSeen.Before(since) {
						since = w.LastSeen
					}
				}
			}
			if evidence == nil {
				since = f.started // the first lists have not ended
			}
			stale(since, "VMs from the API server: known VMs renew their leases, and new VMs get none", evidence)
		}
		list = append(list, watch.KeptProblems("coredhcp", k.Watches)...)
		list = append(list, watch.SnapshotProblems("coredhcp", k.SnapshotFailure)...)
	}
	for i := range f.Leasedb {
		l := &f.Leasedb[i]
		if !l.Outdated.IsZero() {
			var evidence []string
			if l.Failure != "" {
				evidence = append(evidence, l.Failure)
			}
			stale(l.Outdated, "the leases of pool "+l.Pool+" from the API server: it grants no new leases", evidence)
		}
		list = append(list, watch.SnapshotProblems("coredhcp", l.SnapshotFailure)...)
	}
	return list
}

const (
	// Drops for a reason are reported from minDropMinutes minutes with drops, minDrops dropped packets and a share of maxDropShare
	// of the received packets. Shorter bursts are not: clients repeat their requests.
	minDropMinutes = 2
	minDrops       = 5
	maxDropShare   = 0.01
)

// dropProblems returns the problem of packets that were dropped for a reason that indicates a fault.
func (f *facts) dropProblems() []problem.Problem {
	received, dropped, minutes := 0, map[string]int{}, map[string]int{}
	for _, t := range f.traffic {
		received += t.Received
		for reason, n := range t.Dropped {
			dropped[reason] += n
			minutes[reason]++
		}
	}
	var evidence []string
	for _, reason := range dhcp4.FaultyDrops() {
		if n := dropped[reason]; minutes[reason] >= minDropMinutes && n >= minDrops && float64(n) > maxDropShare*float64(received) {
			evidence = append(evidence, fmt.Sprintf("%s: %d of %d packets within %d minutes", reason, n, received, dhcp4.TrafficMinutes))
		}
	}
	if evidence == nil {
		return nil
	}
	return []problem.Problem{problem.Warned(problem.PacketsDropped, model.Ref{}, "coredhcp drops packets").WithEvidence(evidence...)}
}
