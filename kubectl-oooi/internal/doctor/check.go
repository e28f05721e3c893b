package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// Check is one condition that a healthy site meets.
type Check struct {
	// Code identifies the check, such as OOOI-DNS-003. It is stable, and is not reused when the check is
	// removed.
	Code string
	// Title is the condition: a sentence that is true if the check passes.
	Title string
	// Component is the component that the check is about, if its code does not name it.
	Component string
	// Needs are codes of checks that run earlier. The check is skipped unless all of them pass or warn. A failure that
	// is limited to other components does not skip a check of one component.
	Needs []string
	// After are codes of checks that run earlier and explain failures of this one: for the components for which they
	// or what they depend on fail, the check has no findings. It is skipped if these are all components, or the only
	// one that it is about. Unlike with Needs, it runs if they were skipped because data could not be read.
	After []string
	// AfterParts are like After, but only failures that are limited to a part of a component, such as an upstream of the
	// proxy, explain failures of this check.
	AfterParts []string
	// Reads are all objects, pages and access reviews that the check reads. The result of a check that reads
	// anything else is Broken.
	Reads []Read
	// NotRequested returns why the user did not request the check, empty if it was requested. It takes
	// precedence over Needs and After. Nil means always requested.
	NotRequested func(*Site) string
	// NotApplicable returns why the check does not apply to the Infra, empty if it does. Nil means always
	// applicable.
	NotApplicable func(*Site) string
	// Backend returns the name of the upstream of the proxy that the check is about, empty for none. A failure that is
	// limited to this upstream skips the check. Nil means none.
	Backend func(*Site) string
	// Run returns the findings; none if the check passes or is inconclusive.
	Run func(*Site) []Finding
}

// dependencies returns the codes of the checks that must run before this one.
func (c *Check) dependencies() []string { return slices.Concat(c.Needs, c.After, c.AfterParts) }

// ofProxy reports whether the check also applies to a proxy without an Infra: those of hosted clusters, of VMs and their
// network and of other components do not.
func (c *Check) ofProxy() bool {
	switch c.component() {
	case v1alpha1.ComponentDHCP, v1alpha1.ComponentDNS:
		return false
	}
	if slices.Contains([]string{"OOOI-PRX-001", "OOOI-NET-002", "OOOI-NET-004", "OOOI-NET-005", "OOOI-NET-008", "OOOI-OLD-004", "OOOI-SVC-004", "OOOI-LNK-012"}, c.Code) {
		return false
	}
	return !slices.ContainsFunc([]string{"OOOI-HC-", "OOOI-APP-", "OOOI-PRB-"}, func(prefix string) bool { return strings.HasPrefix(c.Code, prefix) })
}

// component returns the component that the check is about, empty if it is about several.
func (c *Check) component() string {
	switch parts := strings.Split(c.Code, "-"); {
	case c.Component != "":
		return c.Component
	case slices.Contains(parts, "DNS"):
		return v1alpha1.ComponentDNS
	case slices.Contains(parts, "DHCP"):
		return v1alpha1.ComponentDHCP
	case slices.Contains(parts, "PRX"):
		return v1alpha1.ComponentProxy
	}
	return ""
}

// docs is the page that documents all checks, with the code in lower case as anchor.
const docs = "https://github.com/densityops/oooi/blob/main/docs/reference/doctor.md#"

// Docs returns the URL of the check's documentation.
func (c *Check) Docs() string { return docs + strings.ToLower(c.Code) }

// Severity is how serious a finding is.
type Severity string

// Severities of findings, in the words of the output.
const (
	// Warn means that the site works, but may fail later or is not configured as intended.
	Warn Severity = "warn"
	// Fail means that something on the VLAN does not work.
	Fail Severity = "fail"
)

// Finding is one fault of one object.
type Finding struct {
	Severity Severity  `json:"severity"`
	Object   model.Ref `json:"object"`
	// Message states the fault in one line. Evidence has the data that proves it, one line for each item.
	Message  string   `json:"message"`
	Evidence []string `json:"evidence,omitempty"`
	// Remedy is what to do, as an imperative.
	Remedy string `json:"remedy"`
	// Fix is what doctor can do about the fault; nil for nothing.
	Fix *Fix `json:"-"`

	// component is the component or the scope of upstreamScope or portScope that the fault is limited to; allComponents if
	// it is not.
	component string
}

// failed returns a finding of severity Fail; warned returns one of severity Warn.
func failed(object model.Ref, remedy, format string, args ...any) Finding {
	return Finding{Severity: Fail, Object: object, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

func warned(object model.Ref, remedy, format string, args ...any) Finding {
	return Finding{Severity: Warn, Object: object, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

// of limits a finding to a component: it does not block checks of other components.
func (f Finding) of(component string) Finding {
	f.component = component
	return f
}

// upstreamPrefix, portPrefix and hostPrefix begin scopes of findings that are no components.
const (
	upstreamPrefix = "upstream "
	portPrefix     = "port "
	hostPrefix     = "host "
)

// upstreamScope returns the scope of findings about an upstream of the proxy, and portScope that of findings about a port
// of the proxy. They block only findings about the same upstream or port.
func upstreamScope(name string) string { return upstreamPrefix + name }

func portScope(port uint16) string { return fmt.Sprint(portPrefix, port) }

// hostScope returns the scope of findings about one host on the VLAN, which block only findings about the same host.
func hostScope(address netip.Addr) string { return hostPrefix + address.String() }

// isPart reports whether a scope is part of a component.
func isPart(scope string) bool {
	return strings.HasPrefix(scope, upstreamPrefix) || strings.HasPrefix(scope, portPrefix) || strings.HasPrefix(scope, hostPrefix)
}

// because appends evidence to a finding.
func (f Finding) because(evidence ...string) Finding {
	f.Evidence = append(f.Evidence, evidence...)
	return f
}
