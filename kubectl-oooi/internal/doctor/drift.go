package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// diffFirst names the command that shows what setup would change.
const diffFirst = "'kubectl oooi diff -f FILE'" + diffShows

// diffForced is diffFirst where setup needs --force-conflicts, without which diff reports the conflicts as well.
const diffForced = "'kubectl oooi diff -f FILE --force-conflicts'" + diffShows

const diffShows = " with the same file shows what changes, and which pods restart"

// maxDifferences is how many differences of an object a finding lists.
const maxDifferences = 10

// replicasPath and templatePath are paths of a StatefulSet.
const (
	replicasPath = ".spec.replicas"
	templatePath = ".spec.template."
)

// summaries are the messages of findings, by kind and prefix of the path. Any kind has kind "".
var summaries = []struct{ kind, path, message string }{
	{services.Kind, ".spec.selector", "the Service selects other pods"},
	{services.Kind, ".spec.ports", "the Service has other ports"},
	{statefulSets.Kind, templatePath, "setup would change its pods"},
	{attachments.Kind, ".spec.config", "setup would change the network of its pods"},
	{networkPolicies.Kind, ".spec.ingress", "the NetworkPolicy admits other traffic"},
	{configMaps.Kind, ".data", "setup would render other contents"},
	{"", ".metadata.labels", "labels by which objects of the Infra are found were changed"},
}

// summary returns the message of a finding: the most severe difference decides.
func (d *drift) summary() (Severity, string) {
	worst := d.Differences[0]
	if at := slices.IndexFunc(d.Differences, func(one difference) bool { return one.Severity == Fail }); at >= 0 {
		worst = d.Differences[at]
	}
	for _, s := range summaries {
		if (s.kind == "" || s.kind == d.Object.Kind) && strings.HasPrefix(worst.Path, s.path) {
			return worst.Severity, s.message
		}
	}
	return worst.Severity, "setup would render another " + worst.Path
}

// driftFindings returns the findings about an object. restarts are the pods of its component that setup would replace.
func (s *Site) driftFindings(d drift, restarts []string) []Finding {
	switch {
	case d.Missing:
		f := failed(d.Object, "run 'kubectl oooi setup -f FILE' with the Infra's file; "+diffFirst, "the %s does not exist", d.Object.Kind)
		if d.Object.Kind == serviceAccounts.Kind { // OOOI-POD-005 explains it as soon as a pod is created
			f = f.of(d.Component)
		}
		return []Finding{f}
	case d.Error != "":
		return []Finding{warned(d.Object, "compare it with 'kubectl oooi diff -f FILE'", "the object cannot be compared with the rendered one: %s", d.Error)}
	}
	var findings []Finding
	if at := d.scaled(); at >= 0 {
		findings = append(findings, s.scaledFinding(&d, d.Differences[at]))
		d.Differences = slices.Delete(slices.Clone(d.Differences), at, at+1)
	}
	if len(d.Differences) > 0 {
		severity, message := d.summary()
		why, remedy := s.cause(&d, restarts)
		fix := s.labelFix(&d)
		if fix != nil {
			remedy = "restore them, which restarts no pod: " + fix.Command
		}
		started := s.startedSince(&d)
		f := warned(d.Object, remedy, "%s: %s", message, why[0])
		f.Severity, f.Fix = severity, fix
		for i, one := range d.Differences {
			if i == maxDifferences {
				f = f.because(fmt.Sprintf("and %d more fields", len(d.Differences)-i))
				break
			}
			f = f.because(one.String())
		}
		if d.Object.Kind == attachments.Kind {
			for _, name := range started {
				f = f.because("Pod " + name + " was created since then: it has the edited network")
			}
		}
		if has, wanted := s.editedLink(&d); len(started) > 0 && has != wanted { // OOOI-NET-003 explains it
			f = f.of(d.Component)
		}
		findings = append(findings, f.because(why[1:]...))
	}
	for _, f := range d.Unrendered {
		findings = append(findings, d.unrenderedFinding(f))
	}
	return findings
}

