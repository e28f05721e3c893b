package doctor

import (
	"slices"

	"github.com/densityops/oooi/internal/model"
)

// unusable are problems with an Infra by which something of it is not served; the others that are
// not somebody else's check are worth a warning.
var unusable = []model.Reason{
	model.ReasonInvalidAddress, model.ReasonInvalidRange, model.ReasonAddressConflict, model.ReasonInvalidName, model.ReasonUndecodable, model.ReasonNameConflict,
	model.ReasonNoBaseDomain, model.ReasonNameNotAllowed,
}

var doubtful = []model.Reason{
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
				const remedy = "correct it in the Infra's file, and run 'kubectl oooi setup' with it; " + diffFirst
				switch {
				case slices.Contains(unusable, p.Reason):
					findings = append(findings, failed(p.Object, remedy, "%s: %s", p.Reason, p.Message))
				case slices.Contains(doubtful, p.Reason):
					findings = append(findings, warned(p.Object, remedy, "%s: %s", p.Reason, p.Message))
				}
			}
			return findings
		},
	}}
}
