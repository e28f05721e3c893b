package doctor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

func driftChecks() []Check {
	return []Check{{
		Code: "OOOI-INF-002", Title: "deployed objects match the rendered configuration", Needs: []string{"OOOI-INF-001", "OOOI-NET-002", "OOOI-POD-001"},
		After: []string{"OOOI-HC-001", "OOOI-NET-005", "OOOI-CTL-002", "OOOI-DNS-003", "OOOI-DHCP-006"},
		Reads: slices.Concat(renders(), in(AtInfra, statefulSets, configMaps, services, networkPolicies, attachments)),
		Run:   drifted,
	}}
}

// drifted are objects that are not what setup would make of the Infra and what is around it now.
func drifted(s *Site) []Finding {
	list, err := s.rendered()
	if err != nil {
		return []Finding{failed(s.ref(), "correct it in the Infra's file, and run 'kubectl oooi setup' with it; "+diffFirst, "setup would refuse it: %v", errors.Unwrap(err))}
	}
	restarts := s.restarts(list)
	var findings []Finding
	for _, want := range list {
		differs, ok := compared[want.GetKind()]
		if !ok || want.GetNamespace() != s.Infra.Namespace {
			continue // rights, and what is in others' namespaces, are other checks'
		}
		kind := want.GroupVersionKind()
		ref := model.Ref{Kind: kind.Kind, Namespace: want.GetNamespace(), Name: want.GetName()}
		has := s.list(kind, AtInfra)
		at := slices.IndexFunc(has, func(u *unstructured.Unstructured) bool { return u.GetName() == want.GetName() })
		switch {
		case at < 0:
			findings = append(findings, failed(ref, "run 'kubectl oooi setup' with the Infra's file; "+diffFirst, "it does not exist"))
		case differs != nil:
			if severity, message, evidence := differs(want, has[at]); message != "" {
				why, remedy := s.cause(has[at], restarts[want.GetLabels()[v1alpha1.LabelComponent]])
				f := warned(ref, remedy, "%s: %s", message, why[0]).because(append(evidence, why[1:]...)...)
				f.Severity = severity
				findings = append(findings, f)
			}
			findings = append(findings, foreign(ref, want, has[at])...)
		}
	}
	return findings
}

// foreign is what others have added to the pods of a StatefulSet, which setup leaves as it is.
func foreign(ref model.Ref, want, has *unstructured.Unstructured) []Finding {
	var findings []Finding
	for _, f := range setup.ForeignFields(has, want) {
		remedy := fmt.Sprintf("if it is unwanted, run 'kubectl oooi setup' with the Infra's file and --force-conflicts to remove it; this restarts pod %s/%s-0: %s", has.GetNamespace(), has.GetName(), diffFirst)
		if f.Applied {
			remedy = "if it is unwanted, remove it from the configuration that " + f.Manager + " applies"
		}
		findings = append(findings, warned(ref, remedy, "it has fields that setup does not render: %s", f))
	}
	return findings
}

// compared says for each kind how an object is compared, nil for one that only has to exist.
var compared = map[string]func(want, has *unstructured.Unstructured) (Severity, string, []string){
	configMaps.Kind: sameData, statefulSets.Kind: sameConfig, services.Kind: samePorts, attachments.Kind: sameAttachment, networkPolicies.Kind: nil,
}

// diffFirst names the command that shows what setup would do.
const diffFirst = "'kubectl oooi diff' with the same file shows what changes, and which pods restart"

