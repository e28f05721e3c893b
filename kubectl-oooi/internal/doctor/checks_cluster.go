package doctor

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
)

// clusterChecks returns the checks of images and resource limits of our pods.
func clusterChecks() []Check {
	return []Check{
		{
			Code: "OOOI-POD-006", Title: "pods with the same image name run the same build", Needs: []string{"OOOI-POD-001"}, Reads: slices.Concat(in(AtInfra, pods), in(AtSystem, pods)),
			Run: checkBuilds,
		},
		{
			Code: "OOOI-POD-007", Title: "our pods are below their memory limit", Needs: []string{"OOOI-POD-001"}, After: []string{"OOOI-POD-002"},
			Reads: pagesIn(AtInfra, dnsMetrics, dhcpMetrics, xdsdMetrics, envoyMetrics), Run: checkMemory, NotApplicable: func(s *Site) string {
				for _, p := range memoryPages {
					if len(s.servingPods(p, AtInfra)) > 0 {
						return ""
					}
				}
				return "no pod has an address in the pod network"
			},
		},
		{
			Code: "OOOI-POD-008", Title: "our pods are below their CPU limit", Needs: []string{"OOOI-POD-001"}, After: []string{"OOOI-POD-002"},
			Reads: slices.Concat(in(AtInfra, pods, podMetrics), in(AtSystem, pods, podMetrics)), Run: checkCPU, NotApplicable: func(s *Site) string {
				if s.served(podMetrics) {
					return ""
				}
				return "the cluster does not serve " + podMetrics.GroupVersion().String() + "; install metrics-server"
			},
		},
	}
}

// checkAdmission finds StatefulSets that have fewer pods than replicas because creating a pod failed. The
// message is that of the latest FailedCreate Event.
func checkAdmission(s *Site) []Finding {
	var findings []Finding
	for _, set := range all[appsv1.StatefulSet](s, statefulSets, AtInfra) {
		if set.Labels[v1alpha1.LabelInfra] != s.Infra.Name || set.Spec.Replicas != nil && set.Status.Replicas >= *set.Spec.Replicas {
			continue
		}
		lastSeen := map[string]time.Time{}
		for _, e := range all[corev1.Event](s, creationFailures, AtInfra) {
			if e.InvolvedObject.UID == set.UID && e.LastTimestamp.After(lastSeen[e.Message]) {
				lastSeen[e.Message] = e.LastTimestamp.Time
			}
		}
		messages := slices.SortedFunc(maps.Keys(lastSeen), func(a, b string) int { return lastSeen[b].Compare(lastSeen[a]) })
		if len(messages) == 0 {
			continue
		}
		ref := model.Ref{Kind: statefulSets.Kind, Namespace: set.Namespace, Name: set.Name}
		findings = append(findings, failed(ref, remedyFor(messages[0]), "the API server rejects the pod of the StatefulSet: %s", messages[0]))
	}
	return findings
}

// remedyFor returns the remedy for the message of a FailedCreate Event.
func remedyFor(message string) string {
	switch {
	case strings.Contains(message, "security context constraint"):
		return "run 'kubectl oooi diff' to see how the pod differs from the rendered one, and check that its ServiceAccount may use the SecurityContextConstraints that the pod requires: docs/reference/openshift.md"
	case strings.Contains(message, "PodSecurity"):
		return "run 'kubectl oooi diff' to see how the pod differs from the rendered one: rendered pods comply with level restricted, except proxies with a floating address, which require privileged"
	case strings.Contains(message, "quota"):
		return "raise the ResourceQuota of the namespace"
	default:
		return "find the admission webhook or policy that rejects the pod, and correct it"
	}
}

