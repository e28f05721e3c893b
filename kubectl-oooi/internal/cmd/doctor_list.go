package cmd

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// checkReport is one check, as --list prints it.
type checkReport struct {
	metav1.TypeMeta `json:",inline"`

	Metadata checkName `json:"metadata"`
	Title    string    `json:"title"`
	// Needs are the codes of the checks that have to pass before this one means anything.
	Needs []string `json:"needs,omitempty"`
	// Reads are what it looks at, and where.
	Reads []string `json:"reads"`
	Docs  string   `json:"docs"`
}

// checkName has the check's code.
type checkName struct {
	Name string `json:"name"`
}

// listChecks is --list.
func (c *command) listChecks(f *doctorFlags, checks []doctor.Check) error {
	var list []*checkReport
	var about []*unstructured.Unstructured
	t := &output.Table{Titles: []string{"CODE", "PASSES IF", "NEEDS"}}
	if f.output.Wide() {
		t.Titles = append(t.Titles, "READS")
	}
	for i := range checks {
		check := &checks[i]
		if !f.selected(check.Code) {
			continue
		}
		r := &checkReport{
			TypeMeta: metav1.TypeMeta{APIVersion: output.APIVersion, Kind: "Check"}, Metadata: checkName{check.Code},
			Title: check.Title, Needs: check.Needs, Docs: check.Docs(),
		}
		for _, read := range check.Reads {
			r.Reads = append(r.Reads, read.String())
		}
		list = append(list, r)
		about = append(about, output.Object(output.APIVersion, "Check", "", check.Code))
		row := []string{check.Code, check.Title, strings.Join(check.Needs, ",")}
		if f.output.Wide() {
			row = append(row, strings.Join(r.Reads, "; "))
		}
		t.Add(row...)
	}
	if !f.output.Text() {
		return f.output.Print(c.Out, output.ListOf("Check", list), about)
	}
	if f.output.NoHeaders {
		t.Titles = nil
	}
	return t.Write(c.Out)
}
