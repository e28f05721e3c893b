package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
	"github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// component is an enabled component, with the VLAN addresses of its replicas.
type component struct {
	name      string
	addresses []netip.Addr
}

// components returns the enabled components.
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

// enabled reports whether a component is enabled.
func (s *Site) enabled(name string) bool {
	return slices.ContainsFunc(s.components(), func(c component) bool { return c.name == name })
}

// componentPods returns the pods of all enabled components.
func (s *Site) componentPods() []*corev1.Pod {
	var list []*corev1.Pod
	for _, c := range s.components() {
		list = append(list, s.Pods(c.name)...)
	}
	return list
}

func podRef(p *corev1.Pod) model.Ref { return site.RefOf(site.Pods, p) }

// componentOf returns the component of one of oooi's pods.
func componentOf(p *corev1.Pod) string { return p.Labels[v1alpha1.LabelComponent] }

var podReads = slices.Concat(site.In(site.AtInfra, site.Pods, site.StatefulSets), site.Optional(site.In(site.AtInfra, site.Events, site.Logs)))

var workloadsExist = Check{
	Code: "OOOI-POD-001", Title: "each enabled component has a StatefulSet with all replicas", Reads: podReads, Run: checkWorkloads,
	About: "setup creates a StatefulSet for each component, or for each replica if replicas have fixed addresses.",
}

func checkWorkloads(s *Site) []Finding {
	var findings []Finding
	for _, c := range s.components() {
		sets := s.statefulSets(c.name)
		if len(sets) == 0 {
			findings = append(findings, failed(s.Ref(), setupRemedy, "%s is enabled, but its StatefulSet does not exist", c.name).forComponent(c.name))
		}
		for _, set := range sets {
			if set.Spec.Replicas != nil && *set.Spec.Replicas == 0 {
				ref := site.RefOf(site.StatefulSets, set)
				findings = append(findings, failed(ref, setupRemedy, "the StatefulSet is scaled to 0 replicas").forComponent(c.name))
			}
		}
	}
	return findings
}

// statefulSets returns the StatefulSets of a component.
func (s *Site) statefulSets(name string) []*appsv1.StatefulSet {
	return slices.DeleteFunc(site.All[appsv1.StatefulSet](s.Site, site.StatefulSets, site.AtInfra), func(set *appsv1.StatefulSet) bool {
		return !s.Owns(set.Labels) || set.Labels[v1alpha1.LabelComponent] != name
	})
}

var podsCreated = Check{
	Code: "OOOI-POD-005", Title: "the cluster creates the pods", Reads: podReads, Run: checkCreated,
	About: "If the API server rejects a pod because of a quota, an admission webhook, Pod Security or a SecurityContextConstraint, an Event of its " +
		"StatefulSet names the reason.",
}

func checkCreated(s *Site) []Finding {
	var findings []Finding
	for _, c := range s.components() {
		for _, set := range s.statefulSets(c.name) {
			if set.Spec.Replicas == nil || set.Status.Replicas >= *set.Spec.Replicas {
				continue
			}
			ref := site.RefOf(site.StatefulSets, set)
			if e := s.lastEvent(ref, string(set.UID)); e != nil {
				findings = append(findings, failed(ref, "correct the fault that the message names; the StatefulSet then creates the pod",
					"the API server rejects the pod of the StatefulSet: %s", e.Message).forComponent(c.name))
			}
		}
	}
	return findings
}

// lastEvent returns the latest warning about an object; nil if there is none.
func (s *Site) lastEvent(ref model.Ref, uid string) *corev1.Event {
	var last *corev1.Event
	where := site.AtInfra
	if ref.Namespace == render.SystemNamespace {
		where = site.AtSystem
	}
	for _, e := range site.All[corev1.Event](s.Site, site.Events, where) {
		about := e.InvolvedObject.Kind == ref.Kind && e.InvolvedObject.Name == ref.Name && string(e.InvolvedObject.UID) == uid
		if about && (last == nil || eventTime(e).After(eventTime(last))) {
			last = e
		}
	}
	return last
}

// eventTime returns when an Event was last observed.
func eventTime(e *corev1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	if !e.LastTimestamp.IsZero() {
		return e.LastTimestamp.Time
	}
	return e.EventTime.Time
}

var podsReady = Check{
	Code: "OOOI-POD-002", Title: "the pods are ready", Reads: podReads, Run: checkReady,
	About: "The message names why the pod is not scheduled or started, why its image is not pulled, or which container is not ready. The evidence " +
		"contains the last lines of a crashed container's log.",
}

