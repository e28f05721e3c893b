package model

import (
	"net/netip"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/internal/selector"
)

// addApps sets the apps addresses of each cluster with an apps domain.
func (b *builder) addApps(in *Objects, options *AppsOptions) {
	f := appsFinder{
		builder: b, options: options, assigned: assignedByVLAN(b.infras),
		hosted: map[string]*objects.AppsService{},
	}
	for _, s := range in.AppsServices {
		f.hosted[s.Namespace+"/"+s.Name] = s
	}
	for _, c := range b.clusters {
		if len(c.AppsDomains) > 0 {
			c.Apps = f.find(c)
		}
	}
}

// find returns the apps addresses of a cluster, or nil if neither the options nor an Infra enable apps.
func (f *appsFinder) find(c *draft) *Apps {
	infra := appsInfra(c)
	if f.options.Admin {
		c.APIServer = f.apiServer(c, infra)
	}
	sources := f.options.Sources
	if len(sources) == 0 {
		if infra == nil {
			return nil
		}
		sources = sourcesOf(infra.apps)
	}
	apps := &Apps{}
	a := appsQuery{draft: c, apps: apps, infra: infra, problemRef: c.Ref, filter: f.newAddressFilter(c, infra)}
	if infra != nil {
		a.problemRef, apps.Infra = infra.Ref, &infra.Ref
	}
	if !c.isPlaceholder() {
		a.lastGood = a.filter.accepted(f.previous.lastGood[c.identity()])
		if slices.Contains(sources, AppsHosted) {
			apps.Hosted = f.access(c, infra)
		}
	}
	for _, source := range sources {
		found := f.lookUp(source, a)
		if len(found) == 0 {
			continue
		}
		apps.Addresses, apps.Source = found, source
		if source == AppsStatus { // the last valid address, if the Service lost its address
			apps.Withdrawn = apps.Withdrawn || infra != nil && infra.status.Reason == v1alpha1.AppsIngressAddressWithdrawn
		} else {
			apps.Withdrawn = false
		}
		return apps
	}
	if len(a.lastGood) > 0 {
		apps.Addresses, apps.Source = a.lastGood, AppsLastGood
	}
	return apps
}

// appsInfra returns the Infra that configures a cluster's apps: the first that enables appsIngress, or nil.
func appsInfra(c *draft) *Infra {
	for _, i := range c.infras {
		if i.apps.IsEnabled() {
			return i
		}
	}
	return nil
}

// sourcesOf returns the sources that an Infra configures. The status has what xdsd control read from the same
// Service, for daemons that cannot read it.
func sourcesOf(apps *v1alpha1.AppsIngress) []AppsSource {
	switch apps.Source {
	case v1alpha1.AppsIngressSourceStatic:
		return []AppsSource{AppsStatic}
	case v1alpha1.AppsIngressSourceMirroredService:
		return []AppsSource{AppsMirrored, AppsStatus}
	default:
		return []AppsSource{AppsHosted, AppsStatus}
	}
}

// lookUp returns the accepted addresses of one source.
func (f *appsFinder) lookUp(source AppsSource, a appsQuery) []netip.Addr {
	switch source {
	case AppsHosted:
		return f.lookUpHosted(a)
	case AppsMirrored:
		return f.lookUpMirrored(a)
	case AppsStatic:
		if a.infra != nil {
			return f.lookUpStatic(a)
		}
	case AppsStatus:
		if a.infra != nil && a.infra.status != nil {
			texts := a.infra.status.ExternalIPs
			if len(texts) == 0 && a.infra.status.ExternalIP != "" {
				texts = []string{a.infra.status.ExternalIP}
			}
			return f.accept(a, texts, "status of "+a.infra.String())
		}
	}
	return nil
}

