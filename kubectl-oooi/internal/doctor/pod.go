package doctor

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/status"
)

func init() {
	register(
		Check{
			Code: "OOOI-POD-001", Title: "each enabled component has a workload", Needs: []string{"OOOI-INF-001"}, Reads: in(AtInfra, statefulSets),
			Run: func(s *Site) []Finding {
				sets := all[appsv1.StatefulSet](s, statefulSets, AtInfra)
				var findings []Finding
				for _, c := range s.components() {
					mine := func(set *appsv1.StatefulSet) bool {
						return s.owns(set.Labels) && set.Labels[v1alpha1.LabelComponent] == c.name
					}
					if !slices.ContainsFunc(sets, mine) {
						findings = append(findings, failed(s.ref(), "run 'kubectl oooi setup -f FILE' with the Infra's file; "+diffFirst, "%s is enabled, but its StatefulSet does not exist", c.name))
					}
				}
				return findings
			},
		},
		Check{
			Code: "OOOI-POD-002", Title: "our pods are ready", Needs: []string{"OOOI-POD-001"}, After: []string{"OOOI-NET-001", "OOOI-NODE-001", "OOOI-NODE-004", "OOOI-POD-005", "OOOI-POD-009"},
			// The optional ones are about an edit because of which a pod does not start.
			Reads: slices.Concat(in(AtInfra, pods, statefulSets, podEvents), logReads(AtInfra), optional(slices.Concat(renderReads(), in(AtInfra, comparedKinds...)))),
			Run: func(s *Site) []Finding {
				var findings []Finding
				for _, c := range s.components() {
					list := s.pods(c.name)
					if scaled := s.scaledFindings(c.name); len(list) == 0 && len(scaled) > 0 {
						findings = append(findings, scaled...)
					} else if len(list) == 0 {
						findings = append(findings, s.noPodFinding(c.name))
					}
					for _, p := range list {
						if why := status.UnreadyReason(p); why != "" {
							f := s.withPullFailure(s.withStartEvent(s.unreadyFinding(p, why), p), p)
							findings = append(findings, s.withEdit(f, p).of(c.name))
						}
					}
				}
				return findings
			},
		},
		Check{
			Code: "OOOI-POD-003", Title: "our containers do not restart", Needs: []string{"OOOI-POD-001"}, Reads: slices.Concat(in(AtInfra, pods), logReads(AtInfra)),
			Run: func(s *Site) []Finding {
				var findings []Finding
				for _, p := range s.componentPods() {
					findings = append(findings, s.restartFindings(p)...)
				}
				return findings
			},
		},
		Check{
			Code: "OOOI-POD-004", Title: "our pods run the image of control", Needs: []string{"OOOI-POD-001"}, Reads: slices.Concat(in(AtInfra, pods), in(AtSystem, pods)),
			Run: checkImages,
		},
		Check{
			Code: "OOOI-POD-005", Title: "the cluster admits our pods", Needs: []string{"OOOI-POD-001"}, Reads: slices.Concat(in(AtInfra, pods, statefulSets, podEvents), optional(in(AtInfra, limitRanges)), optional(in(Everywhere, webhookKinds...))),
			Run: func(s *Site) []Finding { return append(checkAdmission(s), s.strippedPods()...) },
		},
		Check{
			Code: "OOOI-POD-006", Title: "pods with the same image name run the same build", Needs: []string{"OOOI-POD-001"}, Reads: slices.Concat(in(AtInfra, pods), in(AtSystem, pods)),
			Run: checkBuilds,
		},
		Check{
			Code: "OOOI-POD-007", Title: "our pods are below their memory limit", Needs: []string{"OOOI-POD-001"}, After: []string{"OOOI-POD-002"},
			Reads: pagesIn(AtInfra, memoryPages...), NotApplicable: noServingPods(memoryPages...), Run: checkMemory,
		},
		Check{
			Code: "OOOI-POD-008", Title: "our pods are below their CPU limit", Needs: []string{"OOOI-POD-001"}, After: []string{"OOOI-POD-002"},
			Reads: slices.Concat(in(AtInfra, pods, podMetrics), in(AtSystem, pods, podMetrics)), Run: checkCPU, NotApplicable: func(s *Site) string {
				if s.served(podMetrics) {
					return ""
				}
				return "the cluster does not serve " + podMetrics.GroupVersion().String() + "; install metrics-server"
			},
		},
		Check{
			Code: "OOOI-POD-009", Title: "our containers answer the kubelet's probes", Needs: []string{"OOOI-POD-001"}, After: []string{"OOOI-NODE-001"}, Reads: in(AtInfra, pods, podEvents),
			Run: checkProbes,
		},
		Check{
			Code: "OOOI-POD-010", Title: "our processes are below their limit of open files", Needs: []string{"OOOI-POD-001"}, After: []string{"OOOI-POD-002"},
			Reads: pagesIn(AtInfra, daemonMetrics...), NotApplicable: noServingPods(daemonMetrics...), Run: checkOpenFiles,
		},
		Check{
			Code: "OOOI-POD-011", Title: "our daemons can write their snapshot files", Needs: []string{"OOOI-POD-001"}, After: []string{"OOOI-POD-002"},
			Reads: pagesIn(AtInfra, dnsMetrics, dhcpState, xdsdState), NotApplicable: noServingPods(dnsMetrics, dhcpState, xdsdState), Run: checkSnapshotFiles,
		},
	)
}

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
		return !s.owns(p.Labels) || p.Labels[v1alpha1.LabelComponent] != component
	})
}