func checkReady(s *Site) []Finding {
	var findings []Finding
	for _, c := range s.components() {
		pods := s.Pods(c.name)
		for _, p := range pods {
			if f := s.unready(p); f != nil {
				findings = append(findings, f.forComponent(c.name))
			}
		}
		for _, set := range s.statefulSets(c.name) {
			ref := site.RefOf(site.StatefulSets, set)
			rejected := s.lastEvent(ref, string(set.UID)) != nil // OOOI-POD-005 reports it
			if len(pods) == 0 && set.Spec.Replicas != nil && *set.Spec.Replicas > 0 && set.Status.Replicas == 0 && !rejected {
				findings = append(findings, failed(ref, fmt.Sprintf("see its events: kubectl -n %s describe statefulset %s", set.Namespace, set.Name),
					"the StatefulSet has no pod").forComponent(c.name))
			}
		}
	}
	return findings
}

// unready returns the finding about a pod that is not ready; nil if it is.
func (s *Site) unready(p *corev1.Pod) *Finding {
	why := status.UnreadyReason(p)
	if why == "" {
		return nil
	}
	remedy := fmt.Sprintf("correct the fault that the message and the pod's events name: kubectl -n %s describe pod %s; if "+
		"'kubectl oooi diff -f FILE' shows changes by other clients, run 'kubectl oooi setup -f FILE --force-conflicts'", p.Namespace, p.Name)
	if s.Infra.Spec.NodePlacement != nil && s.Owns(p.Labels) && status.Unschedulable(p) != nil {
		remedy = fmt.Sprintf("label a node that has the VLAN and free resources, so that spec.nodePlacement of %s selects it, or correct the field and run "+
			"setup; the pod's events name the reason: kubectl -n %s describe pod %s", s.Ref(), p.Namespace, p.Name)
	}
	event := s.lastEvent(podRef(p), string(p.UID))
	if event != nil && eventTime(event).Before(lastStart(p)) {
		event = nil
	}
	if event != nil {
		if cause, known := status.NetworkFailure(event.Message, p.Spec.NodeName); cause != "" {
			why, remedy = why+": "+cause, known
		}
	}
	if s.isOutdated(p) {
		remedy = fmt.Sprintf("delete the pod: its StatefulSet has a newer template, but does not replace pods that are not ready: "+
			"kubectl -n %s delete pod %s", p.Namespace, p.Name)
	}
	f := failed(podRef(p), remedy, "%s", why)
	if event != nil && !strings.Contains(why, event.Message) {
		f = f.withEvidence(fmt.Sprintf("event %s at %s: %s", event.Reason, formatTime(eventTime(event)), event.Message))
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if lines := s.Log(p, c.Name); len(lines) > 0 {
			f = f.withEvidence("log of container " + c.Name + ":").withEvidence(lines...)
		}
	}
	return &f
}

// lastStart returns when the last of the pod's running containers started, or when the pod was created.
func lastStart(p *corev1.Pod) time.Time {
	last := p.CreationTimestamp.Time
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Running != nil && c.State.Running.StartedAt.After(last) {
			last = c.State.Running.StartedAt.Time
		}
	}
	return last
}

// isOutdated reports whether the pod's StatefulSet has another template. A pod that is being replaced is not outdated.
func (s *Site) isOutdated(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(s.statefulSets(componentOf(p)), func(set *appsv1.StatefulSet) bool {
		revision := p.Labels[appsv1.ControllerRevisionHashLabelKey]
		return metav1.IsControlledBy(p, set) && set.Status.ObservedGeneration == set.Generation && revision != "" &&
			set.Status.UpdateRevision != "" && revision != set.Status.UpdateRevision
	})
}

var podsStable = Check{
	Code: "OOOI-POD-003", Title: "the containers do not restart", Reads: podReads, Run: checkRestarts,
	About: "A restart interrupts the service. The kubelet's Events and the container's previous log say why a container was killed or " +
		"exited.",
}

// A container that restarted within recentRestart is reported if it restarted at least manyRestarts times, or exceeded its memory limit.
const (
	recentRestart = time.Hour
	manyRestarts  = 2
	outOfMemory   = "OOMKilled"
)