// lookUpStatic returns the addresses in the Infra's spec. It omits and reports reserved addresses of the VLAN; all others
// that clients can reach are accepted, whatever their network.
func (f *appsFinder) lookUpStatic(a appsQuery) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(a.infra.staticApps), func(address netip.Addr) bool {
		what := reservedAddress(address, a.filter.networks)
		if what != "" {
			f.found.add(a.infra.Ref, ReasonInvalidAddress, "spec.appsIngress.addresses: %s is the %s, which no host can have; the address is not used", address, what)
		}
		return what != ""
	})
}

// lookUpHosted returns the addresses of the Service in the hosted cluster, and reports why they are missing.
func (f *appsFinder) lookUpHosted(a appsQuery) []netip.Addr {
	s := f.hosted[a.Key()]
	if s == nil || a.isPlaceholder() {
		return nil // not read yet
	}
	if s.Fault.Reason != "" {
		f.found.add(a.problemRef, Reason(s.Fault.Reason), "%s", s.Fault.Message)
	}
	a.apps.Followed = s.Read && s.Fault.Reason == ""
	if s.Service != nil {
		a.apps.Revision = s.Service.ResourceVersion // only set with the option Admin
	}
	switch {
	case s.Service != nil:
		return f.lookUpService(a, s.Service, "in "+a.String())
	case s.Read:
		f.reportMissing(a, a.String()+" lacks Service "+f.describeService(a))
	}
	return nil
}

// lookUpMirrored returns the addresses of the Service in the management cluster, and reports why they are missing.
func (f *appsFinder) lookUpMirrored(a appsQuery) []netip.Addr {
	if s := f.findMirrored(a); s != nil {
		return f.lookUpService(a, s, "for "+a.String())
	}
	f.reportMissing(a, "the management cluster lacks mirrored Service "+f.describeService(a)+" of "+a.String())
	return nil
}

// lookUpService returns the accepted addresses of a Service. relation describes the Service's relation to the
// cluster, for messages.
func (f *appsFinder) lookUpService(a appsQuery, s *objects.Service, relation string) []netip.Addr {
	what := "Service " + s.Namespace + "/" + s.Name + " " + relation
	texts := s.LoadBalancerIPs()
	if len(texts) == 0 {
		f.reportMissing(a, what+" lacks a load balancer address")
	}
	return f.accept(a, texts, what)
}

// reportMissing reports that a source lacks an address, or lost it. state is a sentence about the source.
func (f *appsFinder) reportMissing(a appsQuery, state string) {
	if len(a.lastGood) > 0 {
		a.apps.Withdrawn = true
		f.found.add(a.problemRef, ReasonAddressWithdrawn, "%s%s", state, LastAddressStays)
		return
	}
	f.found.add(a.problemRef, ReasonAddressNotAssigned, "%s", state)
}

// LastAddressStays ends the first sentence of messages about addresses that a source has lost.
const LastAddressStays = "; the last address stays in use"

// maxAddresses limits the addresses of one source; a load balancer assigns one of each family. It bounds the size of
// DNS responses and of the list of problems, because the owner of a hosted cluster can write the status.
const maxAddresses = 16

// accept returns the accepted addresses of a source, and reports the others.
func (f *appsFinder) accept(a appsQuery, texts []string, where string) []netip.Addr {
	if len(texts) > maxAddresses {
		f.found.add(a.problemRef, ReasonAddressNotAllowed, "%s has more than %[2]d addresses: only the first %[2]d are used", where, maxAddresses)
		texts = texts[:maxAddresses]
	}
	var list []netip.Addr
	for _, text := range texts {
		address, _ := netip.ParseAddr(text) // the zero Addr is rejected
		if why := a.filter.rejectReason(address); why != "" {
			f.found.add(a.problemRef, ReasonAddressNotAllowed, "%s has the address %q, which %s; the address is not used", where, text, why)
			continue
		}
		list = append(list, address.Unmap())
	}
	return sortedAddrs(list)
}

// describeService returns the name or labels of the apps Service, for messages.
func (f *appsFinder) describeService(a appsQuery) string {
	if len(f.options.Selector) > 0 {
		return "with labels " + selector.Text(f.options.Selector)
	}
	return f.serviceName(a.Cluster, a.infra)
}
