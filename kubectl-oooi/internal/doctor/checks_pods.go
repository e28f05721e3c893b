package doctor

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// component is an enabled component of the Infra, with the VLAN addresses of its replicas.
type component struct {
	name      string
	addresses []netip.Addr
}

// components returns the enabled components of the Infra.
func (s *Site) components() []component {
	spec := &s.Infra.Spec.InfraComponents
	var list []component
	add := func(enabled bool, name string, instances []v1alpha1.Instance) {
		if !enabled {
			return
		}
		c := component{name: name}
		for _, i := range instances {
			for _, text := range append([]v1alpha1.IP{i.IP}, i.AdditionalIPs...) {
				if a, err := v1alpha1.ParseAddress(string(text)); err == nil {
					c.addresses = append(c.addresses, a)
				}
			}
		}
		list = append(list, c)
	}
	add(spec.DHCP.IsEnabled(), v1alpha1.ComponentDHCP, spec.DHCP.EffectiveInstances())
	add(spec.DNS.IsEnabled(), v1alpha1.ComponentDNS, spec.DNS.EffectiveInstances())
	add(spec.Proxy.IsEnabled(), v1alpha1.ComponentProxy, spec.Proxy.EffectiveInstances())
	return list
}

// pods returns the Infra's pods of a component.
func (s *Site) pods(component string) []*corev1.Pod {
	return slices.DeleteFunc(all[corev1.Pod](s, pods, AtInfra), func(p *corev1.Pod) bool {
		return p.Labels[v1alpha1.LabelInfra] != s.Infra.Name || p.Labels[v1alpha1.LabelComponent] != component
	})
}

func podRef(p *corev1.Pod) model.Ref {
	return model.Ref{Kind: "Pod", Namespace: p.Namespace, Name: p.Name}
}

// disabled returns a NotApplicable function for checks of a component.
func disabled(name string) func(*Site) string {
	return func(s *Site) string {
		if slices.ContainsFunc(s.components(), func(c component) bool { return c.name == name }) {
			return ""
		}
		return name + " is disabled in the Infra"
	}
}

func podChecks() []Check {
	return []Check{
		{
			Code: "OOOI-CTL-001", Title: "control runs", After: []string{"OOOI-API-001"}, Reads: in(AtSystem, deployments, pods),
			Run: checkControl,
		},
		{
			Code: "OOOI-CTL-002", Title: "control has reconciled the current generation of the Infra", After: []string{"OOOI-API-001", "OOOI-CTL-001"}, Reads: in(AtInfra, infras),
			Run: func(s *Site) []Finding {
				if s.Infra.Status.ObservedGeneration == s.Infra.Generation {
					return nil
				}
				return []Finding{failed(s.ref(), "see control's log: kubectl -n "+render.SystemNamespace+" logs deployment/"+render.ControlName,
					"the status of the Infra is for generation %d, but the current generation is %d", s.Infra.Status.ObservedGeneration, s.Infra.Generation)}
			},
		},
		{
			Code: "OOOI-POD-001", Title: "each enabled component has a workload", Needs: []string{"OOOI-INF-001"}, Reads: in(AtInfra, statefulSets),
			Run: func(s *Site) []Finding {
				sets := all[appsv1.StatefulSet](s, statefulSets, AtInfra)
				var findings []Finding
				for _, c := range s.components() {
					mine := func(set *appsv1.StatefulSet) bool {
						return set.Labels[v1alpha1.LabelInfra] == s.Infra.Name && set.Labels[v1alpha1.LabelComponent] == c.name
					}
					if !slices.ContainsFunc(sets, mine) {
						findings = append(findings, failed(s.ref(), "run 'kubectl oooi setup' with the Infra's file; "+diffFirst, "%s is enabled, but its StatefulSet does not exist", c.name))
					}
				}
				return findings
			},
		},
		{
			Code: "OOOI-POD-005", Title: "the cluster admits our pods", Needs: []string{"OOOI-POD-001"}, Reads: in(AtInfra, statefulSets, creationFailures),
			Run: checkAdmission,
		},
		{
			Code: "OOOI-POD-002", Title: "our pods are ready", Needs: []string{"OOOI-POD-001"}, After: []string{"OOOI-NET-001", "OOOI-POD-005"}, Reads: in(AtInfra, pods),
			Run: func(s *Site) []Finding {
				var findings []Finding
				for _, c := range s.components() {
					list := s.pods(c.name)
					if len(list) == 0 {
						findings = append(findings, failed(s.ref(), fmt.Sprintf("find the cause: kubectl -n %s describe statefulset -l %s=%s; if the StatefulSet was scaled to 0, run 'kubectl oooi setup'", s.Infra.Namespace, v1alpha1.LabelInfra, s.Infra.Name), "%s has no pod", c.name).of(c.name))
					}
					for _, p := range list {
						if why := status.UnreadyReason(p); why != "" {
							findings = append(findings, failed(podRef(p), fmt.Sprintf("see the events and the state of the pod: kubectl -n %s describe pod %s", p.Namespace, p.Name), "%s", why).of(c.name))
						}
					}
				}
				return findings
			},
		},
		{
			Code: "OOOI-POD-003", Title: "our containers do not restart", Needs: []string{"OOOI-POD-001"}, Reads: in(AtInfra, pods),
			Run: func(s *Site) []Finding {
				var findings []Finding
				for _, c := range s.components() {
					for _, p := range s.pods(c.name) {
						findings = append(findings, restartFindings(p, s.facts.Taken)...)
					}
				}
				return findings
			},
		},
		{
			Code: "OOOI-POD-004", Title: "our pods run the image of control", Needs: []string{"OOOI-POD-001"}, Reads: slices.Concat(in(AtInfra, pods), in(AtSystem, pods)),
			Run: checkImages,
		},
	}
}

