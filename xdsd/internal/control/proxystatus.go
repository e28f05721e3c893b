package control

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// proxyFacts are the inputs of proxyStatus.
type proxyFacts struct {
	object *v1alpha1.ProxyServer
	// proxy is the ProxyServer in the model.
	proxy *model.ProxyServer
	// problems are the model's problems of the ProxyServer.
	problems []model.Problem
	// pods are the pods of the proxy, except those that are being deleted or have terminated.
	pods []corev1.Pod
	// silent are the pods whose replicas have stopped reporting.
	silent map[string]bool
	// service is the Service in front of the proxy, as "namespace/name", and serviceIP its cluster IP.
	service, serviceIP string
	// observed are the pods' reports; nil for the ProxyServer of an Infra, whose conditions include it.
	observed *observation
}

// proxyStatus returns the status of a ProxyServer. It sorts replicas but does not change them, because each replica
// writes its own entry.
func proxyStatus(f *proxyFacts) v1alpha1.ProxyServerStatus {
	status := *f.object.Status.DeepCopy()
	status.ObservedGeneration = f.object.Generation
	slices.SortFunc(status.Replicas, func(a, b v1alpha1.ReplicaStatus) int { return cmp.Compare(a.Pod, b.Pod) })
	status.DeploymentName = workloadName(f.pods)
	_, status.ServiceName, _ = strings.Cut(f.service, "/")
	status.ServiceIP = f.serviceIP
	status.Backends = f.backends()
	status.BackendCount = f.resolvedBackends()
	conditions := []metav1.Condition{f.ready(), f.configurationValid(), f.withinLimits()}
	if f.observed != nil {
		conditions = append(conditions, f.observed.vlanReady(f.proxy.Ref), f.observed.backendsReady(f.proxy.Ref))
	} else { // it was standalone before
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionVLANReady)
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionBackendsReady)
	}
	for _, c := range conditions {
		setCondition(&status.Conditions, c, f.object.Generation)
	}
	return status
}

// setCondition sets a condition of a generation, with its message truncated to the API's maximum length.
func setCondition(list *[]metav1.Condition, c metav1.Condition, generation int64) {
	c.ObservedGeneration = generation
	const maxLength = 32768 // of a condition's message in the API
	if len(c.Message) > maxLength {
		c.Message = strings.ToValidUTF8(c.Message[:maxLength-3], "") + "..."
	}
	if before := meta.FindStatusCondition(*list, c.Type); before != nil && before.Reason == reasonDisabled && c.Reason != reasonDisabled {
		meta.RemoveStatusCondition(list, c.Type) // its time is when it was disabled
	}
	meta.SetStatusCondition(list, c)
}

func condition(kind string, status metav1.ConditionStatus, reason, format string, args ...any) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// ready returns the condition Ready, which is true if every replica has acknowledged its configuration and all its
// listeners accept connections.
func (f *proxyFacts) ready() metav1.Condition {
	notReady := func(reason, format string, args ...any) metav1.Condition {
		return condition(v1alpha1.ConditionReady, metav1.ConditionFalse, reason, format, args...)
	}
	if len(f.pods) == 0 {
		return notReady(v1alpha1.ReasonNoReplica,
			"no pod has the labels %s=%s and %s=%s; see checks OOOI-POD-001, OOOI-POD-002 and OOOI-POD-005 of 'kubectl oooi doctor' unless it is being recreated",
			v1alpha1.LabelProxyServer, f.object.Name, v1alpha1.LabelComponent, v1alpha1.ComponentProxy)
	}
	var replicas []v1alpha1.ReplicaStatus
	for _, pod := range f.pods {
		if why := unreadyReason(&pod); why != "" {
			return notReady(v1alpha1.ReasonReplicaNotReady, "pod %s is not ready: %s", pod.Name, why)
		}
		at := slices.IndexFunc(f.object.Status.Replicas, func(r v1alpha1.ReplicaStatus) bool { return r.Pod == pod.Name })
		if at < 0 {
			return notReady(v1alpha1.ReasonReplicaSilent,
				"pod %s is ready but has not reported: xdsd serve requires --pod and permission to patch proxyservers/status", pod.Name)
		}
		if replicas = append(replicas, f.object.Status.Replicas[at]); f.silent[pod.Name] {
			return notReady(v1alpha1.ReasonReplicaSilent,
				"pod %s last reported at %s: xdsd has lost the connection to the API server, or permission to patch proxyservers/status; see its log",
				pod.Name, f.object.Status.Replicas[at].HeartbeatTime.UTC().Format(time.RFC3339))
		}
	}
	if reason, message := firstFault(replicas, f.checkGeneration, checkNACK, checkAcknowledged, checkListeners); reason != "" {
		return notReady(reason, "%s", message)
	}
	names := make([]string, len(replicas))
	for i, r := range replicas {
		names[i] = r.Pod
	}
	slices.Sort(names)
	return condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonDeploymentReady,
		"every Envoy has acknowledged its configuration, and handshakes through every listener succeed: pods %s", strings.Join(names, ", "))
}

