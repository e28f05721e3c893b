// Package selector finds the one Service that has certain labels: for the backends of
// ProxyServers and of VirtualIngresses alike. It is pure.
package selector

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Matches reports whether an object has all the labels. Without any label asked for, none
// does: that would be every Service of a namespace.
func Matches(has, want map[string]string) bool {
	for key, value := range want {
		if is, ok := has[key]; !ok || is != value {
			return false
		}
	}
	return len(want) > 0
}

// Compare orders objects by who came first, and those of one second by name.
func Compare[S metav1.Object](a, b S) int {
	was, is := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(was.Compare(is.Time), strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
}

// Fault is why there is not one Service.
type Fault int

// The faults there are.
const (
	// None: there is one.
	None Fault = iota
	// NoMatch: no Service has the labels.
	NoMatch
	// Several Services have them, and none is to be preferred.
	Several
)

// Choice is the Service to use, and what is wrong.
type Choice[S metav1.Object] struct {
	// Service is the one to use; the zero value for none. With a Fault it is the last one
	// that was found, as long as it has the labels.
	Service S
	Fault   Fault
	// Message says what is wrong, and names the Services there are.
	Message string
}

// Choose chooses among the Services of a namespace that have the labels. Where there are
// several and none is to be preferred, the one named last stays.
func Choose[S metav1.Object](found []S, namespace string, labels map[string]string, policy v1alpha1.OnMultiple, last string) Choice[S] {
	if len(found) == 0 {
		return Choice[S]{Fault: NoMatch, Message: fmt.Sprintf("no Service in %s has the labels %s", namespace, Text(labels))}
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
	c := Choice[S]{Fault: Several, Message: fmt.Sprintf("%d Services in %s have the labels %s: %s: say which with onMultiple, or make them differ",
		len(found), namespace, Text(labels), names(found))}
	for _, s := range found {
		if s.GetName() == last {
			c.Service = s
			c.Message += "; " + last + ", found before, stays in use"
		}
	}
	return c
}

// mostNames is how many names a message has, at most.
const mostNames = 10

// names are the objects' names, oldest first.
func names[S metav1.Object](found []S) string {
	found = slices.SortedFunc(slices.Values(found), Compare[S])
	var list []string
	for _, s := range found[:min(len(found), mostNames)] {
		list = append(list, s.GetName())
	}
	if more := len(found) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, ", ")
}

// Text writes labels as kubectl takes them: "key=value,...", sorted by key.
func Text(labels map[string]string) string {
	list := make([]string, 0, len(labels))
	for key, value := range labels {
		list = append(list, key+"="+value)
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}
