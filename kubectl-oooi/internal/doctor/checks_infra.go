package doctor

import (
	"slices"

	"github.com/densityops/oooi/internal/model"
)

// failReasons are the problems that leave a part of the Infra unserved. Those in warnReasons do not. Other
// checks cover all other reasons.
var failReasons = []model.Reason{
	model.ReasonInvalidAddress, model.ReasonInvalidRange, model.ReasonAddressConflict, model.ReasonInvalidName, model.ReasonUndecodable, model.ReasonNameConflict,
	model.ReasonNoBaseDomain, model.ReasonNameNotAllowed,
}

var warnReasons = []model.Reason{
	model.ReasonDomainMismatch, model.ReasonAppsDomainMismatch, model.ReasonVLANOverlap, model.ReasonVLANMismatch, model.ReasonProxyDisabled, model.ReasonUnsupported,
}

func infraChecks() []Check {
	return []Check{{
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
	}}
}
