package setup

import (
	"cmp"
	"fmt"

	"github.com/densityops/oooi/api/v1alpha1"
)

// replacementTimes are the interruptions while the only replica of a component is replaced: the row "setup with another image" of
// docs/reference/measurements.md.
var replacementTimes = map[string]string{
	v1alpha1.ComponentDNS:   "about 3 s without DNS",
	v1alpha1.ComponentProxy: "about 4 s without new connections to the control plane, and open connections end",
	v1alpha1.ComponentDHCP:  "about 3 s without leases",
}

// Interruptions returns a line for each component whose serving pods are replaced: which service VMs miss, and for about how
// long.
func Interruptions(changes []*ObjectChange) []string {
	kept, serving, replaced := map[string]bool{}, map[string]int{}, map[string]int{}
	for _, c := range changes {
		if c.Kind != "StatefulSet" {
			continue
		}
		component := cmp.Or(c.Live, c.Merged).GetLabels()[v1alpha1.LabelComponent]
		kept[component] = kept[component] || c.Verb != Deleted
		if !hasReadyPod(c.Live) {
			continue
		}
		serving[component]++
		if len(c.Pods) > 0 {
			replaced[component]++
		}
	}
	var lines []string
	for _, component := range rolloutOrder {
		switch n, all := replaced[component], serving[component]; {
		case n == 0:
		case !kept[component]:
			lines = append(lines, component+" ends")
		case all > 1:
			lines = append(lines, fmt.Sprintf("%s restarts: %d of %d replicas, one after the other; the others serve", component, n, all))
		default:
			lines = append(lines, component+" restarts: "+replacementTimes[component])
		}
	}
	return lines
}
