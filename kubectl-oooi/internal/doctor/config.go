package doctor

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
)

// configMetric has the digest of the file with which a daemon started. Earlier releases do not export it.
const configMetric = "oooi_config_info"

func init() {
	register(Check{
		Code: "OOOI-POD-013", Title: "our pods run the configuration of their ConfigMap", After: []string{"OOOI-POD-002"},
		Reads: slices.Concat(in(AtInfra, pods, statefulSets), renderReads(), pagesIn(AtInfra, dnsMetrics, dhcpMetrics)), NotApplicable: noServingPods(dnsMetrics, dhcpMetrics),
		Run: checkConfigurations,
	})
}

// checkConfigurations finds pods that started while their ConfigMap had another content: the daemons read it only then.
func checkConfigurations(s *Site) []Finding {
	rendered, err := s.rendered()
	if err != nil {
		return nil // OOOI-INF-002 reports it
	}
	drifts := s.facts.drifts[s.key()]
	var findings []Finding
	for _, p := range []page{dnsMetrics, dhcpMetrics} {
		for _, x := range s.metrics(p) {
			running := ""
			x.value.each(configMetric, func(labels map[string]string, _ float64) { running = labels["sha256"] })
			component := componentOf(x.pod)
			name := "" // of the ConfigMap of all replicas, or of the pod's, which is named like its StatefulSet
			rendersRunning := false
			for _, o := range rendered {
				if o.GetKind() != configMaps.Kind || o.GetLabels()[v1alpha1.LabelComponent] != component {
					continue
				}
				rendersRunning = rendersRunning || hasDigest(o, running)
				if name == "" || x.pod.Name == o.GetName()+"-0" {
					name = o.GetName()
				}
			}
			changing := slices.ContainsFunc(drifts, func(d drift) bool { // setup has not run, or has not ended
				return d.Component == component && d.Object.Kind == statefulSets.Kind
			})
			if running == "" || name == "" || changing || rendersRunning {
				continue
			}
			replace := restartPod(x.pod).Command
			edit := slices.IndexFunc(drifts, func(d drift) bool { return d.Object.Kind == configMaps.Kind && d.Object.Name == name })
			if edit < 0 {
				findings = append(findings, failed(podRef(x.pod), "restart the pod: "+replace,
					"the pod runs another configuration than ConfigMap %s has: it started while that was different", name).of(component))
				continue
			}
			d := &drifts[edit] // what the edit breaks is for other checks: it may be harmless
			_, remedy := s.cause(d, s.restartedPods(drifts)[component])
			if !slices.Contains(s.startedSince(d), x.pod.Name) { // it started with an earlier edit
				remedy += "; then restart the pod: " + replace
			}
			f := warned(podRef(x.pod), remedy,
				"the pod started with an edited configuration: ConfigMap %s differs from what setup would render", name)
			for _, one := range d.Differences[:min(len(d.Differences), maxDifferences)] {
				f = f.because(one.String())
			}
			findings = append(findings, f.of(component))
		}
	}
	return findings
}

// hasDigest reports whether a ConfigMap has a file with a digest.
func hasDigest(configMap *unstructured.Unstructured, digest string) bool {
	data, _, _ := unstructured.NestedStringMap(configMap.Object, "data")
	for _, content := range data {
		if sum := sha256.Sum256([]byte(content)); hex.EncodeToString(sum[:]) == digest {
			return true
		}
	}
	return false
}
