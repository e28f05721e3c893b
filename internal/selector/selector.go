// Package selector selects one Service by its labels, for backends of ProxyServers and VirtualIngresses.
package selector

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Matches reports whether labels include all of selector. It is false for an empty selector, which would match every
// Service of a namespace.
func Matches[V ~string](labels map[string]string, selector map[string]V) bool {
	for key, value := range selector {
		if got, ok := labels[key]; !ok || got != string(value) {
			return false
		}
	}
	return len(selector) > 0
}

// Compare orders objects by creation time, then by namespace and name.
func Compare[S metav1.Object](a, b S) int {
	createdA, createdB := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(createdA.Compare(createdB.Time), strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
}

// Fault is why no single Service was selected.
type Fault int

// All faults.
const (
	// None: one Service was selected.
	None Fault = iota
	// NoMatch: no Service has the labels.
	NoMatch
	// Several: several Services have the labels, and the policy is OnMultipleFail.
	Several
)

// Choice is the selected Service and the fault, if any.
type Choice[S metav1.Object] struct {
	// Service is the selected Service, or the zero value. With the fault Several, it is the one selected
	// before, if that still has the labels.
	Service S
	Fault   Fault
	// Message explains the fault and names at most ten of the Services that match; empty without a fault.
	Message string
}

// Choose selects one of the Services in found, which must be all Services of the namespace with the labels. If found
// is empty, it returns the fault NoMatch. If there are several, OnMultipleOldest and OnMultipleNewest select the oldest
// or the newest. For any other policy it returns the fault Several, with the Service named last if it is among found.
func Choose[S metav1.Object](found []S, namespace string, labels map[string]string, policy v1alpha1.OnMultiple, last string) Choice[S] {
	if len(found) == 0 {
		return Choice[S]{Fault: NoMatch, Message: fmt.Sprintf("no Service in namespace %s has the labels %s", namespace, Text(labels))}
	}
	if policy == v1alpha1.OnMultipleOldest {
		return Choice[S]{Service: slices.MinFunc(found, Compare[S])}
	}
	if policy == v1alpha1.OnMultipleNewest {
		return Choice[S]{Service: slices.MaxFunc(found, Compare[S])}
	}
	if len(found) == 1 {
		return Choice[S]{Service: found[0]}
	}
	c := Choice[S]{Fault: Several, Message: fmt.Sprintf("%d Services in namespace %s have the labels %s: %s; set onMultiple, or add labels that distinguish them",
		len(found), namespace, Text(labels), names(found))}
	for _, s := range found {
		if s.GetName() == last {
			c.Service = s
			c.Message += "; " + last + ", selected before, stays in use"
		}
	}
	return c
}

// maxNames limits the names in a message.
const maxNames = 10

// names returns the objects' names, oldest first, for a message.
func names[S metav1.Object](found []S) string {
	found = slices.SortedFunc(slices.Values(found), Compare[S])
	var list []string
	for _, s := range found[:min(len(found), maxNames)] {
		list = append(list, s.GetName())
	}
	if more := len(found) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, ", ")
}

// Text returns labels in kubectl's syntax, "key=value,...", sorted by key.
func Text(labels map[string]string) string {
	list := make([]string, 0, len(labels))
	for key, value := range labels {
		list = append(list, key+"="+value)
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}
