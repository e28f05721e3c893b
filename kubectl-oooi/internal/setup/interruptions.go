package setup

import (
	"fmt"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
)

// replacementTimes are how long the only replica of a component is away while its pod is replaced: the row "setup with
// another image" of docs/reference/measurements.md.
var replacementTimes = map[string]string{
	v1alpha1.ComponentDNS:   "about 3 s without names",
	v1alpha1.ComponentProxy: "about 4 s without new connections to the control plane, and open connections end",
	v1alpha1.ComponentDHCP:  "about 3 s without leases",
}

// Interruptions returns a line for each component whose pods serve and are replaced by changes: what VMs do without, and
// for about how long.
func Interruptions(changes []ObjectChange) []string {
	type count struct{ serving, replaced, after int }
	counts := map[string]*count{}
	for i := range changes {
		c := &changes[i]
		if c.Kind != "StatefulSet" {
			continue
		}
		component := componentLabel(c)
		if counts[component] == nil {
			counts[component] = &count{}
		}
		one := counts[component]
		if c.Verb != Deleted {
			one.after++
		}
		if hasReadyPod(c.Live) {
			one.serving++
			if len(c.Pods) > 0 {
				one.replaced++
			}
		}
	}
	var lines []string
	for _, component := range rolloutOrder {
		switch c := counts[component]; {
		case c == nil || c.replaced == 0:
		case c.after == 0:
			lines = append(lines, component+" ends")
		case c.serving > 1:
			lines = append(lines, fmt.Sprintf("%s restarts: %d of %d replicas, one after the other; the others serve", component, c.replaced, c.serving))
		default:
			lines = append(lines, component+" restarts: "+replacementTimes[component])
		}
	}
	return lines
}

func componentLabel(c *ObjectChange) string {
	if c.Live != nil {
		return c.Live.GetLabels()[v1alpha1.LabelComponent]
	}
	return c.Merged.GetLabels()[v1alpha1.LabelComponent]
}

// announce prints the Interruptions of the rollout.
func (r *rollout) announce() error {
	var list []ObjectChange
	for _, o := range r.plan.Objects {
		list = append(list, r.objectChange(r.plan, o))
	}
	for _, live := range r.obsolete {
		list = append(list, ObjectChange{Entry: inventory.Of(live), Verb: Deleted, Live: live, Pods: pods(live)})
	}
	for _, line := range Interruptions(list) {
		if _, err := fmt.Fprintln(r.Out, line); err != nil {
			return fmt.Errorf("printing what restarts: %w", err)
		}
	}
	return nil
}
