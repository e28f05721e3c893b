package control

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/problem"
)

// Reasons of the conditions that observation.condition returns, besides the codes of problems.
const (
	reasonReady       = "Ready"
	reasonDisabled    = "Disabled"
	reasonNotObserved = "NotObserved"
)

// maxMessages limits the problems in the message of a condition.
const maxMessages = 5

// causing returns the problems of severity Fail that make a condition false.
func (o *observation) causing(condition string) []problem.Problem {
	if o == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(o.problems), func(p problem.Problem) bool {
		return p.Severity != problem.Fail || p.Code.Kind().Condition != condition
	})
}

// condition returns a condition of an object that is false if problems make it so, and unknown if it was not observed. fault is
// another reason why it is false, with its message; empty for none.
func (o *observation) condition(kind string, object model.Ref, observed bool, reason, fault, healthy string) metav1.Condition {
	problems := o.causing(kind)
	switch {
	case len(problems) > 0:
		return condition(kind, metav1.ConditionFalse, string(problems[0].Code), "%s", problemText(object, problems, fault))
	case fault != "":
		return condition(kind, metav1.ConditionFalse, reason, "%s", fault)
	case !observed:
		return condition(kind, metav1.ConditionUnknown, reasonNotObserved, "no pod reports it")
	}
	return condition(kind, metav1.ConditionTrue, reasonReady, "%s", healthy)
}

// problemText returns the messages of problems, each with the object that it is about, and the remedy of the first.
// It omits evidence, which changes.
func problemText(object model.Ref, problems []problem.Problem, fault string) string {
	var texts []string
	for i := range problems {
		p := &problems[i]
		text := p.Message
		switch {
		case p.Object == object:
		case p.Object.Namespace == object.Namespace:
			text = p.Object.Kind + " " + p.Object.Name + ": " + text
		default:
			text = p.Object.String() + ": " + text
		}
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	if len(texts) > maxMessages {
		texts = append(texts[:maxMessages], "and more: run 'kubectl oooi doctor'")
	}
	if fault != "" {
		texts = append(texts, fault)
	}
	if remedy := problems[0].Advice(); remedy != "" {
		texts = append(texts, "remedy: "+remedy)
	}
	return strings.Join(texts, "; ")
}

// reports returns whether a pod of a component serves /problems.
func (o *observation) reports(component string) bool { return o != nil && o.components[component] }

// vlanReady and backendsReady return the conditions of Infras and standalone ProxyServers.
func (o *observation) vlanReady(object model.Ref) metav1.Condition {
	return o.condition(v1alpha1.ConditionVLANReady, object, o != nil && o.vlan, "", "",
		"the pods reach each other on the VLAN, and no other host has their addresses")
}

func (o *observation) backendsReady(object model.Ref) metav1.Condition {
	return o.condition(v1alpha1.ConditionBackendsReady, object, o.reports(v1alpha1.ComponentProxy), "", "", "no endpoint of a backend fails")
}
