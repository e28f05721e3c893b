package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/densityops/oooi/internal/model"
)

// Check is one thing that has to be so.
type Check struct {
	// Code is for ever: OOOI-DNS-003. That of a check that is gone is not used again.
	Code string
	// Title says what is so when the check passes.
	Title string
	// Needs are the codes of the checks before this one without which it says nothing.
	Needs []string
	// After are the codes of checks before this one that explain it when they fail: then it is not
	// made. It is where they cannot be.
	After []string
	// Reads are all kinds of objects that it looks at.
	Reads []Read
	// Wanted says why nobody wants it to be made, whatever others say; empty where somebody does.
	// Nil: it is always wanted.
	Wanted func(*Site) string
	// Applies says why there is nothing to check; empty where there is. Nil: there always is.
	Applies func(*Site) string
	// Run returns what is wrong; nothing: the check passes.
	Run func(*Site) []Finding
}

// AsksPods reports whether it can be made only where there are pods that answer.
func (c *Check) AsksPods() bool {
	return slices.ContainsFunc(c.Reads, func(r Read) bool { return r.Kind == podPages })
}

// docs is where a code is explained.
const docs = "https://github.com/densityops/oooi/blob/main/docs/reference/doctor.md#"

// Docs is where the check is explained, a URL.
func (c *Check) Docs() string { return docs + strings.ToLower(c.Code) }

// Severity is how much a finding matters.
type Severity string

// Severities.
const (
	// Warn: it works, and may not for long, or not as meant.
	Warn Severity = "warn"
	// Fail: something on the VLAN does not work.
	Fail Severity = "fail"
)

// Finding is one thing that is wrong with one object.
type Finding struct {
	Severity Severity  `json:"severity"`
	Object   model.Ref `json:"object"`
	// Message says in one line what is wrong, Evidence what shows it.
	Message  string   `json:"message"`
	Evidence []string `json:"evidence,omitempty"`
	// Remedy says what to do.
	Remedy string `json:"remedy"`
}

// failed and warned make findings.
func failed(object model.Ref, remedy, format string, args ...any) Finding {
	return Finding{Severity: Fail, Object: object, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

func warned(object model.Ref, remedy, format string, args ...any) Finding {
	return Finding{Severity: Warn, Object: object, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

// because adds what shows it.
func (f Finding) because(evidence ...string) Finding {
	f.Evidence = append(f.Evidence, evidence...)
	return f
}