// componentPods returns the Infra's pods of all enabled components.
func (s *Site) componentPods() []*corev1.Pod {
	var list []*corev1.Pod
	for _, c := range s.components() {
		list = append(list, s.pods(c.name)...)
	}
	return list
}

// componentOf returns the component of one of our pods.
func componentOf(p *corev1.Pod) string { return p.Labels[v1alpha1.LabelComponent] }

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
	for _, p := range s.componentPods() {
		add(p, "coredns", "coredhcp", "xdsd")
	}
	var findings []Finding
	for _, image := range slices.Sorted(maps.Keys(runs)) {
		if len(control) == 0 || slices.Contains(control, image) {
			continue
		}
		for _, p := range runs[image] {
			findings = append(findings, warned(podRef(p), "run 'kubectl oooi setup -f FILE' with the file of each Infra, from the same release of kubectl-oooi, and with --force-conflicts if another client changed the image; images that the Infra sets take precedence; this restarts the pods whose image changes: "+diffFirst, "the pod runs image %s", image).
				because("control runs image "+strings.Join(control, ", ")))
		}
	}
	return findings
}

// Restarts are reported if there were at least manyRestarts, the last within recentRestart, and crashes if there were at
// least manyCrashes, the last within recentCrash.
const (
	recentRestart = time.Hour
	manyRestarts  = 3
	recentCrash   = 10 * time.Minute
	manyCrashes   = 2
)

// outOfMemory is the reason of a container that the kernel killed at its memory limit.
const outOfMemory = "OOMKilled"

// restartFindings returns the containers of a pod that restart repeatedly, or crashed recently, with the reason in the log of
// the previous run.
func (s *Site) restartFindings(p *corev1.Pod) []Finding {
	var findings []Finding
	unready := s.unreadyCrash(p)
	for _, c := range crashes(p, s.facts.Taken) {
		if unready != nil && unready.Name == c.Name { // OOOI-POD-002 reports it
			continue
		}
		if !repeatedly(c.ContainerStatus, s.facts.Taken) && !crashed(c.ContainerStatus, s.facts.Taken) {
			continue
		}
		last := c.LastTerminationState.Terminated
		reason, evidence := s.crashReason(p, &c)
		remedy := fmt.Sprintf("see the log of its previous run: kubectl -n %s logs %s -c %s --previous", p.Namespace, p.Name, c.Name)
		killed := last.ExitCode == 128+int32(syscall.SIGKILL) || last.ExitCode == 128+int32(syscall.SIGTERM)
		switch {
		case last.Reason == outOfMemory:
			remedy = "raise the memory limit in the component's resources in the Infra"
		case limitLine.MatchString(reason):
			remedy = fileLimitRemedy(p)
		case killed:
			remedy = fmt.Sprintf("find out what killed it: the kubelet after failed probes (kubectl -n %s describe pod %s), or the kernel or another process on node %s (journalctl)", p.Namespace, p.Name, p.Spec.NodeName)
		}
		text := fmt.Sprintf("%s, exit code %d", last.Reason, last.ExitCode)
		switch {
		case killed: // its log does not have the reason
			text += fmt.Sprintf(" (signal %d)", last.ExitCode-128)
		case reason != "":
			text += ": " + reason
		}
		findings = append(findings, warned(podRef(p), remedy, "container %s has terminated %s, last at %s: %s",
			c.Name, times(c.RestartCount), formatTime(last.FinishedAt.Time), text).because(evidence...))
	}
	return findings
}