// checkBuilds finds pods that run different builds of an image under one name, by the image IDs of their
// containers.
func checkBuilds(s *Site) []Finding {
	type build struct{ image, id string }
	runs := map[string]map[string][]*corev1.Pod{}
	add := func(p *corev1.Pod) {
		for i := range p.Status.ContainerStatuses {
			c := &p.Status.ContainerStatuses[i]
			at := slices.IndexFunc(p.Spec.Containers, func(of corev1.Container) bool { return of.Name == c.Name })
			if at < 0 || c.ImageID == "" {
				continue
			}
			b := build{p.Spec.Containers[at].Image, c.ImageID}
			if runs[b.image] == nil {
				runs[b.image] = map[string][]*corev1.Pod{}
			}
			runs[b.image][b.id] = append(runs[b.image][b.id], p)
		}
	}
	for _, p := range all[corev1.Pod](s, pods, AtSystem) {
		add(p)
	}
	for _, c := range s.components() {
		for _, p := range s.pods(c.name) {
			add(p)
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
var memoryPages = []page{dnsMetrics, dhcpMetrics, xdsdMetrics, envoyMetrics}

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
	ours := all[corev1.Pod](s, pods, AtSystem)
	for _, c := range s.components() {
		ours = append(ours, s.pods(c.name)...)
	}
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

// networkTypeChecks returns the check of the type and MTU of the VMs' network.
func networkTypeChecks() []Check {
	return []Check{{
		Code: "OOOI-NET-005", Title: "the VMs' network is suitable for VMs", Needs: []string{"OOOI-NET-002"}, Reads: slices.Concat(in(AtNetwork, attachments), in(AtInfra, infras)),
		Run: checkNetworkType,
	}}
}

// unsuitableTypes are CNI plugins whose networks deliver no frames to a VM that KubeVirt bridges to them.
var unsuitableTypes = []string{"macvlan", "ipvlan"}

// checkNetworkType finds a network that is unsuitable for VMs, and a DHCP option that sets another MTU than the
// network's.
func checkNetworkType(s *Site) []Finding {
	config, _, _ := unstructured.NestedString(s.attachment().Object, "spec", "config")
	var conf struct {
		Type    string `json:"type"`
		MTU     int    `json:"mtu"`
		Plugins []struct {
			Type string `json:"type"`
			MTU  int    `json:"mtu"`
		} `json:"plugins"`
	}
	if json.Unmarshal([]byte(config), &conf) != nil {
		return nil // reported by OOOI-NET-002
	}
	if len(conf.Plugins) > 0 {
		conf.Type, conf.MTU = conf.Plugins[0].Type, conf.Plugins[0].MTU
	}
	var findings []Finding
	if slices.Contains(unsuitableTypes, conf.Type) {
		findings = append(findings, failed(s.network(), "use a bridge (type cnv-bridge or bridge) or a localnet of OVN-Kubernetes",
			"spec.config has type %s: such a network delivers no frames to a VM with its own MAC address", conf.Type))
	}
	if dhcp := s.Infra.Spec.InfraComponents.DHCP; dhcp != nil && conf.MTU > 0 {
		const option = 26 // RFC 2132, 5.1
		for _, o := range dhcp.Options {
			if (o.Code != nil && *o.Code == option || o.Name == "mtu" || o.Name == "interface-mtu") && o.Value != fmt.Sprint(conf.MTU) {
				findings = append(findings, failed(s.ref(), "remove the option, or set it to the MTU of the network", "infraComponents.dhcp.options sets MTU %s, but NetworkAttachmentDefinition %s has MTU %d", o.Value, s.network().Key(), conf.MTU))
			}
		}
	}
	return findings
}

// leftoverChecks returns the checks of objects whose owner no longer exists.
func leftoverChecks() []Check {
	return []Check{
		{
			Code: "OOOI-OLD-002", Title: "no objects of deleted Infras exist", After: []string{"OOOI-API-001"},
			Reads: slices.Concat(in(Everywhere, infras), in(AtInfra, proxyServers, statefulSets, services, leaseObjects)),
			Run:   checkOrphans,
		},
		{
			Code: "OOOI-OLD-003", Title: "the APIs of the earlier operator are deleted", After: []string{"OOOI-OLD-001"}, Reads: in(Everywhere, crds),
			Run: func(s *Site) []Finding {
				var findings []Finding
				for _, u := range s.list(crds, Everywhere) {
					if slices.Contains(operatorCRDs(), u.GetName()) {
						findings = append(findings, warned(model.Ref{Kind: crds.Kind, Name: u.GetName()}, "delete the CustomResourceDefinition when you no longer need to roll back: kubectl delete crd "+u.GetName()+"; see docs/how-to/migrate.md",
							"the CustomResourceDefinition of the earlier operator exists, but no component of oooi reads objects of its kind"))
					}
				}
				return findings
			},
		},
		{
			Code: "OOOI-OLD-004", Title: "control has cleaned up hosted clusters", After: []string{"OOOI-CTL-001", "OOOI-APP-002"}, Reads: pagesIn(AtSystem, controlState), NotApplicable: noPods(controlState, AtSystem),
			Run: checkHostedCleanup,
		},
	}
}

// checkHostedCleanup finds objects that control could not delete from a hosted cluster: those of this Infra,
// and those in its hosted cluster.
func checkHostedCleanup(s *Site) []Finding {
	type state struct {
		Remains []struct {
			Infra         string `json:"infra"`
			HostedCluster string `json:"hostedCluster"`
			Error         string `json:"error"`
		} `json:"remains"`
	}
	var findings []Finding
	for _, r := range states[state](s, controlState, AtSystem) {
		for _, left := range r.value.Remains {
			in := model.Ref{Kind: hostedClusters.Kind}
			in.Namespace, in.Name, _ = strings.Cut(left.HostedCluster, "/")
			if left.Infra != s.key() && (s.hosted() == nil || in != *s.hosted()) {
				continue
			}
			owner := "deleted Infras"
			if left.Infra != "" {
				owner = "Infra " + left.Infra
			}
			findings = append(findings, warned(in, "wait, because control retries with backoff, or delete the objects manually; to list them in the hosted cluster: kubectl get services,serviceaccounts,roles,rolebindings -A -l "+v1alpha1.LabelManagedBy+"="+v1alpha1.ManagedBy,
				"control cannot delete the objects of %s in the hosted cluster", owner).because(left.Error))
		}
	}
	return findings
}

// checkOrphans finds our StatefulSets, Services and Leases in the Infra's namespace whose Infra or standalone
// ProxyServer does not exist. It returns one finding for each kind and owner.
func checkOrphans(s *Site) []Finding {
	existing := map[string]bool{}
	for _, u := range slices.Concat(s.list(infras, Everywhere), s.list(proxyServers, AtInfra)) {
		if inventory.Owns(u) {
			existing[u.GetNamespace()+"/"+u.GetName()] = true
		}
	}
	count := map[string]int{}
	first := map[string]model.Ref{}
	add := func(kind Kind, u *unstructured.Unstructured, infra string) {
		if infra == "" || existing[infra] {
			return
		}
		key := kind.Kind + " of " + infra
		count[key]++
		if count[key] == 1 {
			first[key] = model.Ref{Kind: kind.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}
		}
	}
	for _, kind := range []Kind{statefulSets, services} {
		for _, u := range s.list(kind, AtInfra) {
			if u.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy {
				add(kind, u, u.GetAnnotations()[v1alpha1.AnnotationInfra])
			}
		}
	}
	for _, u := range s.list(leaseObjects, AtInfra) {
		namespace, name, ok := strings.Cut(u.GetLabels()[leases.PoolLabel], ".")
		if ok && namespace == u.GetNamespace() {
			add(leaseObjects, u, namespace+"/"+name)
		}
	}
	var findings []Finding
	for _, key := range slices.Sorted(maps.Keys(count)) {
		kind, infra, _ := strings.Cut(key, " of ")
		namespace, name, _ := strings.Cut(infra, "/")
		command := fmt.Sprintf("kubectl oooi teardown %s -n %s", name, namespace)
		if kind == leaseObjects.Kind {
			command += " --leases"
		}
		findings = append(findings, warned(first[key], fmt.Sprintf("run '%s' to delete the remaining objects", command),
			"the object belongs to %s, but no Infra or standalone ProxyServer of that name exists; objects of this kind: %d", infra, count[key]))
	}
	return findings
}
