package doctor

import (
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

func init() {
	register(
		Check{
			Code: "OOOI-INF-001", Title: "the Infra's addresses, ranges and names are valid", After: []string{"OOOI-API-001"}, Reads: in(AtInfra, infras),
			Run: func(s *Site) []Finding {
				var findings []Finding
				for _, p := range s.Snapshot.Problems {
					if p.Object != s.ref() {
						continue
					}
					const remedy = "correct the Infra's file, and run 'kubectl oooi setup' with it; " + diffFirst
					switch {
					case slices.Contains(failReasons, p.Reason):
						findings = append(findings, failed(p.Object, remedy, "%s: %s", p.Reason, p.Message))
					case slices.Contains(warnReasons, p.Reason):
						findings = append(findings, warned(p.Object, remedy, "%s: %s", p.Reason, p.Message))
					}
				}
				return findings
			},
		},
		Check{
			Code: "OOOI-INF-002", Title: "deployed objects match the rendered configuration", Needs: []string{"OOOI-INF-001", "OOOI-NET-002", "OOOI-POD-001"},
			After: []string{"OOOI-PRX-001", "OOOI-HC-001", "OOOI-NET-005", "OOOI-CTL-002", "OOOI-DNS-003", "OOOI-DHCP-006"},
			Reads: slices.Concat(renderReads(), in(AtInfra, statefulSets, configMaps, services, networkPolicies, attachments)),
			Run:   checkDrift,
		},
	)
}

// failReasons are the problems that leave a part of the Infra unserved. Those in warnReasons do not. Other
// checks cover all other reasons.
var failReasons = []model.Reason{
	model.ReasonInvalidAddress, model.ReasonInvalidRange, model.ReasonAddressConflict, model.ReasonInvalidName, model.ReasonUndecodable, model.ReasonNameConflict,
	model.ReasonNoBaseDomain, model.ReasonNameNotAllowed,
}

var warnReasons = []model.Reason{
	model.ReasonDomainMismatch, model.ReasonAppsDomainMismatch, model.ReasonVLANOverlap, model.ReasonVLANMismatch, model.ReasonProxyDisabled, model.ReasonUnsupported,
}

// checkDrift finds objects that differ from what setup would render now.
func checkDrift(s *Site) []Finding {
	list, err := s.rendered()
	if err != nil {
		return []Finding{failed(s.ref(), "correct the Infra's file, and run 'kubectl oooi setup' with it; "+diffFirst, "setup would refuse the Infra: %v", errors.Unwrap(err))}
	}
	restarts := s.restartedPods(list)
	var findings []Finding
	for _, want := range list {
		differs, ok := comparisons[want.GetKind()]
		if !ok || want.GetNamespace() != s.Infra.Namespace {
			continue // other checks cover rights and objects in other namespaces
		}
		kind := want.GroupVersionKind()
		ref := refTo(want)
		has := s.list(kind, AtInfra)
		at := slices.IndexFunc(has, func(u *unstructured.Unstructured) bool { return u.GetName() == want.GetName() })
		switch {
		case at < 0:
			findings = append(findings, failed(ref, "run 'kubectl oooi setup' with the Infra's file; "+diffFirst, "the %s does not exist", kind.Kind))
		case differs != nil:
			if severity, message, evidence := differs(want, has[at]); message != "" {
				why, remedy := s.cause(has[at], restarts[want.GetLabels()[v1alpha1.LabelComponent]])
				f := warned(ref, remedy, "%s: %s", message, why[0]).because(append(evidence, why[1:]...)...)
				f.Severity = severity
				findings = append(findings, f)
			}
			findings = append(findings, foreignFindings(ref, want, has[at])...)
			findings = append(findings, labelFindings(ref, want, has[at])...)
		}
	}
	return append(findings, extraWorkloads(s, list)...)
}

// extraWorkloads finds pods that setup does not render, which have the address of another one: those of a StatefulSet
// of the Infra that is not in the list, and those of a StatefulSet that was scaled.
func extraWorkloads(s *Site, list []*unstructured.Unstructured) []Finding {
	var findings []Finding
	for _, has := range s.list(statefulSets, AtInfra) {
		if has.GetLabels()[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy || has.GetAnnotations()[v1alpha1.AnnotationInfra] != s.key() {
			continue
		}
		ref := refTo(has)
		at := slices.IndexFunc(list, func(u *unstructured.Unstructured) bool { return u.GetKind() == ref.Kind && u.GetName() == ref.Name })
		switch {
		case at < 0:
			findings = append(findings, failed(ref, "run 'kubectl oooi setup' with the Infra's file to delete it; "+diffFirst, "setup does not render this StatefulSet; its pods may have the address of another one"))
		default:
			set, err := decodeOnce[appsv1.StatefulSet](s.facts, has)
			if err != nil || set.Spec.Replicas == nil || *set.Spec.Replicas <= 1 {
				continue
			}
			fix := scaleToOne(set, int64(*set.Spec.Replicas))
			findings = append(findings, failed(ref, "scale it back, and add replicas in the Infra: "+fix.Command, "its %d replicas have the same VLAN address", *set.Spec.Replicas).fixedBy(fix))
		}
	}
	return findings
}

// foreignFindings returns the fields that other managers added to the pods of a StatefulSet. Setup does not
// remove them unless conflicts are forced.
func foreignFindings(ref model.Ref, want, has *unstructured.Unstructured) []Finding {
	var findings []Finding
	for _, f := range setup.ForeignFields(has, want) {
		remedy := fmt.Sprintf("if the fields are unwanted, run 'kubectl oooi setup' with the Infra's file and --force-conflicts to remove them; this restarts pod %s/%s-0: %s", has.GetNamespace(), has.GetName(), diffFirst)
		if f.Applied {
			remedy = "if the fields are unwanted, remove them from the configuration that " + f.Manager + " applies"
		}
		findings = append(findings, warned(ref, remedy, "the pod template has fields that setup does not render: %s", f))
	}
	return findings
}

// labelFindings returns a finding if an object lacks labels that setup renders, or has other values: teardown, checks of
// doctor and NetworkPolicies find objects by them.
func labelFindings(ref model.Ref, want, has *unstructured.Unstructured) []Finding {
	var differ []string
	restored := map[string]string{}
	for _, label := range ourLabels {
		wanted, rendered := want.GetLabels()[label]
		switch value, ok := has.GetLabels()[label]; {
		case !rendered || value == wanted:
		case ok:
			differ = append(differ, fmt.Sprintf("found %s=%s, setup would render %s", label, value, wanted))
			restored[label] = wanted
		default:
			restored[label] = wanted
			differ = append(differ, fmt.Sprintf("found no label %s, setup would render %s", label, wanted))
		}
	}
	if len(differ) == 0 {
		return nil
	}
	fix := restoreLabels(has, restored)
	return []Finding{warned(ref, "restore them, which restarts no pod: "+fix.Command, "labels by which objects of the Infra are found were changed").because(differ...).fixedBy(fix)}
}