// times returns a number of times in words.
func times(n int32) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// checkAdmission finds StatefulSets that have fewer pods than replicas because creating a pod failed. The
// message is that of the latest FailedCreate Event.
func checkAdmission(s *Site) []Finding {
	var findings []Finding
	for _, r := range s.rejectedSets() {
		ref := model.Ref{Kind: statefulSets.Kind, Namespace: r.set.Namespace, Name: r.set.Name}
		f := failed(ref, s.remedyFor(r.set.Namespace, r.message), "the API server rejects the pod of the StatefulSet: %s", r.message)
		if by, remedy := s.limitRejection(r.set.Namespace, r.message); by != "" {
			f.Message, f.Remedy = f.Message+"; that is a rule of "+by, remedy
		}
		findings = append(findings, f.of(r.set.Labels[v1alpha1.LabelComponent]))
	}
	return findings
}

// annotationRemoved is why a new pod has no interface on the VLAN, and annotationRemedy what to do about it.
const (
	annotationRemoved = "a webhook or policy of the API server removed annotation " + render.NetworksAnnotation
	annotationRemedy  = "find what changes pods of the Infra's namespace, and exempt ours: kubectl get mutatingwebhookconfigurations,mutatingadmissionpolicies"
)

// strippedPods finds pods that the API server created without the annotation by which Multus connects them to the VLAN, and
// that all of our StatefulSets have.
func (s *Site) strippedPods() []Finding {
	var findings []Finding
	for _, p := range s.componentPods() {
		if attached, err := read.PodInterfaces(p); p.Annotations[render.NetworksAnnotation] != "" || err == nil && len(attached) > 0 {
			continue
		}
		findings = append(findings, failed(podRef(p), annotationRemedy+"; then replace the pod: "+restartPod(p).Command,
			"the pod lacks annotation %s of its StatefulSet, so that it has no interface on the VLAN: a webhook or policy of the API server removed it", render.NetworksAnnotation).
			of(componentOf(p)))
	}
	return findings
}

// A rejectedSet is a StatefulSet whose pod could not be created, with the message of the latest Event.
type rejectedSet struct {
	set     *appsv1.StatefulSet
	message string
}

func (s *Site) rejectedSets() []rejectedSet {
	var list []rejectedSet
	for _, set := range all[appsv1.StatefulSet](s, statefulSets, AtInfra) {
		if !s.owns(set.Labels) || set.Spec.Replicas != nil && set.Status.Replicas >= *set.Spec.Replicas {
			continue
		}
		lastSeen := map[string]time.Time{}
		for _, e := range all[corev1.Event](s, podEvents, AtInfra) {
			if e.InvolvedObject.UID == set.UID && e.LastTimestamp.After(lastSeen[e.Message]) {
				lastSeen[e.Message] = e.LastTimestamp.Time
			}
		}
		messages := slices.SortedFunc(maps.Keys(lastSeen), func(a, b string) int { return lastSeen[b].Compare(lastSeen[a]) })
		if len(messages) > 0 {
			list = append(list, rejectedSet{set, messages[0]})
		}
	}
	return list
}

