package doctor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

func driftChecks() []Check {
	return []Check{{
		Code: "OOOI-INF-002", Title: "deployed objects match the rendered configuration", Needs: []string{"OOOI-INF-001", "OOOI-NET-002", "OOOI-POD-001"},
		After: []string{"OOOI-HC-001", "OOOI-NET-005", "OOOI-CTL-002", "OOOI-DNS-003", "OOOI-DHCP-006"},
		Reads: slices.Concat(renderReads(), in(AtInfra, statefulSets, configMaps, services, networkPolicies, attachments)),
		Run:   checkDrift,
	}}
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
		ref := model.Ref{Kind: kind.Kind, Namespace: want.GetNamespace(), Name: want.GetName()}
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
		if has.GetLabels()[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy || has.GetAnnotations()[v1alpha1.AnnotationInfra] != s.Infra.Namespace+"/"+s.Infra.Name {
			continue
		}
		ref := model.Ref{Kind: statefulSets.Kind, Namespace: has.GetNamespace(), Name: has.GetName()}
		at := slices.IndexFunc(list, func(u *unstructured.Unstructured) bool { return u.GetKind() == ref.Kind && u.GetName() == ref.Name })
		replicas, _, _ := unstructured.NestedInt64(has.Object, "spec", "replicas")
		switch {
		case at < 0:
			findings = append(findings, failed(ref, "run 'kubectl oooi setup' with the Infra's file to delete it; "+diffFirst, "setup does not render this StatefulSet; its pods may have the address of another one"))
		case replicas > 1:
			findings = append(findings, failed(ref, fmt.Sprintf("scale it back, and add replicas in the Infra: kubectl -n %s scale statefulset %s --replicas=1", ref.Namespace, ref.Name), "its %d replicas have the same VLAN address", replicas))
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
	remedy := "run 'kubectl oooi setup' with the Infra's file"
	for _, label := range ourLabels {
		wanted, rendered := want.GetLabels()[label]
		switch value, ok := has.GetLabels()[label]; {
		case !rendered || value == wanted:
		case ok:
			differ = append(differ, fmt.Sprintf("found %s=%s, setup would render %s", label, value, wanted))
			remedy = "run 'kubectl oooi setup' with the Infra's file and --force-conflicts"
		default:
			differ = append(differ, fmt.Sprintf("found no label %s, setup would render %s", label, wanted))
		}
	}
	if len(differ) == 0 {
		return nil
	}
	return []Finding{warned(ref, remedy+restartNote(nil), "labels by which objects of the Infra are found were changed").because(differ...)}
}

// comparisons are functions that compare a rendered with a deployed object, by kind, and return an empty
// message if they match. For kinds with nil, only existence is checked.
var comparisons = map[string]func(want, has *unstructured.Unstructured) (Severity, string, []string){
	configMaps.Kind: compareData, statefulSets.Kind: compareConfig, services.Kind: compareService, attachments.Kind: compareAttachment, networkPolicies.Kind: nil,
}

// diffFirst names the command that shows what setup would change.
const diffFirst = "'kubectl oooi diff' with the same file shows what changes, and which pods restart"

// comparedFields returns the paths of the fields that are compared for a kind. Files of a ConfigMap are
// separate fields, since each can have another manager.
func comparedFields(kind string) [][]string {
	switch kind {
	case services.Kind:
		return [][]string{{"spec", "ports"}, {"spec", "selector"}}
	case attachments.Kind:
		return [][]string{{"spec", "config"}}
	case statefulSets.Kind:
		return [][]string{{"spec", "template", "metadata", "annotations", annotationConfig}}
	case configMaps.Kind:
		return [][]string{{"data", "Corefile"}, {"data", "config.yml"}}
	default:
		return nil
	}
}

// cause returns why an object differs from what setup would render, and the remedy. Either the object was
// edited, or a source that it is rendered from changed.
func (s *Site) cause(has *unstructured.Unstructured, restarts []string) (why []string, remedy string) {
	restart := restartNote(restarts)
	if by := s.editedBy(has); by != "" {
		return []string{by}, "run 'kubectl oooi setup' with the Infra's file and --force-conflicts to restore it" + restart
	}
	for _, source := range s.sources() {
		if changed := changedSince(source, has); changed != "" {
			why = append(why, changed)
		}
	}
	if len(why) == 0 {
		why = []string{"a source of the object has changed, or another version of setup created the object"}
	}
	return why, "run 'kubectl oooi setup' with the Infra's file" + restart
}

// restartNote returns the end of a remedy that runs setup: the pods that setup restarts.
func restartNote(pods []string) string {
	if len(pods) == 0 {
		return "; this restarts no pod: " + diffFirst
	}
	return "; this restarts " + strings.Join(pods, ", ") + ": " + diffFirst
}

// editedBy returns who changed a compared field of an object after setup and when, empty if setup was last.
func (s *Site) editedBy(has *unstructured.Unstructured) string {
	for _, path := range comparedFields(has.GetKind()) {
		_, found, _ := unstructured.NestedFieldNoCopy(has.Object, path...)
		if by := lastEditor(has, path...); found && by != nil {
			return fmt.Sprintf("the object was changed by %q at %s, after setup applied it", by.Manager, formatTime(timeOf(*by)))
		}
	}
	return ""
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
		if name, _, _ := unstructured.NestedString(u.Object, "spec", "infraRef", "name"); name == s.Infra.Name {
			list = append(list, u)
		}
	}
	return list
}

// restartedPods returns the pods that setup would replace, by component: those whose configuration or command
// line differs.
func (s *Site) restartedPods(wants []*unstructured.Unstructured) map[string][]string {
	pods := map[string][]string{}
	for _, want := range wants {
		if want.GetKind() != statefulSets.Kind {
			continue
		}
		for _, has := range s.list(statefulSets, AtInfra) {
			if _, message, _ := compareConfig(want, has); has.GetName() == want.GetName() && message != "" {
				component := want.GetLabels()[v1alpha1.LabelComponent]
				pods[component] = append(pods[component], fmt.Sprintf("pod %s/%s-0", has.GetNamespace(), has.GetName()))
			}
		}
	}
	return pods
}

// compareData compares ConfigMaps. The evidence has the first line that differs in each file.
func compareData(want, has *unstructured.Unstructured) (Severity, string, []string) {
	wants, _, _ := unstructured.NestedStringMap(want.Object, "data")
	got, _, _ := unstructured.NestedStringMap(has.Object, "data")
	var evidence []string
	for _, file := range []string{"Corefile", "config.yml"} {
		if wants[file] != got[file] {
			evidence = append(evidence, file+firstDifference(wants[file], got[file]))
		}
	}
	if len(evidence) == 0 {
		return "", "", nil
	}
	return Warn, "setup would render other contents", evidence
}

// firstDifference returns the first line in which two texts differ, as a sentence.
func firstDifference(want, has string) string {
	wants, got := strings.Split(want, "\n"), strings.Split(has, "\n")
	for i := range max(len(wants), len(got)) {
		line := func(lines []string) string {
			if i < len(lines) {
				return strings.TrimSpace(lines[i])
			}
			return ""
		}
		if line(wants) != line(got) {
			return fmt.Sprintf(", line %d: found %q, setup would render %q", i+1, line(got), line(wants))
		}
	}
	return ""
}

// compareConfig compares the configuration hash and the command lines of a StatefulSet's pods.
func compareConfig(want, has *unstructured.Unstructured) (Severity, string, []string) {
	configHash := func(u *unstructured.Unstructured) string {
		annotations, _, _ := unstructured.NestedStringMap(u.Object, "spec", "template", "metadata", "annotations")
		return annotations[annotationConfig]
	}
	if configHash(want) != configHash(has) {
		return Warn, "its pod runs with a configuration that setup would change", nil
	}
	got := map[string]string{}
	for digest, c := range commandDigests(has.Object) {
		got[containerName(c)] = digest
	}
	var others []string
	for digest, c := range commandDigests(want.Object) {
		if now := got[containerName(c)]; now != "" && now != digest {
			others = append(others, containerName(c))
		}
	}
	if len(others) > 0 {
		return Warn, "its pod runs with arguments that setup would change: container " + strings.Join(others, ", "), nil
	}
	return "", "", nil
}

// digestPrefix begins a digest that replaces a command line, see pruneObject.
const digestPrefix = "sha256:"

// commandDigests iterates over the containers in the pod template of a StatefulSet, each with a digest of its
// command line. If the command line was already replaced by its digest, it yields that.
func commandDigests(set map[string]any) iter.Seq2[string, map[string]any] {
	return func(yield func(string, map[string]any) bool) {
		for _, kind := range []string{"initContainers", "containers"} {
			value, _, _ := unstructured.NestedFieldNoCopy(set, "spec", "template", "spec", kind)
			list, _ := value.([]any)
			for _, item := range list {
				c, ok := item.(map[string]any)
				if !ok {
					continue
				}
				sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", c["command"], c["args"]))
				digest := digestPrefix + hex.EncodeToString(sum[:8])
				if command, _, _ := unstructured.NestedStringSlice(c, "command"); len(command) == 1 && strings.HasPrefix(command[0], digestPrefix) && c["args"] == nil {
					digest = command[0]
				}
				if !yield(digest, c) {
					return
				}
			}
		}
	}
}

func containerName(container map[string]any) string {
	name, _, _ := unstructured.NestedString(container, "name")
	return name
}

// compareService finds another selector, and ports that a Service lacks. Pods cannot connect to these.
func compareService(want, has *unstructured.Unstructured) (Severity, string, []string) {
	wanted, got := specOf(want), specOf(has)
	if !maps.Equal(wanted.Selector, got.Selector) {
		return Fail, "the Service selects other pods", []string{fmt.Sprintf("found selector %s, setup would render %s", labels.FormatLabels(got.Selector), labels.FormatLabels(wanted.Selector))}
	}
	portsOf := func(s corev1.ServiceSpec) []string {
		var ports []string
		for i := range s.Ports {
			ports = append(ports, fmt.Sprintf("%d/%s", s.Ports[i].Port, s.Ports[i].Protocol))
		}
		return ports
	}
	lacks := slices.DeleteFunc(portsOf(wanted), func(p string) bool { return slices.Contains(portsOf(got), p) })
	if len(lacks) == 0 {
		return "", "", nil
	}
	return Fail, "the Service lacks port " + strings.Join(lacks, ", "), nil
}

// specOf returns the spec of a Service; it is empty if it cannot be decoded.
func specOf(u *unstructured.Unstructured) corev1.ServiceSpec {
	service, err := decode[corev1.Service](u)
	if err != nil {
		return corev1.ServiceSpec{}
	}
	return service.Spec
}

// compareAttachment compares NetworkAttachmentDefinitions of our pods.
func compareAttachment(want, has *unstructured.Unstructured) (Severity, string, []string) {
	wants, _, _ := unstructured.NestedString(want.Object, "spec", "config")
	got, _, _ := unstructured.NestedString(has.Object, "spec", "config")
	if wants == got {
		return "", "", nil
	}
	return Warn, "setup would change the network of its pods", []string{"found " + got, "setup would render " + wants}
}