// firstFault returns the result of the first of the checks that fails for a replica.
func firstFault(replicas []v1alpha1.ReplicaStatus, checks ...func(*v1alpha1.ReplicaStatus) (reason, message string)) (reason, message string) {
	sorted := slices.SortedFunc(slices.Values(replicas), func(a, b v1alpha1.ReplicaStatus) int { return cmp.Compare(a.Pod, b.Pod) })
	for _, check := range checks {
		for i := range sorted {
			if reason, message := check(&sorted[i]); reason != "" {
				return reason, "pod " + sorted[i].Pod + ": " + message
			}
		}
	}
	return "", ""
}

func (f *proxyFacts) checkGeneration(r *v1alpha1.ReplicaStatus) (reason, message string) {
	if r.ObservedGeneration >= f.object.Generation {
		return "", ""
	}
	return v1alpha1.ReasonReplicaBehind, fmt.Sprintf("has observed generation %d, not %d, of the ProxyServer: xdsd serve lags behind, or has lost the "+
		"connection to the API server", r.ObservedGeneration, f.object.Generation)
}

func checkNACK(r *v1alpha1.ReplicaStatus) (reason, message string) {
	if r.NACK == "" {
		return "", ""
	}
	return v1alpha1.ReasonConfigRejected, "Envoy rejected a part of its configuration, and uses the previous state of that part, if it has one: " + r.NACK
}

func checkOmitted(r *v1alpha1.ReplicaStatus) (reason, message string) {
	if len(r.Omitted) == 0 {
		return "", ""
	}
	return v1alpha1.ReasonConfigRejected, "left out, because Envoy would reject it: " + strings.Join(r.Omitted, "; ")
}

// checkBackends checks the permissions of a replica in the namespaces of backends, which only the replica can test.
func checkBackends(r *v1alpha1.ReplicaStatus) (reason, message string) {
	for _, b := range r.Backends {
		if model.NamespaceOutOfScope(b.Reason) {
			return string(model.ReasonNamespaceOutOfScope), fmt.Sprintf("backend %s: %s", b.Name, b.Reason)
		}
	}
	return "", ""
}

func checkAcknowledged(r *v1alpha1.ReplicaStatus) (reason, message string) {
	switch {
	case r.Version == "":
		return v1alpha1.ReasonNotAcknowledged, "is waiting for a configuration"
	case r.Acknowledged == "":
		return v1alpha1.ReasonNotAcknowledged, "no Envoy has acknowledged a configuration; check that Envoy runs with the pod's name as node.id"
	case r.Acknowledged != r.Version:
		return v1alpha1.ReasonNotAcknowledged, "Envoy has not acknowledged its latest configuration yet"
	}
	return "", ""
}

