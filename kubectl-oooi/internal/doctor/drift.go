package doctor

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/densityops/oooi/api/v1alpha1"
)

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