// startedSince returns the names of the component's pods that started since the object was edited, sorted. They read it only
// when they start.
func (s *Site) startedSince(d *drift) []string {
	at := slices.IndexFunc(d.Differences, func(one difference) bool {
		return one.Editor != "" && (strings.HasPrefix(one.Path, ".spec.config") || strings.HasPrefix(one.Path, ".data"))
	})
	if at < 0 {
		return nil
	}
	var names []string
	for _, p := range s.pods(d.Component) {
		if setup.StartedSince(p, d.Object.Kind, d.Object.Name, d.Differences[at].At) {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}

// labelsPath is the beginning of the paths of labels.
const labelsPath = ".metadata.labels."

// labelFix returns a fix if only labels by which objects of the Infra are found differ, and nil otherwise.
func (s *Site) labelFix(d *drift) *Fix {
	list, _ := s.rendered()
	at := slices.IndexFunc(list, func(u *unstructured.Unstructured) bool { return refTo(u) == d.Object })
	if at < 0 {
		return nil
	}
	existing := s.facts.list(list[at].GroupVersionKind(), d.Object.Namespace)
	live := slices.IndexFunc(existing, func(u *unstructured.Unstructured) bool { return u.GetName() == d.Object.Name })
	if live < 0 {
		return nil
	}
	wanted := map[string]string{}
	for _, one := range d.Differences {
		label, ok := strings.CutPrefix(one.Path, labelsPath)
		if !ok || !slices.Contains(ourLabels, label) {
			return nil
		}
		wanted[label] = list[at].GetLabels()[label]
	}
	return restoreLabels(existing[live], wanted)
}

// scaledFindings returns findings about the StatefulSets of a component that were scaled.
func (s *Site) scaledFindings(component string) []Finding {
	var findings []Finding
	for _, d := range s.facts.drifts[s.key()] {
		if at := d.scaled(); d.Component == component && at >= 0 {
			findings = append(findings, s.scaledFinding(&d, d.Differences[at]))
		}
	}
	return findings
}

// scaled returns the index of the difference in the number of replicas of a StatefulSet, -1 if there is none.
func (d *drift) scaled() int {
	return slices.IndexFunc(d.Differences, func(one difference) bool { return d.Object.Kind == statefulSets.Kind && one.Path == replicasPath })
}

// scaledFinding returns the finding about a StatefulSet that was scaled. Its pods have one VLAN address.
func (s *Site) scaledFinding(d *drift, one difference) Finding {
	ref := d.Object
	set := &unstructured.Unstructured{}
	if at := slices.IndexFunc(s.list(statefulSets, AtInfra), func(has *unstructured.Unstructured) bool { return has.GetName() == ref.Name }); at >= 0 {
		set = s.list(statefulSets, AtInfra)[at]
	}
	replicas, _, _ := unstructured.NestedInt64(set.Object, "spec", "replicas")
	fix := scaleToOne(set, replicas)
	if replicas > 1 {
		return failed(ref, "scale it back, and add replicas in the Infra: "+fix.Command, "its %d replicas have the same VLAN address", replicas).because(one.String()).fixedBy(fix)
	}
	return failed(ref, "scale it back: "+fix.Command, "it was scaled to %d, and has no pod", replicas).because(one.String()).of(d.Component).fixedBy(fix) // OOOI-POD-002 explains it
}

// unrenderedFinding returns the finding about fields that a manager added to an object. Setup does not remove them, except
// those of pods if conflicts are forced.
func (d *drift) unrenderedFinding(f setup.ManagerFields) Finding {
	message, remedy := "the object has", fmt.Sprintf("if the fields are unwanted, remove them: kubectl -n %s edit %s %s", d.Object.Namespace, strings.ToLower(d.Object.Kind), d.Object.Name)
	if !slices.ContainsFunc(f.Fields, func(path string) bool { return !strings.HasPrefix(path, templatePath) }) {
		message = "the pod template has"
		remedy = fmt.Sprintf("if the fields are unwanted, run 'kubectl oooi setup -f FILE' with the Infra's file and --force-conflicts to remove them; this restarts pod %s/%s-0: %s", d.Object.Namespace, d.Object.Name, diffForced)
	}
	if f.Applied {
		remedy = "if the fields are unwanted, remove them from the configuration that " + f.Manager + " applies"
	}
	return warned(d.Object, remedy, "%s fields that setup does not render: %s", message, f)
}

// applier returns what applied the object: setup, or the name of another field manager.
func (d *drift) applier() string {
	if d.AppliedBy == "" || d.AppliedBy == setup.Manager {
		return "setup"
	}
	return strconv.Quote(d.AppliedBy)
}

// cause returns why an object differs from what setup would render, and the remedy. Either the object was edited, or a
// source that it is rendered from changed.
func (s *Site) cause(d *drift, restarts []string) (why []string, remedy string) {
	remedy = "run 'kubectl oooi setup -f FILE' with the Infra's file"
	restore := remedy + " and --force-conflicts to restore it" // without the flag, fields of other managers conflict
	if applier := d.applier(); applier != "setup" {
		remedy = "print the objects with 'kubectl oooi setup -f FILE --dry-run=client', and let " + applier + " apply them"
		restore = "let " + applier + " apply the object again"
		if started := s.startedSince(d); len(started) > 0 {
			restore += fmt.Sprintf(", then replace the pods that started with the edit, one after the other: kubectl -n %s delete pod %s", d.Object.Namespace, strings.Join(started, " "))
		}
	}
	if at := slices.IndexFunc(d.Differences, func(one difference) bool { return one.Editor != "" }); at >= 0 {
		one := d.Differences[at]
		return []string{fmt.Sprintf("the object was changed by %q at %s, after %s applied it", one.Editor, formatTime(one.At), d.applier())}, restore + restartNote(restarts, diffForced)
	}
	otherwise, diff := "", diffFirst
	for _, source := range s.sources() {
		if changed := changedSince(source, d); changed != "" {
			why = append(why, changed)
			if source.GetKind() == attachments.Kind {
				vms := "running VMs stay on the network as it was"
				if config, _, _ := unstructured.NestedString(source.Object, "spec", "config"); cni.IsOVN(config) {
					vms = "OVN-Kubernetes has moved running VMs to the changed network, and moves them back"
				}
				otherwise = fmt.Sprintf("; if the change of NetworkAttachmentDefinition %s/%s was not intended, restore it instead: %s", source.GetNamespace(), source.GetName(), vms)
			}
		}
		if d.applier() == "setup" && editedSince(source, d) {
			remedy, diff = restore, diffForced
		}
	}
	if !slices.ContainsFunc(d.Differences, func(one difference) bool { return !one.Absent }) {
		why = append(why, "a client may have removed it, which managed fields do not record, or another version of setup created the object")
	}
	if len(why) == 0 {
		why = []string{"a source of the object has changed, or another version of setup created the object"}
	}
	return why, remedy + restartNote(restarts, diff) + otherwise
}

// restartNote returns the end of a remedy that runs setup: the pods that setup restarts, and the command that shows it.
func restartNote(pods []string, diff string) string {
	if len(pods) == 0 {
		return "; this restarts no pod: " + diff
	}
	return "; this restarts " + strings.Join(pods, ", ") + ": " + diff
}

// sources returns the objects from which setup renders.
func (s *Site) sources() []*unstructured.Unstructured {
	var list []*unstructured.Unstructured
	if nad := s.attachment(); nad != nil {
		list = append(list, nad)
	}
	for _, u := range s.facts.list(infras, s.Infra.Namespace) {
		if u.GetName() == s.Infra.Name {
			list = append(list, u)
		}
	}
	if hosted := s.hosted(); hosted != nil {
		for _, u := range s.facts.list(hostedClusters, hosted.Namespace) {
			if u.GetName() == hosted.Name {
				list = append(list, u)
			}
		}
	}
	for _, u := range s.facts.list(proxyServers, s.Infra.Namespace) {
		if p, ok := objects.Decode[v1alpha1.ProxyServer](u).(*v1alpha1.ProxyServer); ok && s.hasProxyServer(p) {
			list = append(list, u)
		}
	}
	return list
}

// restartedPods returns the pods that setup would replace, by component: those whose template differs, and those that started
// with an edit that setup reverts.
func (s *Site) restartedPods(drifts []drift) map[string][]string {
	pods := map[string][]string{}
	for i := range drifts {
		d := &drifts[i]
		var names []string
		if d.Object.Kind == statefulSets.Kind && slices.ContainsFunc(d.Differences, func(one difference) bool { return strings.HasPrefix(one.Path, templatePath) }) {
			names = []string{d.Object.Name + "-0"}
		} else if d.applier() == "setup" {
			names = s.startedSince(d)
		}
		for _, name := range names {
			if text := fmt.Sprintf("pod %s/%s", d.Object.Namespace, name); !slices.Contains(pods[d.Component], text) {
				pods[d.Component] = append(pods[d.Component], text)
			}
		}
	}
	return pods
}