func checkListeners(r *v1alpha1.ReplicaStatus) (reason, message string) {
	var faults []string
	for _, l := range r.Listeners {
		if !l.Ready {
			faults = append(faults, fmt.Sprintf("port %d: %s", l.Port, cmp.Or(l.Reason, "not ready")))
		}
	}
	switch {
	case len(r.Listeners) == 0:
		return v1alpha1.ReasonListenerNotReady, "lacks listeners and routes nothing"
	case len(faults) > 0:
		return v1alpha1.ReasonListenerNotReady, strings.Join(faults, "; ")
	}
	return "", ""
}

// unreadyReason returns why a pod is not ready; empty if it is ready.
func unreadyReason(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return ""
		}
	}
	for _, c := range pod.Status.Conditions { // such as PodScheduled
		if c.Status != corev1.ConditionTrue && c.Message != "" {
			return c.Message
		}
	}
	return "its phase is " + string(cmp.Or(pod.Status.Phase, corev1.PodPending))
}

// configurationValid returns the condition ConfigurationValid, which is false if an Envoy has rejected its
// configuration, the object has problems, or a replica lacks permissions in the namespace of a backend.
func (f *proxyFacts) configurationValid() metav1.Condition {
	kind, replicas := v1alpha1.ConditionConfigurationValid, f.object.Status.Replicas
	if reason, message := firstFault(replicas, checkNACK, checkOmitted); reason != "" {
		return condition(kind, metav1.ConditionFalse, reason, "%s", message)
	}
	if len(f.problems) > 0 {
		return condition(kind, metav1.ConditionFalse, string(f.problems[0].Reason), "%s", messages(f.problems))
	}
	if reason, message := firstFault(replicas, checkBackends); reason != "" {
		return condition(kind, metav1.ConditionFalse, reason, "%s", message)
	}
	if reason, message := firstFault(replicas, checkAcknowledged); reason != "" {
		return condition(kind, metav1.ConditionUnknown, reason, "%s", message)
	}
	if len(replicas) == 0 {
		return condition(kind, metav1.ConditionUnknown, v1alpha1.ReasonNoReplica, "no Envoy has received the configuration yet")
	}
	return condition(kind, metav1.ConditionTrue, v1alpha1.ReasonConfigApplied, "every Envoy has accepted the configuration")
}

// withinLimits returns the condition WithinLimits, which is false if a replica reports limits that clients have reached.
func (f *proxyFacts) withinLimits() metav1.Condition {
	reason := ""
	var list, failures []string
	for _, r := range f.object.Status.Replicas {
		if f.silent[r.Pod] {
			continue // the limits were reached before its last report
		}
		if r.LimitFailure != "" {
			failures = append(failures, fmt.Sprintf("pod %s: the source limits do not apply: %s", r.Pod, r.LimitFailure))
		}
		for i := range r.Limits {
			reason = cmp.Or(reason, string(r.Limits[i].Name))
			list = append(list, fmt.Sprintf("pod %s: %s", r.Pod, f.describeLimit(&r.Limits[i])))
		}
	}
	if len(list) == 0 && len(failures) > 0 {
		return condition(v1alpha1.ConditionWithinLimits, metav1.ConditionUnknown, v1alpha1.ReasonLimitsNotApplied, "%s", strings.Join(failures, "; "))
	}
	if len(list) == 0 {
		return condition(v1alpha1.ConditionWithinLimits, metav1.ConditionTrue, v1alpha1.ReasonNoLimitReached,
			"no replica has reported a reached limit within the last ten minutes")
	}
	return condition(v1alpha1.ConditionWithinLimits, metav1.ConditionFalse, reason, "%s", strings.Join(append(list, failures...), "; "))
}

