package doctor

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/densityops/oooi/internal/model"
)

func init() {
	register(Check{
		Code: "OOOI-POD-012", Title: "LimitRanges permit our pods to be created again", Needs: []string{"OOOI-POD-001"}, After: []string{"OOOI-POD-005"}, Reads: in(AtInfra, pods, limitRanges),
		Run: checkLimitRanges,
	})
}

// resourcesRemedy begins remedies for LimitRanges; a command follows.
const resourcesRemedy = "raise or lower the resources of the component in the Infra (infraComponents.*.resources), or change the LimitRange: "

// limitsRemedy returns the remedy for a LimitRange that rejects our pods.
func limitsRemedy(namespace, names string) string {
	return resourcesRemedy + fmt.Sprintf("kubectl -n %s edit limitrange %s", namespace, names)
}

// checkLimitRanges finds LimitRanges that reject pods like ours: they apply to pods that are created, not to those that run.
func checkLimitRanges(s *Site) []Finding {
	var findings []Finding
	for _, l := range all[corev1.LimitRange](s, limitRanges, AtInfra) {
		ref := model.Ref{Kind: limitRanges.Kind, Namespace: l.Namespace, Name: l.Name}
		for _, p := range s.componentPods() {
			var why []string
			for i := range l.Spec.Limits {
				why = append(why, exceeded(&l.Spec.Limits[i], &p.Spec)...)
			}
			if len(why) > 0 {
				findings = append(findings, warned(ref, limitsRemedy(l.Namespace, l.Name), "the LimitRange rejects Pod %s if it is created again, as after the loss of its node", p.Name).because(why...).of(componentOf(p)))
			}
		}
	}
	return findings
}

// exceeded returns why an item of a LimitRange rejects a pod.
func exceeded(item *corev1.LimitRangeItem, pod *corev1.PodSpec) []string {
	var why []string
	sum := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		r := *c.Resources.DeepCopy()
		if item.Type == corev1.LimitTypeContainer {
			why = append(why, exceededBy("container "+c.Name, item, withDefaults(item, r))...)
		}
	}
	for _, c := range pod.Containers {
		addResources(sum.Requests, c.Resources.Requests)
		addResources(sum.Limits, c.Resources.Limits)
	}
	if item.Type == corev1.LimitTypePod {
		why = append(why, exceededBy("all containers", item, sum)...)
	}
	return why
}

func addResources(sum, list corev1.ResourceList) {
	for name, q := range list {
		total := sum[name]
		total.Add(q)
		sum[name] = total
	}
}

// withDefaults returns resources with the defaults of an item for what they lack, as the API server adds them.
func withDefaults(item *corev1.LimitRangeItem, r corev1.ResourceRequirements) corev1.ResourceRequirements {
	filled := func(list, defaults corev1.ResourceList) corev1.ResourceList {
		all := maps.Clone(defaults)
		if all == nil {
			all = corev1.ResourceList{}
		}
		maps.Copy(all, list)
		return all
	}
	return corev1.ResourceRequirements{Requests: filled(r.Requests, item.DefaultRequest), Limits: filled(r.Limits, item.Default)}
}

// exceededBy returns why an item of a LimitRange rejects resources.
func exceededBy(what string, item *corev1.LimitRangeItem, r corev1.ResourceRequirements) []string {
	var why []string
	add := func(format string, args ...any) { why = append(why, what+": "+fmt.Sprintf(format, args...)) }
	number := func(list corev1.ResourceList, name corev1.ResourceName) *resource.Quantity {
		if q, ok := list[name]; ok {
			return &q
		}
		return nil
	}
	for _, name := range sortedResources(item.Min, item.Max, item.Default, item.MaxLimitRequestRatio) {
		least, most, ratio := number(item.Min, name), number(item.Max, name), number(item.MaxLimitRequestRatio, name)
		request, limit := number(r.Requests, name), number(r.Limits, name)
		switch {
		case least != nil && request == nil:
			add("it has no %s request, and the minimum is %s", name, least)
		case least != nil && request.Cmp(*least) < 0:
			add("its %s request %s is less than the minimum %s", name, request, least)
		case most != nil && limit == nil:
			add("it has no %s limit, and the maximum is %s", name, most)
		case most != nil && limit.Cmp(*most) > 0:
			add("its %s limit %s is more than the maximum %s", name, limit, most)
		case request != nil && limit != nil && request.Cmp(*limit) > 0:
			add("its %s request %s is more than the default limit %s", name, request, limit)
		case ratio != nil && (request == nil || limit == nil):
			add("it lacks a %s limit or request, whose ratio is limited to %s", name, ratio)
		case ratio != nil && limit.AsApproximateFloat64() > ratio.AsApproximateFloat64()*request.AsApproximateFloat64():
			add("its %s limit %s is more than %s times its request %s", name, limit, ratio, request)
		}
	}
	return why
}

func sortedResources(lists ...corev1.ResourceList) []corev1.ResourceName {
	var names []corev1.ResourceName
	for _, list := range lists {
		names = slices.AppendSeq(names, maps.Keys(list))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// limitError matches the errors of the API server about a LimitRange, with the resource.
var limitError = regexp.MustCompile(`(minimum|maximum) (\S+) usage per (Container|Pod) is|(\S+) max limit to request ratio per (Container|Pod) is|(requests): Invalid value: .* must be less than or equal to (\S+) limit`)

// limitRejection returns the LimitRanges that reject a pod with an error of the API server, and the remedy; empty if the error
// is of another kind.
func (s *Site) limitRejection(namespace, err string) (by, remedy string) {
	m := limitError.FindStringSubmatch(err)
	if m == nil {
		return "", ""
	}
	of := func(item corev1.LimitRangeItem) corev1.ResourceList {
		switch {
		case m[1] == "minimum":
			return item.Min
		case m[1] == "maximum":
			return item.Max
		case m[4] != "":
			return item.MaxLimitRequestRatio
		}
		return item.Default
	}
	var names []string
	for _, l := range all[corev1.LimitRange](s, limitRanges, AtInfra) {
		if slices.ContainsFunc(l.Spec.Limits, func(item corev1.LimitRangeItem) bool {
			_, ok := of(item)[corev1.ResourceName(m[2]+m[4]+m[7])]
			return ok
		}) {
			names = append(names, l.Name)
		}
	}
	if len(names) == 0 { // they cannot be read, or have changed
		return "a LimitRange of the namespace", resourcesRemedy + fmt.Sprintf("kubectl -n %s get limitranges -o yaml", namespace)
	}
	return "LimitRange " + strings.Join(names, ", "), limitsRemedy(namespace, strings.Join(names, " "))
}