// remedyFor returns the remedy for the message of a FailedCreate Event in a namespace.
func (s *Site) remedyFor(namespace, message string) string {
	_, remedy := s.rejection(namespace, message)
	switch {
	case remedy != "":
		return remedy
	case strings.Contains(message, "security context constraint"):
		return "run 'kubectl oooi diff -f FILE' to see how the pod differs from the rendered one, and check that its ServiceAccount may use the SecurityContextConstraints that the pod requires: docs/reference/openshift.md"
	case strings.Contains(message, "PodSecurity"):
		return "run 'kubectl oooi diff -f FILE' to see how the pod differs from the rendered one: rendered pods comply with level restricted, except proxies with a floating address, which require privileged"
	case strings.Contains(message, "quota"):
		return "correct the ResourceQuotas of the namespace: kubectl -n " + namespace + " describe resourcequotas"
	default:
		return "find the admission webhook or policy that rejects the pod, and correct it"
	}
}

// checkBuilds finds pods that run different builds of an image under one name, by the image IDs of their
// containers.
func checkBuilds(s *Site) []Finding {
	runs := map[string]map[string][]*corev1.Pod{}
	for _, p := range append(all[corev1.Pod](s, pods, AtSystem), s.componentPods()...) {
		for i := range p.Status.ContainerStatuses {
			c := &p.Status.ContainerStatuses[i]
			at := slices.IndexFunc(p.Spec.Containers, func(of corev1.Container) bool { return of.Name == c.Name })
			if at < 0 || c.ImageID == "" {
				continue
			}
			image := p.Spec.Containers[at].Image
			if runs[image] == nil {
				runs[image] = map[string][]*corev1.Pod{}
			}
			runs[image][c.ImageID] = append(runs[image][c.ImageID], p)
		}
	}
	var findings []Finding
	for _, image := range slices.Sorted(maps.Keys(runs)) {
		if len(runs[image]) < 2 {
			continue
		}
		var evidence []string
		var one *corev1.Pod
		for _, id := range slices.Sorted(maps.Keys(runs[image])) {
			for _, p := range runs[image][id] {
				evidence = append(evidence, fmt.Sprintf("%s/%s: %s", p.Namespace, p.Name, id))
				one = p
			}
		}
		findings = append(findings, warned(podRef(one), "reference the image by digest or by an immutable tag, and restart the outdated pods",
			"pods run different builds of image %s: its tag was moved between their starts", image).because(evidence...))
	}
	return findings
}

// memoryPages are the metrics pages that report the memory of their container.
var memoryPages = append(slices.Clip(daemonMetrics), envoyMetrics)

const (
	residentMetric = "process_resident_memory_bytes"
	physicalMetric = "envoy_server_memory_physical_size"
)

// checkMemory finds containers whose memory is near their limit.
func checkMemory(s *Site) []Finding {
	var findings []Finding
	for _, p := range memoryPages {
		for _, d := range s.metrics(p) {
			has := max(d.value.sum(residentMetric), d.value.sum(physicalMetric))
			for i := range d.pod.Spec.Containers {
				c := &d.pod.Spec.Containers[i]
				limit := c.Resources.Limits.Memory()
				if c.Name != p.container() || limit.IsZero() || has < nearLimit*float64(limit.Value()) {
					continue
				}
				findings = append(findings, warned(podRef(d.pod), "raise the memory limit in the component's resources in the Infra; at the limit, the container is killed",
					"container %s uses %d of %d MiB of memory", c.Name, int64(has)>>20, limit.Value()>>20))
			}
		}
	}
	return findings
}

// podUsage has the fields of a PodMetrics object that are read.
type podUsage struct {
	metav1.ObjectMeta `json:"metadata"`

	Containers []struct {
		Name  string              `json:"name"`
		Usage corev1.ResourceList `json:"usage"`
	} `json:"containers"`
}

