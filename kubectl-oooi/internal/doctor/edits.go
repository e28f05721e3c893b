package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// An edit is a change of an Infra or ProxyServer by another client than setup, and the objects that setup has not rendered
// again since.
type edit struct {
	source *unstructured.Unstructured
	drifts []drift
}

// editOf returns the Infra or ProxyServer whose edit explains the differences of an object, which is the last change of its
// sources; nil if there is none.
func (s *Site) editOf(d *drift) *unstructured.Unstructured {
	if d.Missing || d.Error != "" || len(d.Differences) == 0 || len(d.Unrendered) > 0 || d.applier() != "setup" ||
		slices.ContainsFunc(d.Differences, func(one difference) bool { return one.Editor != "" }) {
		return nil
	}
	var latest *unstructured.Unstructured
	for _, source := range s.sources() {
		if changedSince(source, d) != "" && (latest == nil || timeOf(lastChange(source)).After(timeOf(lastChange(latest)))) {
			latest = source
		}
	}
	if latest == nil || !editedSince(latest, d) {
		return nil
	}
	return latest
}

// splitEdits returns the objects whose differences the edit of a source explains, by source, and all others.
func (s *Site) splitEdits(drifts []drift) (edits []edit, others []drift) {
	for _, d := range drifts {
		source := s.editOf(&d)
		if source == nil {
			others = append(others, d)
			continue
		}
		at := slices.IndexFunc(edits, func(e edit) bool { return refTo(e.source) == refTo(source) })
		if at < 0 {
			at, edits = len(edits), append(edits, edit{source: source})
		}
		edits[at].drifts = append(edits[at].drifts, d)
	}
	return edits, others
}

// maxFields is how many changed fields a message names.
const maxFields = 5

// editFinding returns the finding about an edit that is not deployed. Other sources that have changed are evidence. restarts
// are the pods that setup would replace, by component.
func (s *Site) editFinding(e *edit, restarts map[string][]string) Finding {
	var last metav1.ManagedFieldsEntry
	var fields []string
	for _, f := range e.source.GetManagedFields() {
		if f.Manager == setup.Manager || f.Subresource != "" || !timeOf(f).After(e.drifts[0].AppliedAt) {
			continue
		}
		if !timeOf(f).Before(timeOf(last)) {
			last = f
		}
		setup.FieldsOf(f).Iterate(func(p fieldpath.Path) {
			if text := p.String(); strings.HasPrefix(text, ".spec.") && !slices.Contains(fields, text[1:]) {
				fields = append(fields, text[1:])
			}
		})
	}
	// A field that has fields of its own is not named beside these.
	fields = slices.DeleteFunc(fields, func(one string) bool {
		return slices.ContainsFunc(fields, func(other string) bool { return strings.HasPrefix(other, one+".") || strings.HasPrefix(other, one+"[") })
	})
	if more := len(fields) - maxFields; more > 0 {
		fields = append(fields[:maxFields], fmt.Sprintf("%d more fields", more))
	}
	var pods []string
	for _, d := range e.drifts {
		for _, pod := range restarts[d.Component] {
			if !slices.Contains(pods, pod) {
				pods = append(pods, pod)
			}
		}
	}
	verb := "was"
	if len(fields) > 1 {
		verb = "were"
	}
	remedy := "restore the values of the Infra's file with 'kubectl oooi setup -f FILE --force-conflicts', or deploy the change: copy it to the file and run 'kubectl oooi setup -f FILE'" + restartNote(pods, diffForced)
	f := warned(refTo(e.source), remedy, "%s %s changed by %q at %s, and not deployed yet", cmp.Or(strings.Join(fields, ", "), "the object"), verb, last.Manager, formatTime(timeOf(last)))
	for i := range e.drifts {
		d := &e.drifts[i]
		severity, message := d.summary()
		if severity == Fail {
			f.Severity = Fail
		}
		worst := d.Differences[max(0, slices.IndexFunc(d.Differences, func(one difference) bool { return one.Severity == severity }))]
		text := fmt.Sprintf("%s: %s: %s", d.Object, message, worst)
		if more := len(d.Differences) - 1; more > 0 {
			text += fmt.Sprintf(", and %d more fields", more)
		}
		f = f.because(text)
	}
	for _, source := range s.sources() {
		if changed := changedSince(source, &e.drifts[0]); changed != "" && refTo(source) != refTo(e.source) {
			f = f.because(changed)
		}
	}
	return f
}
