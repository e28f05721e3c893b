package cmd

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// A checkReport is one check as doctor --list prints it.
type checkReport struct {
	metav1.TypeMeta `json:",inline"`

	Metadata checkName `json:"metadata"`
	Title    string    `json:"title"`
	// Stage is the stage of the check; failures of earlier stages possibly explain its findings.
	Stage string `json:"stage"`
	// Reads has the resources that the check reads, with their namespaces.
	Reads []string `json:"reads"`
	Docs  string   `json:"docs"`
}

// A checkName is the metadata of a check; its name is the code.
type checkName struct {
	Name string `json:"name"`
}

// listChecks prints the selected checks for --list.
func (c *command) listChecks(f *doctorFlags) error {
	var list []*checkReport
	for _, stage := range doctor.Stages() {
		for i := range stage.Checks {
			check := &stage.Checks[i]
			if !f.contains(check.Code) {
				continue
			}
			r := &checkReport{
				TypeMeta: metav1.TypeMeta{APIVersion: output.APIVersion, Kind: "Check"}, Metadata: checkName{check.Code},
				Stage: stage.Name, Title: check.Title, Docs: check.Docs(),
			}
			for _, read := range check.Reads {
				r.Reads = append(r.Reads, read.String())
			}
			list = append(list, r)
		}
	}
	columns := []output.Column[*checkReport]{
		{Title: "CODE", Value: func(r *checkReport) string { return r.Metadata.Name }},
		{Title: "STAGE", Value: func(r *checkReport) string { return r.Stage }},
		{Title: "PASSES IF", Value: func(r *checkReport) string { return r.Title }},
		{Title: "READS", Value: func(r *checkReport) string { return strings.Join(r.Reads, "; ") }, Wide: true},
	}
	f.output.Kind = schema.FromAPIVersionAndKind(output.APIVersion, "Check")
	return printList(c, f.output, "", "Check", list, output.NewTable(columns, list, f.output.Wide()))
}
