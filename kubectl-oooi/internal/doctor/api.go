package doctor

import (
	"maps"
	"slices"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

func init() {
	register(
		Check{
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
						findings = append(findings, failed(ref, "run 'kubectl oooi setup -f FILE' again to apply it", "the CustomResourceDefinition does not exist"))
					case conditionOf(list[at], "Established") != "True":
						findings = append(findings, failed(ref, "see its conditions: kubectl describe crd "+name, "the CustomResourceDefinition is not established: the API server does not serve its kind").because(conditionsOf(list[at])...))
					case !serves(list[at], v1alpha1.SchemeGroupVersion.Version):
						findings = append(findings, failed(ref, "use the same release of kubectl-oooi for all Infras, the newest one deployed: run its 'kubectl oooi setup -f FILE' again, and its doctor", "the CustomResourceDefinition does not serve version %s, which this release requires", v1alpha1.SchemeGroupVersion.Version))
					}
				}
				return findings
			},
		},
		Check{
			Code: "OOOI-API-002", Title: "doctor can read all data that its checks need",
			Run: func(s *Site) []Finding {
				reasons := s.unreadReasons()
				if len(reasons) == 0 {
					return nil
				}
				remedy := "ask an administrator to bind ClusterRole " + RoleName + " to you (docs/reference/doctor.md)"
				if !slices.ContainsFunc(reasons, func(reason string) bool { return strings.Contains(reason, "forbidden") }) {
					remedy = "run doctor again when the API server answers; for an API that is unavailable, see kubectl get apiservices"
				}
				f := warned(s.ref(), remedy+"; checks that need this data are skipped, and with --strict doctor then exits with status 3",
					"data that checks need cannot be read (%d errors): %s", len(reasons), reasons[0])
				return []Finding{f.because(reasons[1:]...)}
			},
		},
	)
}

// unreadReasons returns why data that any check reads is missing, sorted, each reason once.
func (s *Site) unreadReasons() []string {
	reasons := map[string]bool{}
	for _, c := range registered {
		if s.Standalone != nil && !c.ofProxy() {
			continue
		}
		for _, r := range c.Reads {
			if r.Optional {
				continue
			}
			for _, namespace := range s.namespaces[r.Where] {
				switch r.Kind {
				case podPages:
					for _, pod := range s.facts.servingPods(r.Page, namespace, s.owns) {
						if a := s.facts.answer(pod, r.Page); a != nil {
							reasons[a.Refused] = true
						}
					}
				case accessReviews: // a user who cannot create one review cannot create any
					if list := s.facts.sortedReviews(); len(list) > 0 {
						reasons[list[0].Refused] = true
					}
				default:
					reasons[s.facts.unreadReason(r.Kind, namespace)] = true
				}
			}
		}
	}
	delete(reasons, "")
	return slices.Sorted(maps.Keys(reasons))
}

// serves reports whether a CRD serves a version.
func serves(crd *unstructured.Unstructured, version string) bool {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	return slices.ContainsFunc(versions, func(v any) bool {
		m, _ := v.(map[string]any)
		return m["name"] == version && m["served"] == true
	})
}

// condition is an entry of an object's status.conditions.
type condition status.BasicCondition

func (c condition) String() string {
	return strings.TrimRight(c.Type+"="+string(c.Status)+" "+c.Reason+": "+c.Message, ": ")
}

// conditionList returns the conditions of an object, nil if status.conditions does not have the usual form.
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

// conditionOf returns the status of a condition, empty if the object does not have it.
func conditionOf(u *unstructured.Unstructured, kind string) string {
	for _, c := range conditionList(u) {
		if c.Type == kind {
			return string(c.Status)
		}
	}
	return ""
}

// conditionsOf returns all conditions of an object as evidence.
func conditionsOf(u *unstructured.Unstructured) []string {
	var list []string
	for _, c := range conditionList(u) {
		list = append(list, c.String())
	}
	return list
}
