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
	// About is the check's paragraph in docs/reference: what fails, why, and what the remedy does.
	About string
	// Component is the default of Finding.Component; empty for the whole site.
	Component string
	// InfraOnly means that the check does not apply to a ProxyServer without an Infra.
	InfraOnly bool
	// Reads lists the data that Run reads.
	Reads []site.Read
	// requested reports whether the user requested the check. Nil means always.
	requested func(*Site) bool
	// Outdated returns why the check's data may be outdated, in which case the check is skipped; empty if the data is current. Nil means never.
	Outdated func(*Site) string
	// Run returns the findings; none if the check passes.
	Run func(*Site) []Finding
}

// Site is a site with data that checks share. It is used by one goroutine.
type Site struct {
	*site.Site

	// reads lists the data that all checks read.
	reads []site.Read
	// drift are findings about objects that differ from the rendered ones; nil if they were not compared. undrifted is why comparing failed.
	drift     []Finding
	undrifted string
	// probe are the findings of the probe from the VLAN; nil if none was requested.
	probe []Finding
	// leases caches the DHCP leases of the Infra.
	leases *leaseList
}

// Components of findings, in addition to the components of an Infra.
const (
	componentControl = site.ComponentControl
	// componentCluster is the hosted cluster.
	componentCluster = "cluster"
	// componentVMs are the VMs on the network, or a single one.
	componentVMs = "vms"
	// componentApps is the apps ingress.
	componentApps = "apps"
	// componentOther is for objects on which no other component depends, such as orphans.
	componentOther = "other"
)

// dependencies maps a component to the components that it depends on. All except componentOther also depend on the whole site.
var dependencies = map[string][]string{
	v1alpha1.ComponentDNS:   {componentCluster},
	v1alpha1.ComponentProxy: {componentCluster},
	componentVMs:            {v1alpha1.ComponentDHCP, componentCluster},
	componentApps:           {v1alpha1.ComponentProxy, v1alpha1.ComponentDNS, componentCluster, componentControl},
}

// Severity is how serious a finding is.
type Severity string

// Severities of findings, as printed.
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
	// Component is the affected component; empty for the whole site.
	Component string `json:"component,omitempty"`
	// Message states the fault in one line. Evidence is the data that proves the fault, one line for each item.
	Message  string   `json:"message"`
	Evidence []string `json:"evidence,omitempty"`
	// Remedy is what to do, as an imperative.
	Remedy string `json:"remedy"`
	// ConsequenceOf is the code of the check whose failure possibly causes this one; empty for none.
	ConsequenceOf string `json:"consequenceOf,omitempty"`
}

// failed returns a finding with severity Fail, and warned a finding with severity Warn.
func failed(object model.Ref, remedy, format string, args ...any) Finding {
	return Finding{Severity: Fail, Object: object, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

func warned(object model.Ref, remedy, format string, args ...any) Finding {
	return Finding{Severity: Warn, Object: object, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

// forComponent limits a finding to a component.
func (f Finding) forComponent(component string) Finding {
	f.Component = component
	return f
}

// withEvidence appends evidence to a finding.
func (f Finding) withEvidence(evidence ...string) Finding {
	f.Evidence = append(slices.Clip(f.Evidence), evidence...)
	return f
}

// DocsPage returns the name of the check's page in docs/reference. Checks with the same prefix share a page.
func (c *Check) DocsPage() string { return "doctor-" + strings.ToLower(c.Prefix()) + ".md" }

// Docs returns the URL of the documentation of a check.
func (c *Check) Docs() string {
	return "https://github.com/densityops/oooi/blob/main/docs/reference/" + c.DocsPage() + "#" + strings.ToLower(c.Code)
}

// Prefix returns the part of the code that names its subject, such as DNS.
func (c *Check) Prefix() string { return strings.Split(c.Code, "-")[1] }
