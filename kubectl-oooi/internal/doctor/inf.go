package doctor

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
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
					const remedy = "correct the Infra's file, and run 'kubectl oooi setup -f FILE' with it; " + diffFirst
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
			After: []string{"OOOI-PRX-001", "OOOI-HC-001", "OOOI-NET-005", "OOOI-CTL-002", "OOOI-DNS-003", "OOOI-DHCP-006", "OOOI-NET-003", "OOOI-POD-002"},
			Reads: slices.Concat(renderReads(), in(AtInfra, comparedKinds...), in(AtInfra, pods), in(AtControlPlane, networkPolicies), optional(in(AtInfra, podEvents)), logReads(AtInfra)),
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
	model.ReasonInvalidDuration,
}

// checkDrift finds objects that differ from what setup would render now.
func checkDrift(s *Site) []Finding {
	list, err := s.rendered()
	if err != nil {
		return []Finding{failed(s.ref(), "correct the Infra's file, and run 'kubectl oooi setup -f FILE' with it; "+diffFirst, "setup would refuse the Infra: %v", errors.Unwrap(err))}
	}
	findings := invalidInventories(s)
	drifts, compared := s.facts.drifts[s.key()]
	if !compared { // from a bundle about other Infras, or of an earlier version
		s.unanswered = append(s.unanswered, "the bundle does not say how objects of the Infra differ; save it again")
	}
	restarts := s.restartedPods(drifts)
	edits, others := s.splitEdits(drifts)
	for i := range edits {
		findings = append(findings, s.editFinding(&edits[i], restarts))
	}
	for _, d := range others {
		found := s.driftFindings(d, restarts[d.Component])
		if s.explained[d.Component] == "OOOI-POD-002" && s.breaksPod(&d) { // which reports it
			for i := range found {
				found[i] = found[i].of(d.Component)
			}
		}
		findings = append(findings, found...)
	}
	return append(findings, extraWorkloads(s, list)...)
}

// invalidInventories finds an inventory that cannot be decoded: setup and teardown refuse it.
func invalidInventories(s *Site) []Finding {
	name := inventory.Name(types.NamespacedName{Namespace: s.Infra.Namespace, Name: s.Infra.Name})
	for _, u := range s.list(configMaps, AtInfra) {
		if _, invalid, _ := unstructured.NestedString(u.Object, "data", inventory.Key); invalid && u.GetName() == name.Name {
			return []Finding{failed(refTo(u), fmt.Sprintf("remove the key: kubectl -n %s patch configmap %s --type=json -p '[{\"op\": \"remove\", \"path\": \"/data/%s\"}]'; then run 'kubectl oooi setup -f FILE' with the Infra's file, which finds the objects by their labels",
				name.Namespace, name.Name, inventory.Key), "key %s cannot be decoded, so setup and teardown refuse the Infra", inventory.Key)}
		}
	}
	return nil
}

// extraWorkloads finds StatefulSets of the Infra that setup does not render: their pods have the address of another one.
func extraWorkloads(s *Site, list []*unstructured.Unstructured) []Finding {
	var findings []Finding
	for _, has := range s.list(statefulSets, AtInfra) {
		if has.GetLabels()[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy || has.GetAnnotations()[v1alpha1.AnnotationInfra] != s.key() {
			continue
		}
		ref := refTo(has)
		if !slices.ContainsFunc(list, func(u *unstructured.Unstructured) bool { return u.GetKind() == ref.Kind && u.GetName() == ref.Name }) {
			findings = append(findings, failed(ref, "run 'kubectl oooi setup -f FILE' with the Infra's file to delete it; "+diffFirst, "setup does not render this StatefulSet; its pods may have the address of another one"))
		}
	}
	return findings
}