// checkCPU finds containers whose CPU usage is near their limit, at which they are throttled.
func checkCPU(s *Site) []Finding {
	ours := append(all[corev1.Pod](s, pods, AtSystem), s.componentPods()...)
	var findings []Finding
	for _, usage := range append(all[podUsage](s, podMetrics, AtInfra), all[podUsage](s, podMetrics, AtSystem)...) {
		at := slices.IndexFunc(ours, func(p *corev1.Pod) bool { return p.Namespace == usage.Namespace && p.Name == usage.Name })
		if at < 0 {
			continue
		}
		for i := range ours[at].Spec.Containers {
			c := &ours[at].Spec.Containers[i]
			limit := c.Resources.Limits.Cpu()
			for _, u := range usage.Containers {
				if u.Name == c.Name && !limit.IsZero() && u.Usage.Cpu().AsApproximateFloat64() >= nearLimit*limit.AsApproximateFloat64() {
					findings = append(findings, warned(podRef(ours[at]), "raise or remove the CPU limit in the component's resources in the Infra; at the limit, the container is throttled",
						"container %s uses %s of %s CPUs", c.Name, u.Usage.Cpu(), limit))
				}
			}
		}
	}
	return findings
}

// checkSnapshotFiles finds daemons that cannot write their snapshot files: the file system of the volume is full or
// read-only.
func checkSnapshotFiles(s *Site) []Finding {
	var findings []Finding
	add := func(pod *corev1.Pod, p page, evidence ...string) {
		if evidence = slices.DeleteFunc(evidence, func(text string) bool { return text == "" }); len(evidence) > 0 {
			remedy := "free space on the node's file system with the volumes of pods (/var/lib/kubelet), or find out why volume 'state' of the pod is read-only; the log has the error: kubectl -n %s logs %s -c %s"
			findings = append(findings, warned(podRef(pod), fmt.Sprintf(remedy, pod.Namespace, pod.Name, p.container()),
				"%s cannot write its snapshot file: if it restarts during an outage of the API server, its data is missing or outdated", p.daemon()).because(evidence...))
		}
	}
	for _, d := range s.metrics(dnsMetrics) {
		var sources []string
		d.value.each("coredns_oooi_snapshot_write_failed", func(labels map[string]string, value float64) {
			if value > 0 {
				sources = append(sources, "the last write of the objects of "+labels["source"]+" failed")
			}
		})
		add(d.pod, dnsMetrics, sources...)
	}
	for _, d := range states[dhcpReport](s, dhcpState, AtInfra) {
		var failures []string
		if d.value.Kubevirt != nil {
			failures = append(failures, d.value.Kubevirt.SnapshotFailure)
		}
		for _, l := range d.value.Leasedb {
			failures = append(failures, l.SnapshotFailure)
		}
		add(d.pod, dhcpState, failures...)
	}
	for _, x := range states[xdsdReport](s, xdsdState, AtInfra) {
		add(x.pod, xdsdState, x.value.Store.SnapshotFailure)
	}
	return findings
}

// noPodFinding returns the finding about a component without a pod. The status of a StatefulSet follows its pods within a
// second, so that one which still counts them has no controller.
func (s *Site) noPodFinding(component string) Finding {
	for _, set := range all[appsv1.StatefulSet](s, statefulSets, AtInfra) {
		if s.owns(set.Labels) && set.Labels[v1alpha1.LabelComponent] == component && set.Status.Replicas > 0 {
			return failed(s.ref(), "check kube-controller-manager: kubectl get pods -A -l component=kube-controller-manager; on OpenShift: kubectl get clusteroperator kube-controller-manager",
				"%s has no pod, and kube-controller-manager does not create it: the status of StatefulSet %s still counts %d", component, set.Name, set.Status.Replicas).of(component)
		}
	}
	return failed(s.ref(), fmt.Sprintf("find the cause: kubectl -n %s describe statefulset -l %s", s.Infra.Namespace, s.ownLabels(component)), "%s has no pod", component).of(component)
}