func checkRestarts(s *Site) []Finding {
	var findings []Finding
	for _, p := range s.componentPods() {
		if s.unready(p) != nil {
			continue // OOOI-POD-002 reports it
		}
		for _, c := range p.Status.ContainerStatuses {
			last := c.LastTerminationState.Terminated
			if last == nil || s.Facts.Taken.Sub(last.FinishedAt.Time) > recentRestart || last.Reason != outOfMemory && c.RestartCount < manyRestarts {
				continue
			}
			remedy := fmt.Sprintf("see the log of its previous run: kubectl -n %s logs %s -c %s --previous", p.Namespace, p.Name, c.Name)
			if last.Reason == outOfMemory {
				remedy = "raise the memory limit in the component's resources in the Infra"
			}
			f := warned(podRef(p), remedy, "container %s has restarted %d times; its last run ended at %s: %s, exit code "+
				"%d", c.Name, c.RestartCount, formatTime(last.FinishedAt.Time), last.Reason, last.ExitCode)
			if e := s.lastEvent(podRef(p), string(p.UID)); e != nil {
				f = f.withEvidence(fmt.Sprintf("event %s at %s: %s", e.Reason, formatTime(eventTime(e)), e.Message))
			}
			findings = append(findings, f.forComponent(componentOf(p)))
		}
	}
	return findings
}

var podsOnVLAN = Check{
	Code: "OOOI-NET-003", Title: "the pods have their addresses on the VLAN", Reads: podReads, Run: checkPodAddresses,
	About: "Multus attaches the pods to the VLAN and reports their addresses in annotation `k8s.v1.cni.cncf.io/network-status`. Nodes need the CNI " +
		"plugins of the network, and for bridges `static` and `sbr`.",
}

// ownFlag is the flag with which 'xdsd hold' adds the pod's address, so that Multus does not report it.
const ownFlag = "--own"

func checkPodAddresses(s *Site) []Finding {
	var findings []Finding
	for _, c := range s.components() {
		for _, p := range s.Pods(c.name) {
			if s.unready(p) != nil || slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool { return slices.Contains(c.Command, ownFlag) }) {
				continue
			}
			remedy := "see Multus' log on node " + p.Spec.NodeName
			found, err := read.PodAddresses(p)
			switch {
			case p.Annotations[render.NetworksAnnotation] == "":
				findings = append(findings, failed(podRef(p), "find what changes pods ('kubectl get mutatingwebhookconfigurations,mutatingadmissionpolicies'), "+
					"exempt oooi's pods, and delete the pod",
					"the pod lacks its StatefulSet's annotation %s and is not on the VLAN: a webhook or policy removed the "+
						"annotation", render.NetworksAnnotation).forComponent(c.name))
			case err != nil:
				findings = append(findings, failed(podRef(p), remedy, "%v", err).forComponent(c.name))
			case !slices.ContainsFunc(found, func(a netip.Addr) bool { return slices.Contains(c.addresses, a) }):
				findings = append(findings, failed(podRef(p), remedy+", and check that the nodes have the CNI plugins static and "+
					"sbr", "the pod lacks its VLAN address").
					withEvidence(fmt.Sprintf("expected one of %v, found %v", c.addresses, found)).forComponent(c.name))
			}
		}
	}
	return findings
}

var podsAnswer = problemCheck(Check{
	Code: "OOOI-POD-014", Title: "daemons report their problems", Run: checkAnswers,
	About: "doctor requests `/problems` from each daemon through the API server, and control does so over the pod network. Requests fail if a daemon " +
		"hangs, a NetworkPolicy denies them, or a route is missing.",
})

func checkAnswers(s *Site) []Finding {
	var findings []Finding
	pods := slices.Concat(s.componentPods(), s.ControlPods())
	for _, a := range slices.Concat(s.Responses(site.AtInfra), s.Responses(site.AtSystem)) {
		at := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.Name == a.Pod && p.Namespace == a.Namespace })
		if a.Silent == "" || at < 0 || s.unready(pods[at]) != nil { // OOOI-POD-002 reports pods that are not ready
			continue
		}
		findings = append(findings, warned(podRef(pods[at]), fmt.Sprintf("see its log (kubectl -n %[1]s logs %[2]s -c %[3]s), and delete the pod: kubectl -n "+
			"%[1]s delete pod %[2]s; if the new pod does not respond either, check for a NetworkPolicy that denies connections from the API server's "+
			"nodes", a.Namespace, a.Pod, a.Container),
			"container %s does not report its problems: the process hangs, or cannot be reached", a.Container).
			withEvidence(a.Silent).forComponent(componentOf(pods[at])))
	}
	return findings
}

var configurationLoaded = problemCheck(Check{
	Code: "OOOI-POD-013", Title: "daemons run the configuration in their files",
	About: "A running pod does not load changes to its ConfigMap until it restarts.",
})

var snapshotsWritten = problemCheck(Check{
	Code: "OOOI-POD-011", Title: "daemons can write their snapshot files",
	About: "A daemon that restarts while the API server is unavailable serves its snapshot file. Writing the file fails if the disk is full or the volume " +
		"read-only.",
})