// comparedFields are the fields of a kind that are compared. Each file of a ConfigMap has an owner.
func comparedFields(kind string) [][]string {
	switch kind {
	case services.Kind:
		return [][]string{{"spec", "ports"}}
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

// cause says why an object differs from what setup would make, and what to do about it: somebody has edited it, or
// something that it is made of has changed.
func (s *Site) cause(has *unstructured.Unstructured, restarts []string) (why []string, remedy string) {
	restart := restartNote(restarts)
	if by := s.edited(has); by != "" {
		return []string{by}, "run 'kubectl oooi setup' with the Infra's file and --force-conflicts to restore it" + restart
	}
	for _, source := range s.sources() {
		if changed := changedSince(source, has); changed != "" {
			why = append(why, changed)
		}
	}
	if len(why) == 0 {
		why = []string{"one of its sources has changed, or another version of setup created it"}
	}
	return why, "run 'kubectl oooi setup' with the Infra's file" + restart
}

// restartNote is the end of a remedy that is to run setup: which pods restart.
func restartNote(pods []string) string {
	if len(pods) == 0 {
		return "; this restarts no pod: " + diffFirst
	}
	return "; this restarts " + strings.Join(pods, ", ") + ": " + diffFirst
}

// edited says who has changed the field of an object that is compared; empty for nobody.
func (s *Site) edited(has *unstructured.Unstructured) string {
	for _, path := range comparedFields(has.GetKind()) {
		_, there, _ := unstructured.NestedFieldNoCopy(has.Object, path...)
		if by := editor(has, path...); there && by != nil {
			return fmt.Sprintf("it was changed by %q at %s, after setup", by.Manager, at(timeOf(*by)))
		}
	}
	return ""
}

// sources are what setup makes objects of.
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

// restarts are the pods that setup would replace, by component: those whose configuration differs.
func (s *Site) restarts(wants []*unstructured.Unstructured) map[string][]string {
	pods := map[string][]string{}
	for _, want := range wants {
		if want.GetKind() != statefulSets.Kind {
			continue
		}
		for _, has := range s.list(statefulSets, AtInfra) {
			if _, message, _ := sameConfig(want, has); has.GetName() == want.GetName() && message != "" {
				component := want.GetLabels()[v1alpha1.LabelComponent]
				pods[component] = append(pods[component], fmt.Sprintf("pod %s/%s-0", has.GetNamespace(), has.GetName()))
			}
		}
	}
	return pods
}

// sameData compares ConfigMaps, and tells the first line of each file that differs.
func sameData(want, has *unstructured.Unstructured) (Severity, string, []string) {
	wants, _, _ := unstructured.NestedStringMap(want.Object, "data")
	is, _, _ := unstructured.NestedStringMap(has.Object, "data")
	var evidence []string
	for _, file := range []string{"Corefile", "config.yml"} {
		if wants[file] != is[file] {
			evidence = append(evidence, file+firstDifference(wants[file], is[file]))
		}
	}
	if len(evidence) == 0 {
		return "", "", nil
	}
	return Warn, "setup would render it differently", evidence
}

// firstDifference tells where two texts part.
func firstDifference(want, has string) string {
	wants, is := strings.Split(want, "\n"), strings.Split(has, "\n")
	for i := range max(len(wants), len(is)) {
		line := func(lines []string) string {
			if i < len(lines) {
				return strings.TrimSpace(lines[i])
			}
			return ""
		}
		if line(wants) != line(is) {
			return fmt.Sprintf(", line %d: it has %q, setup would render %q", i+1, line(is), line(wants))
		}
	}
	return ""
}

// sameConfig compares what the pods of StatefulSets are made with: their configuration and their command lines.
func sameConfig(want, has *unstructured.Unstructured) (Severity, string, []string) {
	of := func(u *unstructured.Unstructured) string {
		annotations, _, _ := unstructured.NestedStringMap(u.Object, "spec", "template", "metadata", "annotations")
		return annotations[annotationConfig]
	}
	if of(want) != of(has) {
		return Warn, "its pod runs with a configuration that setup would change", nil
	}
	is := map[string]string{}
	for digest, c := range commandDigests(has.Object) {
		is[containerName(c)] = digest
	}
	var others []string
	for digest, c := range commandDigests(want.Object) {
		if now := is[containerName(c)]; now != "" && now != digest {
			others = append(others, containerName(c))
		}
	}
	if len(others) > 0 {
		return Warn, "its pod runs with arguments that setup would change, of container " + strings.Join(others, ", "), nil
	}
	return "", "", nil
}

// digestPrefix begins a digest that is in place of a command.
const digestPrefix = "sha256:"

// commandDigests are the containers in the pods of a StatefulSet, each with a digest of its command line.
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

// samePorts looks for ports that a Service lacks. One that is not there is closed to pods.
func samePorts(want, has *unstructured.Unstructured) (Severity, string, []string) {
	of := func(u *unstructured.Unstructured) []string {
		service, err := decode[corev1.Service](u)
		if err != nil {
			return nil
		}
		var ports []string
		for i := range service.Spec.Ports {
			ports = append(ports, fmt.Sprintf("%d/%s", service.Spec.Ports[i].Port, service.Spec.Ports[i].Protocol))
		}
		return ports
	}
	lacks := slices.DeleteFunc(of(want), func(p string) bool { return slices.Contains(of(has), p) })
	if len(lacks) == 0 {
		return "", "", nil
	}
	return Fail, "it lacks port " + strings.Join(lacks, ", "), nil
}

// sameAttachment compares the networks of our own pods.
func sameAttachment(want, has *unstructured.Unstructured) (Severity, string, []string) {
	wants, _, _ := unstructured.NestedString(want.Object, "spec", "config")
	is, _, _ := unstructured.NestedString(has.Object, "spec", "config")
	if wants == is {
		return "", "", nil
	}
	return Warn, "setup would change the network of its pods", []string{"it has " + is, "setup would render " + wants}
}
