// Package problem defines the faults that oooi's daemons report about themselves, their clients and the VLAN, in the
// response of GET /problems and in /state. Control turns them into conditions, and doctor prints them.
package problem

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/densityops/oooi/internal/model"
)

// Severity is how serious a problem is.
type Severity string

// Severities, in the words of doctor's output.
const (
	// Warn means that the component works, but may fail later or is not configured as intended.
	Warn Severity = "warn"
	// Fail means that something on the VLAN does not work.
	Fail Severity = "fail"
)

// Problem is a fault of one object.
type Problem struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	// Object is the object that the problem is about; empty for the pod that reports it.
	Object model.Ref `json:"object,omitzero"`
	// Message states the fault in one line. Evidence is the data that proves it, one line for each item.
	Message  string   `json:"message"`
	Evidence []string `json:"evidence,omitempty"`
	// Remedy is what to do, as an imperative; empty for the remedy of the code.
	Remedy string `json:"remedy,omitempty"`
	// Since is when the problem was first seen.
	Since time.Time `json:"since"`
}

// Failed returns a problem of severity Fail; Warned returns one of severity Warn.
func Failed(code Code, object model.Ref, format string, args ...any) Problem {
	return Problem{Code: code, Severity: Fail, Object: object, Message: fmt.Sprintf(format, args...)}
}

// Warned returns a problem of severity Warn.
func Warned(code Code, object model.Ref, format string, args ...any) Problem {
	return Problem{Code: code, Severity: Warn, Object: object, Message: fmt.Sprintf(format, args...)}
}

// WithEvidence returns the problem with more evidence.
func (p Problem) WithEvidence(evidence ...string) Problem {
	p.Evidence = append(slices.Clip(p.Evidence), evidence...)
	return p
}

// WithRemedy returns the problem with a remedy that replaces its code's.
func (p Problem) WithRemedy(format string, args ...any) Problem {
	p.Remedy = fmt.Sprintf(format, args...)
	return p
}

// Advice returns the problem's remedy, else its code's.
func (p *Problem) Advice() string { return cmp.Or(p.Remedy, p.Code.Kind().Remedy) }

// Report is the response of GET /problems.
type Report struct {
	// Problems are sorted by code and object.
	Problems []Problem `json:"problems"`
	// VLAN is the pod's view of its VLAN; nil if it observes none. Control compares the views of all pods.
	VLAN *VLAN `json:"vlan,omitempty"`
	// Answers are the hosts that steadily answer broadcast probes, each for an address. Control reports hosts that
	// must not use the address.
	Answers []Answer `json:"answers,omitempty"`
	// Sites are the problems of Infras and standalone ProxyServers, such as "Infra clusters/demo": problems that
	// their pods report, and problems of their VLANs. Only the leader of control reports them.
	Sites map[string][]Problem `json:"sites,omitempty"`
}

// Answer is a host on the VLAN that has sent frames with an address as its own within the last 5 seconds. Probes are
// broadcast: unlike the kernel's requests, which confirm a known neighbour, they also reach another host with the address.
type Answer struct {
	Address netip.Addr `json:"address"`
	MAC     string     `json:"mac"`
	// First and Last are the times of the first and the last of these frames, without a pause of 5 seconds between two.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// VLAN is a pod's view of its VLAN.
type VLAN struct {
	// At is the time of the view by the pod's clock, to which its other times are relative.
	At         time.Time   `json:"at"`
	Interfaces []Interface `json:"interfaces"`
	// Hosts are the hosts that the pod has probed.
	Hosts []Host `json:"hosts"`
}

// Interface returns the interface with a name; nil if none matches or v is nil.
func (v *VLAN) Interface(name string) *Interface {
	if v == nil {
		return nil
	}
	for i := range v.Interfaces {
		if v.Interfaces[i].Name == name {
			return &v.Interfaces[i]
		}
	}
	return nil
}

// Age returns the time from t, which is in the view, to the view.
func (v *VLAN) Age(t time.Time) time.Duration { return v.At.Sub(t) }

// Interface is an interface of a pod on a VLAN, as the kernel reports it.
type Interface struct {
	Name      string         `json:"name"`
	MAC       string         `json:"mac"`
	Up        bool           `json:"up"`
	MTU       int            `json:"mtu"`
	Addresses []netip.Prefix `json:"addresses"`
}

// Has reports whether the interface has an address.
func (i *Interface) Has(a netip.Addr) bool {
	return slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Addr() == a })
}

// Host is a pod's view of the host with an address on the VLAN.
type Host struct {
	Address netip.Addr `json:"address"`
	// MAC is the MAC address that answers, in lower case; empty if no host answers.
	MAC string `json:"mac,omitempty"`
	// Since is when the same host began to answer, or when the last one stopped.
	Since time.Time `json:"since,omitzero"`
	// LastMAC answered last, at LastAnswer; empty and zero if none ever did.
	LastMAC    string    `json:"lastMAC,omitempty"`
	LastAnswer time.Time `json:"lastAnswer,omitzero"`
	// Refuses reports whether the host refuses datagrams, which proves that it is up. Otherwise it may have been down
	// for up to 75 seconds, while the kernel keeps its MAC address.
	Refuses bool `json:"refuses,omitempty"`
	// VM is the interface of the VM with LastMAC, "namespace/vm/interface"; empty if the daemon knows no such VM.
	// Running is when its VirtualMachineInstance was created; zero if the VM does not run or is paused, as far as its
	// status says.
	VM      string    `json:"vm,omitempty"`
	Running time.Time `json:"running,omitzero"`
	// Other is a second MAC address that has answered in turn within the last two minutes; empty for none.
	Other string `json:"other,omitempty"`
}

// Log adds to problems since when they exist. The zero value is ready to use. It is safe for concurrent use.
type Log struct {
	mu    sync.Mutex
	since map[key]time.Time
}

// key identifies a problem in successive evaluations.
type key struct {
	code   Code
	object model.Ref
}

// Update returns the problems that exist now, not nil, sorted by code and object, each with the time of the first of the
// successive calls that had it. A problem with an earlier Since keeps it.
func (l *Log) Update(now time.Time, problems []Problem) []Problem {
	l.mu.Lock()
	defer l.mu.Unlock()
	since := map[key]time.Time{}
	list := append([]Problem{}, problems...)
	for i := range list {
		p := &list[i]
		k := key{p.Code, p.Object}
		first, known := l.since[k]
		switch {
		case !p.Since.IsZero() && (!known || p.Since.Before(first)):
			first = p.Since
		case !known:
			first = now
		}
		if earlier, ok := since[k]; !ok || first.Before(earlier) {
			since[k] = first
		}
		p.Since = first
	}
	l.since = since
	slices.SortStableFunc(list, Compare)
	return list
}

// Compare orders problems by code and object.
func Compare(a, b Problem) int {
	return cmp.Or(cmp.Compare(a.Code, b.Code), cmp.Compare(a.Object.String(), b.Object.String()), cmp.Compare(a.Message, b.Message))
}

// CompareCauses orders problems by the order of causes, and then as Compare.
func CompareCauses(a, b Problem) int {
	return cmp.Or(cmp.Compare(a.Code.position(), b.Code.position()), Compare(a, b))
}
