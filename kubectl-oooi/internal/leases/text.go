package leases

import (
	"time"

	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// Columns returns the columns of a table of leases, with namespaces if namespace is set, and Infras if infra is set.
func Columns(namespace, infra bool) []output.Column[*Lease] {
	return []output.Column[*Lease]{
		{Title: "NAMESPACE", Value: func(l *Lease) string { return l.Metadata.Namespace }, Hide: !namespace},
		{Title: "INFRA", Value: func(l *Lease) string { return l.Infra }, Hide: !infra},
		{Title: "ADDRESS", Value: func(l *Lease) string { return l.Address.String() }},
		{Title: "MAC", Value: func(l *Lease) string { return l.MAC }},
		{Title: "VM", Value: func(l *Lease) string { return l.VM }},
		{Title: "HOSTNAME", Value: func(l *Lease) string { return l.Hostname }},
		{Title: "STATE", Value: (*Lease).state},
		{Title: "SINCE", Value: func(l *Lease) string { return stamp(l.Since) }},
		{Title: "EXPIRES", Value: (*Lease).end},
		{Title: "INTERFACE", Value: func(l *Lease) string { return l.Interface }, Wide: true},
		{Title: "CLIENT", Value: func(l *Lease) string { return l.Client }, Wide: true},
		{Title: "LEASE", Value: func(l *Lease) string { return l.Metadata.Name }, Wide: true},
	}
}

// state returns the state, and whether the address is outside of the ranges.
func (l *Lease) state() string {
	if l.OutsideRanges {
		return l.State + ", outside of the ranges"
	}
	return l.State
}

// end returns when the lease ends: at a time, or with its VM or host; empty if it has ended.
func (l *Lease) end() string {
	switch {
	case !l.Expires.IsZero():
		return stamp(l.Expires)
	case dhcplease.IsHost(l.VM) && l.State == dhcplease.StateBound:
		return "with its entry"
	case l.VM != "" && l.State == dhcplease.StateBound:
		return "with the VM"
	default:
		return ""
	}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
