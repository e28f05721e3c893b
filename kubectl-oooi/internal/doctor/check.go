package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// Check is one condition that a healthy site meets.
type Check struct {
	// Code identifies the check, such as OOOI-DNS-003. It is stable, and is not reused when the check is removed.
	Code string
	// Title is the condition: a sentence that is true if the check passes.
	Title string
	// About is a paragraph for docs/reference/doctor.md: what fails, why, and what the remedy does.
	About string
	// Component is what findings are about, unless they have another one; empty for the whole site.
	Component string
	// InfraOnly means that the check does not apply to a ProxyServer without an Infra.
	InfraOnly bool
	// Reads is all that Run reads.
	Reads []site.Read
	// requested reports whether the data of the check was requested. Nil means always.
	requested func(*Site) bool
	// Outdated returns why what the check reads may be outdated, so that it is skipped; empty if it is not. Nil means never.
	Outdated func(*Site) string
	// Run returns the findings; none if the check passes.
	Run func(*Site) []Finding
}

// Site is a site with data that checks share. It is used by one goroutine.
type Site struct {
	*site.Site

	// reads is what all checks read.
	reads []site.Read
	// drift is how objects differ from the rendered ones; nil if they were not compared. undrifted is why that failed.
	drift     []Finding
	undrifted string
	// probe are the findings of probing from the VLAN; nil if it was not requested.
	probe []Finding
	// leases caches the DHCP leases of the Infra.
	leases *leaseList
}

// Components of findings, besides those of an Infra.
const (
	componentControl = site.ComponentControl
	// componentCluster is the hosted cluster.
	componentCluster = "cluster"
	// componentVMs are the VMs on the network, or a single one.
	componentVMs = "vms"
	// componentApps is the apps ingress.
	componentApps = "apps"
	// componentOther is anything on which nothing depends, such as leftovers.
	componentOther = "other"
)

// dependencies are the components on which each depends. All but componentOther depend on the whole site as well.
var dependencies = map[string][]string{
	v1alpha1.ComponentDNS:   {componentCluster},
	v1alpha1.ComponentProxy: {componentCluster},
	componentVMs:            {v1alpha1.ComponentDHCP, componentCluster},
	componentApps:           {v1alpha1.ComponentProxy, v1alpha1.ComponentDNS, componentCluster, componentControl},
}

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
	// Component is what the fault is limited to; empty for the whole site.
	Component string `json:"component,omitempty"`
	// Message states the fault in one line. Evidence has the data that proves it, one line for each item.
	Message  string   `json:"message"`
	Evidence []string `json:"evidence,omitempty"`
	// Remedy is what to do, as an imperative.
	Remedy string `json:"remedy"`
	// ConsequenceOf is the code of the check whose failure possibly causes this one; empty for none.
	ConsequenceOf string `json:"consequenceOf,omitempty"`
}

// failed returns a finding of severity Fail; warned returns one of severity Warn.
func failed(object model.Ref, remedy, format string, args ...any) Finding {
	return Finding{Severity: Fail, Object: object, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

func warned(object model.Ref, remedy, format string, args ...any) Finding {
	return Finding{Severity: Warn, Object: object, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

// about limits a finding to a component.
func (f Finding) about(component string) Finding {
	f.Component = component
	return f
}

// because appends evidence to a finding.
func (f Finding) because(evidence ...string) Finding {
	f.Evidence = append(slices.Clip(f.Evidence), evidence...)
	return f
}

// Docs returns the URL of the documentation of a check.
func (c *Check) Docs() string {
	return "https://github.com/densityops/oooi/blob/main/docs/reference/" + c.DocsPage() + "#" + strings.ToLower(c.Code)
}

// Prefix returns the part of the code that names its subject, such as DNS.
func (c *Check) Prefix() string { return strings.Split(c.Code, "-")[1] }
