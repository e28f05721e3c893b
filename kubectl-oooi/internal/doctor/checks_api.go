package doctor

import (
	"slices"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

func apiChecks() []Check {
	return []Check{{
		Code: "OOOI-API-001", Title: "the cluster serves our APIs", Reads: in(Everywhere, crds),
		Run: func(s *Site) []Finding {
			var findings []Finding
			for _, kind := range []string{"infras", "proxyservers"} {
				name := kind + "." + v1alpha1.GroupName
				ref := model.Ref{Kind: crds.Kind, Name: name}
				list := s.list(crds, Everywhere)
				at := slices.IndexFunc(list, func(u *unstructured.Unstructured) bool { return u.GetName() == name })
				switch {
				case at < 0:
					findings = append(findings, failed(ref, "run 'kubectl oooi setup' again to apply it", "CustomResourceDefinition %s does not exist", name))
				case conditionOf(list[at], "Established") != "True":
					findings = append(findings, failed(ref, "see its conditions: kubectl describe crd "+name, "the API server does not serve it").because(conditionsOf(list[at])...))
				case !serves(list[at], v1alpha1.SchemeGroupVersion.Version):
					findings = append(findings, failed(ref, "run 'kubectl oooi setup' of one release for all Infras", "it does not serve version %s, which this release requires", v1alpha1.SchemeGroupVersion.Version))
				}
			}
			return findings
		},
	}, {
		Code: "OOOI-API-002", Title: "the objects that checks need can be read",
		Run: func(s *Site) []Finding {
			refusals := s.refusals()
			if len(refusals) == 0 {
				return nil
			}
			f := warned(s.ref(), "have an administrator bind ClusterRole "+RoleName+" to you (docs/reference/doctor.md); checks that need the missing rights are skipped, and --strict counts them",
				"%d kinds of objects cannot be read: %s", len(refusals), refusals[0])
			return []Finding{f.because(refusals[1:]...)}
		},
	}}
}

// refusals say of all that any check reads why it is not known, once each.
func (s *Site) refusals() []string {
	var list []string
	add := func(why string) {
		if why != "" && !slices.Contains(list, why) {
			list = append(list, why)
		}
	}
	for _, c := range Checks() {
		for _, r := range c.Reads {
			for _, namespace := range s.namespaces[r.Where] {
				switch r.Kind {
				case podPages:
					for _, pod := range s.facts.askable(r.Page, namespace, s.Infra.Name) {
						if a := s.facts.answers[question{namespace, pod.Name, r.Page}]; a != nil {
							add(a.Refused)
						}
					}
				case accessReviews: // who may not ask for one may ask for none
					if list := s.facts.reviewed(); len(list) > 0 {
						add(list[0].Refused)
					}
				default:
					add(s.facts.why(r.Kind, namespace))
				}
			}
		}
	}
	return list
}

// serves reports whether a CRD serves a version.
func serves(crd *unstructured.Unstructured, version string) bool {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	return slices.ContainsFunc(versions, func(v any) bool {
		m, _ := v.(map[string]any)
		return m["name"] == version && m["served"] == true
	})
}

// condition is one of an object's status.conditions.
type condition status.BasicCondition

func (c condition) String() string {
	return strings.TrimRight(c.Type+"="+string(c.Status)+" "+c.Reason+": "+c.Message, ": ")
}

// conditionList are all; none of an object that has them in no usual form.
func conditionList(u *unstructured.Unstructured) []condition {
	o, err := status.GetObjectWithConditions(u.Object)
	if err != nil {
		return nil
	}
	var all []condition
	for _, c := range o.Status.Conditions {
		all = append(all, condition(c))
	}
	return all
}

// conditionOf is the status of one condition; empty where there is none.
func conditionOf(u *unstructured.Unstructured, kind string) string {
	for _, c := range conditionList(u) {
		if c.Type == kind {
			return string(c.Status)
		}
	}
	return ""
}

// conditionsOf are all, as evidence.
func conditionsOf(u *unstructured.Unstructured) []string {
	var list []string
	for _, c := range conditionList(u) {
		list = append(list, c.String())
	}
	return list
}