// checkImages finds pods of our components whose image differs from control's. Control may not understand the
// status of another release.
func checkImages(s *Site) []Finding {
	runs := map[string][]*corev1.Pod{}
	add := func(p *corev1.Pod, names ...string) {
		for i := range p.Spec.Containers {
			if c := &p.Spec.Containers[i]; slices.Contains(names, c.Name) {
				runs[c.Image] = append(runs[c.Image], p)
			}
		}
	}
	for _, p := range all[corev1.Pod](s, pods, AtSystem) {
		add(p, "control")
	}
	control := slices.Sorted(maps.Keys(runs))
	for _, c := range s.components() {
		for _, p := range s.pods(c.name) {
			add(p, "coredns", "coredhcp", "xdsd")
		}
	}
	var findings []Finding
	for _, image := range slices.Sorted(maps.Keys(runs)) {
		if len(control) == 0 || slices.Contains(control, image) {
			continue
		}
		for _, p := range runs[image] {
			findings = append(findings, warned(podRef(p), "run 'kubectl oooi setup' with the file of each Infra, from the same release of kubectl-oooi, and with --force-conflicts if another client changed the image; images that the Infra sets take precedence; this restarts the pods whose image changes: "+diffFirst, "the pod runs image %s", image).
				because("control runs image "+strings.Join(control, ", ")))
		}
	}
	return findings
}

func checkControl(s *Site) []Finding {
	for _, d := range all[appsv1.Deployment](s, deployments, AtSystem) {
		if d.Name != render.ControlName {
			continue
		}
		if d.Status.AvailableReplicas > 0 {
			return nil
		}
		ref := model.Ref{Kind: deployments.Kind, Namespace: d.Namespace, Name: d.Name}
		f := failed(ref, fmt.Sprintf("see its pods: kubectl -n %s describe pods", d.Namespace), "no replica of control is available: the status of Infras is outdated, and the apps address is not reconciled")
		for _, p := range all[corev1.Pod](s, pods, AtSystem) {
			if why := status.UnreadyReason(p); why != "" {
				f = f.because(p.Name + ": " + why)
			}
		}
		return []Finding{f}
	}
	return []Finding{failed(model.Ref{Kind: deployments.Kind, Namespace: render.SystemNamespace, Name: render.ControlName}, "run 'kubectl oooi setup' again to apply it", "the Deployment does not exist")}
}

// Restarts are reported if there were at least manyRestarts, the last within recentRestart.
const (
	recentRestart = time.Hour
	manyRestarts  = 3
)

// restartFindings returns the containers of a pod that restart repeatedly.
func restartFindings(p *corev1.Pod, now time.Time) []Finding {
	var findings []Finding
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		last := c.LastTerminationState.Terminated
		if last == nil || c.RestartCount < manyRestarts || now.Sub(last.FinishedAt.Time) > recentRestart {
			continue
		}
		remedy := fmt.Sprintf("see the log of its previous run: kubectl -n %s logs %s -c %s --previous", p.Namespace, p.Name, c.Name)
		if last.Reason == "OOMKilled" {
			remedy = "raise the memory limit in the component's resources in the Infra"
		}
		findings = append(findings, warned(podRef(p), remedy, "container %s has terminated %d times, last at %s: %s, exit code %d",
			c.Name, c.RestartCount, last.FinishedAt.UTC().Format(time.RFC3339), last.Reason, last.ExitCode))
	}
	return findings
}