// describeLimit returns which limit was reached, with its numbers, and the field that raises it.
func (f *proxyFacts) describeLimit(l *v1alpha1.LimitStatus) string {
	clients, number, its := strings.Join(l.Sources, ", "), "their limits of", "its limit of"
	if l.Value != 0 { // it is unknown for clients with several limits, and after the limit was removed
		number, its = fmt.Sprintf("their limit of %d", l.Value), fmt.Sprintf("its limit of %d", l.Value)
	}
	text := map[v1alpha1.LimitName]string{
		v1alpha1.LimitSourceConnections:         fmt.Sprintf("clients %s had %s connections each", clients, number),
		v1alpha1.LimitSourceConnectionRate:      fmt.Sprintf("clients %s had %s new connections per second each", clients, number),
		v1alpha1.LimitConnections:               fmt.Sprintf("ports other than 6443 and 8091 had %s connections", number),
		v1alpha1.LimitPortConnections:           fmt.Sprintf("port %d had %s connections", l.Port, its),
		v1alpha1.LimitConnectionRate:            fmt.Sprintf("port %d had %s new connections per second", l.Port, its),
		v1alpha1.LimitBackendConnections:        fmt.Sprintf("backend %s had %s connections", l.Backend, its),
		v1alpha1.LimitBackendPendingConnections: fmt.Sprintf("backend %s had %s connections that were being opened", l.Backend, its),
		v1alpha1.LimitHeap:                      fmt.Sprintf("Envoy's heap had its limit of %d MiB, and Envoy accepted no connections", l.Value>>20),
	}[l.Name]
	text = cmp.Or(text, "limit "+string(l.Name)+" was reached") + ", last at " + l.LastTime.UTC().Format(time.RFC3339)
	if l.Refused > 0 {
		text += fmt.Sprintf("; %d connections were refused since the start", l.Refused)
	}
	if l.Field == "" {
		return text
	}
	if f.object.Spec.InfraRef == nil || strings.HasPrefix(l.Field, "backends[") {
		return text + "; to raise it, set " + l.Field + " of the ProxyServer"
	}
	return text + "; to raise it, set infraComponents.proxy." + l.Field + " of Infra " + f.object.Spec.InfraRef.Name
}

func messages(problems []model.Problem) string {
	list := make([]string, len(problems))
	for i, p := range problems {
		list[i] = p.Message
	}
	return strings.Join(list, "; ")
}

// resolvedBackends returns the number of backends whose Service or address exists.
func (f *proxyFacts) resolvedBackends() int32 {
	n := int32(0)
	for _, u := range f.proxy.Backends() {
		if u.Missing == "" {
			n++
		}
	}
	return n
}

// backends merges the reports of all replicas: for each backend the highest number of endpoints, and the lowest
// number of healthy endpoints with its reason. Numbers of failures change too often to be summarized.
func (f *proxyFacts) backends() []v1alpha1.BackendStatus {
	list := make([]v1alpha1.BackendStatus, 0, len(f.proxy.Upstreams))
	for _, u := range f.proxy.Backends() {
		b := v1alpha1.BackendStatus{Name: cmp.Or(u.Backend, u.Name), Healthy: math.MaxInt32}
		for _, replica := range f.object.Status.Replicas {
			for _, r := range replica.Backends {
				if r.Name != b.Name {
					continue
				}
				if r.Healthy < b.Healthy || b.Reason == "" {
					b.Reason = cmp.Or(r.Reason, b.Reason)
				}
				b.Healthy, b.Endpoints = min(b.Healthy, r.Healthy), max(b.Endpoints, r.Endpoints)
			}
		}
		if b.Healthy == math.MaxInt32 {
			b.Healthy, b.Reason = 0, cmp.Or(u.Missing, "no replica has reported this backend yet")
		}
		list = append(list, b)
	}
	slices.SortFunc(list, func(a, b v1alpha1.BackendStatus) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(list, func(a, b v1alpha1.BackendStatus) bool { return a.Name == b.Name })
}

// workloadName returns the name of the pods' controller.
func workloadName(pods []corev1.Pod) string {
	for _, pod := range pods {
		if owner := metav1.GetControllerOf(&pod); owner != nil {
			return owner.Name
		}
	}
	return ""
}