// checkProbes finds containers that run but do not answer the kubelet's probes, by the latest Unhealthy Event of an
// unready pod.
func checkProbes(s *Site) []Finding {
	var findings []Finding
	for _, p := range s.componentPods() {
		if status.UnreadyReason(p) == "" {
			continue
		}
		latest := map[string]*corev1.Event{} // by container
		for _, e := range all[corev1.Event](s, podEvents, AtInfra) {
			name := containerOf(e.InvolvedObject.FieldPath)
			if before := latest[name]; e.InvolvedObject.UID == p.UID && e.Reason == unhealthy && (before == nil || e.LastTimestamp.After(before.LastTimestamp.Time)) {
				latest[name] = e
			}
		}
		for _, name := range slices.Sorted(maps.Keys(latest)) {
			if strings.Contains(latest[name].Message, refusedProbe) && s.facts.Taken.Sub(startOf(p, name)) < startGracePeriod {
				continue // OOOI-POD-002 reports that it is not ready yet
			}
			if why, remedy, fix := probeFailure(latest[name].Message, p, name); why != "" && isUnready(p, name) {
				findings = append(findings, failed(podRef(p), remedy, "container %s %s", name, why).because(latest[name].Message).of(componentOf(p)).fixedBy(fix))
			}
		}
	}
	return findings
}

const (
	// refusedProbe is in messages about containers that do not listen.
	refusedProbe = "connection refused"
	// startGracePeriod is how long a container may need until it listens.
	startGracePeriod = 45 * time.Second
)

// startOf returns the time before which a container of a pod has not started: when the previous one ended, or the pod was
// created.
func startOf(p *corev1.Pod, name string) time.Time {
	start := p.CreationTimestamp.Time
	for _, c := range slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses) {
		if last := c.LastTerminationState.Terminated; c.Name == name && last != nil {
			start = later(start, last.FinishedAt.Time)
		}
	}
	return start
}

// unhealthy is the reason of the kubelet's Events about failed probes.
const unhealthy = "Unhealthy"

// containerOf returns the container in the field path of an Event's object, such as spec.containers{coredns}.
func containerOf(path string) string {
	_, name, _ := strings.Cut(path, "{")
	return strings.TrimSuffix(name, "}")
}

// isUnready reports whether a container of a pod runs and is not ready.
func isUnready(p *corev1.Pod, name string) bool {
	return slices.ContainsFunc(slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses), func(c corev1.ContainerStatus) bool {
		return c.Name == name && !c.Ready && c.State.Waiting == nil && c.State.Terminated == nil
	})
}

// probeFailure returns what the message of a failed probe says about a container, the remedy and its fix, nil for none;
// empty if the container itself answered that it is not ready.
func probeFailure(message string, p *corev1.Pod, container string) (why, remedy string, fix *Fix) {
	fix = restartPod(p)
	restart := fmt.Sprintf("see its log (kubectl -n %s logs %s -c %s), and delete the pod to restart it: %s", p.Namespace, p.Name, container, fix.Command)
	switch {
	case strings.Contains(message, refusedProbe):
		return "does not listen: its process has not started to serve, or has stopped", restart, fix
	case strings.Contains(message, "no route to host"), strings.Contains(message, "network is unreachable"):
		return "cannot be reached from node " + p.Spec.NodeName + ": the pod network is broken there", "check the network plugin of node " + p.Spec.NodeName, nil
	case strings.Contains(message, "context deadline exceeded"), strings.Contains(message, "i/o timeout"):
		return "does not answer the kubelet: its process hangs, or a filter on node " + p.Spec.NodeName + " drops the kubelet's packets", restart, fix
	}
	return "", "", nil
}

const (
	openFilesMetric = "process_open_fds"
	maxFilesMetric  = "process_max_fds"
)

// checkOpenFiles finds processes whose open files are near their limit, at which they accept no more connections.
func checkOpenFiles(s *Site) []Finding {
	var findings []Finding
	for _, p := range daemonMetrics {
		for _, d := range s.metrics(p) {
			open, limit := d.value.sum(openFilesMetric), d.value.sum(maxFilesMetric)
			if limit > 0 && open >= nearLimit*limit {
				findings = append(findings, warned(podRef(d.pod), "raise the limit in the configuration of the container runtime (LimitNOFILE), and delete the pod; many connections of one client may be the cause",
					"container %s has %.0f of at most %.0f files open: it cannot accept more connections", p.container(), open, limit))
			}
		}
	}
	return findings
}
