package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

func driftChecks() []Check {
	return []Check{{
		Code: "OOOI-INF-002", Title: "what setup has made is what it would make now", Needs: []string{"OOOI-INF-001", "OOOI-NET-002", "OOOI-POD-001"},
		After: []string{"OOOI-HC-001", "OOOI-NET-005", "OOOI-CTL-002", "OOOI-DNS-003", "OOOI-DHCP-006"},
		Reads: slices.Concat(renders(), in(AtInfra, statefulSets, configMaps, services, networkPolicies, attachments)),
		Run:   drifted,
	}}
}

// drifted are objects that are not what setup would make of the Infra and what is around it now.
func drifted(s *Site) []Finding {
	list, err := s.rendered()
	if err != nil {
		return []Finding{failed(s.ref(), "correct it in the Infra's file, and run 'kubectl oooi setup' with it", "setup would refuse it: %v", errors.Unwrap(err))}
	}
	const again = "run 'kubectl oooi setup' with the Infra's file: the Infra, or what is around it, has changed since, or somebody has changed what setup made"
	var findings []Finding
	for _, want := range list {
		compare := map[string]func(want, has *unstructured.Unstructured) (Severity, string, []string){
			configMaps.Kind: sameData, statefulSets.Kind: sameConfig, services.Kind: samePorts, attachments.Kind: sameAttachment, networkPolicies.Kind: nil,
		}
		differs, ok := compare[want.GetKind()]
		if !ok || want.GetNamespace() != s.Infra.Namespace {
			continue // rights, and what is in others' namespaces, are other checks'
		}
		kind := want.GroupVersionKind()
		ref := model.Ref{Kind: kind.Kind, Namespace: want.GetNamespace(), Name: want.GetName()}
		has := s.list(kind, AtInfra)
		at := slices.IndexFunc(has, func(u *unstructured.Unstructured) bool { return u.GetName() == want.GetName() })
		switch {
		case at < 0:
			findings = append(findings, failed(ref, again, "it does not exist"))
		case differs != nil:
			if severity, message, evidence := differs(want, has[at]); message != "" {
				f := warned(ref, again, "%s", message).because(evidence...)
				f.Severity = severity
				findings = append(findings, f)
			}
		}
	}
	return findings
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
	return Warn, "setup would write it otherwise", evidence
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
			return fmt.Sprintf(", line %d: it has %q, setup would write %q", i+1, line(is), line(wants))
		}
	}
	return ""
}

// sameConfig compares the configurations that the pods of StatefulSets were made with.
func sameConfig(want, has *unstructured.Unstructured) (Severity, string, []string) {
	of := func(u *unstructured.Unstructured) string {
		annotations, _, _ := unstructured.NestedStringMap(u.Object, "spec", "template", "metadata", "annotations")
		return annotations[v1alpha1.GroupName+"/config"]
	}
	if of(want) == of(has) {
		return "", "", nil
	}
	return Warn, "its pod runs with another configuration than setup would give it", nil
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
	return Warn, "its pods would get another network from setup", []string{"it has " + is, "setup would write " + wants}
}
