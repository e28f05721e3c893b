package render

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Names of the interfaces in the pods of an Infra.
const (
	vlanDevice = "net1" // on the VLAN
	podDevice  = "eth0" // in the pod network
)

// nonRootUser is the UID and GID of containers, unless SecurityContextConstraints select them.
const nonRootUser = 65532

// RequiredSCC is the annotation by which a pod requires one SecurityContextConstraints of OpenShift, so that no other
// with a higher priority is selected. Pods without capabilities comply with RestrictedSCC, which every ServiceAccount
// may use.
const (
	RequiredSCC   = "openshift.io/required-scc"
	RestrictedSCC = "restricted-v2"
)

// An instance is one replica of a component, with VLAN addresses that no other pod has.
type instance struct {
	name      string
	addresses []netip.Addr
}

// instances returns the replicas of a component.
func (in *Input) instances(component string, list []v1alpha1.Instance) ([]instance, error) {
	if len(list) == 0 {
		return nil, fmt.Errorf("spec.infraComponents.%s.serverIP: an address on the VLAN is required", component)
	}
	var all []instance
	for _, i := range list {
		one := instance{name: in.setName(component, i.IP, len(list) > 1)}
		if len(one.name) > longestName {
			return nil, fmt.Errorf("metadata.name: %s is too long: the StatefulSet name %s has more than %d characters", in.Infra.Name, one.name, longestName)
		}
		for _, text := range append([]v1alpha1.IP{i.IP}, i.AdditionalIPs...) {
			address, err := v1alpha1.ParseAddress(string(text))
			if err != nil {
				return nil, fmt.Errorf("spec.infraComponents.%s: %w", component, err)
			}
			one.addresses = append(one.addresses, address)
		}
		all = append(all, one)
	}
	return all, nil
}

// NetworksAnnotation is the annotation of pods from which Multus reads their networks.
const NetworksAnnotation = "k8s.v1.cni.cncf.io/networks"

// network is an element of NetworksAnnotation.
type network struct {
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
	Interface string   `json:"interface"`
	IPs       []string `json:"ips,omitempty"`
	MAC       string   `json:"mac,omitempty"`
}

// A workload is the input of statefulSet: a StatefulSet of one pod, so that at most one pod has its addresses at any
// time.
type workload struct {
	component string
	instance  instance
	network   network
	spec      corev1.PodSpec
	port      int64 // the lowest port that the pod listens on
	// privileged is set if a container has capabilities and runs as root.
	privileged bool
}

func (in *Input) statefulSet(w workload) (*appsv1.StatefulSet, error) {
	networks, err := json.Marshal([]network{w.network})
	if err != nil {
		return nil, fmt.Errorf("encoding the networks of %s: %w", w.instance.name, err)
	}
	labels := in.labels(w.component)
	selector := maps.Clone(labels)
	labels["app.kubernetes.io/instance"], selector["app.kubernetes.io/instance"] = w.instance.name, w.instance.name
	if w.component == v1alpha1.ComponentProxy {
		labels["app"] = "proxy-server" // scripts and dashboards written for the earlier operator select pods by it
	}
	spec := w.spec
	spec.ServiceAccountName = in.name(w.component)
	spec.AutomountServiceAccountToken = new(false) // see tokenVolume
	if in.Images.PullSecret != "" {
		// Not in the ServiceAccount, whose list OpenShift changes.
		spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: in.Images.PullSecret}}
	}
	if spec.TerminationGracePeriodSeconds == nil {
		spec.TerminationGracePeriodSeconds = new(int64(30))
	}
	spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot:   new(true),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		Sysctls:        []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: fmt.Sprint(w.port)}},
	}
	annotations := map[string]string{
		NetworksAnnotation:                        string(networks),
		"kubectl.kubernetes.io/default-container": spec.Containers[0].Name,
	}
	if in.OpenShift {
		annotations[RequiredSCC] = RestrictedSCC
		if w.privileged {
			annotations[RequiredSCC] = in.constraints()
		}
	} else {
		spec.SecurityContext.RunAsGroup = new(int64(nonRootUser))
		spec.SecurityContext.FSGroup = new(int64(nonRootUser))
	}
	if !in.OpenShift || w.privileged { // otherwise OpenShift selects the user
		spec.SecurityContext.RunAsUser = new(int64(nonRootUser))
	}
	return &appsv1.StatefulSet{
		ObjectMeta: in.meta(w.component, w.instance.name),
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(1)), ServiceName: w.instance.name,
			// A partition that another field manager sets would keep the pod at its earlier revision. As it is rendered,
			// that is a conflict.
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
				Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(0))},
			},
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations},
				Spec:       spec,
			},
		},
	}, nil
}

// hash returns a digest of a configuration, with which the name of an object changes.
func hash(config map[string]string) string {
	sum := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(config)) {
		fmt.Fprintf(sum, "%d %s %d %s", len(key), key, len(config[key]), config[key])
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

// tcpProbe connects to a named port.
func tcpProbe(port string) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString(port)}},
		PeriodSeconds: 10, TimeoutSeconds: 3, FailureThreshold: 3,
	}
}

// startupProbe waits for at most a day until a port is open. Envoy opens its ports when it receives its first
// configuration, and a restart would not help.
func startupProbe(port string) *corev1.Probe {
	p := tcpProbe(port)
	p.PeriodSeconds, p.FailureThreshold = 2, 43200
	return p
}

// restrictedContainer returns c with the security context that Pod Security "restricted" requires, and a read-only
// root file system.
func restrictedContainer(c corev1.Container) corev1.Container {
	c.SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		ReadOnlyRootFilesystem:   new(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	return c
}

// podIP is the pod's address in the pod network, for listeners that must not be reachable on the VLAN.
var podIP = corev1.EnvVar{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.podIP"}}}

// hostIP is the address of the pod's node.
var hostIP = corev1.EnvVar{Name: "HOST_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.hostIP"}}}

var podName = corev1.EnvVar{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}}

// httpProbe requests a page on a named port.
func httpProbe(path, port string, period int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:     corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString(port)}},
		PeriodSeconds:    period,
		TimeoutSeconds:   3,
		FailureThreshold: 3,
	}
}

// resources returns the resources that the Infra specifies, or requests of CPU and memory.
func resources(given *corev1.ResourceRequirements, cpu, memory string) corev1.ResourceRequirements {
	if given != nil {
		return *given
	}
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)},
	}
}

func emptyDir(name string, memory bool) corev1.Volume {
	v := &corev1.EmptyDirVolumeSource{}
	if memory {
		v.Medium = corev1.StorageMediumMemory
	}
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: v}}
}

func configVolume(name string) corev1.Volume {
	return corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: name},
	}}}
}

// tokenVolume returns the volume that the API server mounts into every container of a pod by default, so that it can
// be mounted only into the container that needs it. The token expires after an hour. With the default of 3607 seconds
// most clusters issue one that is valid for a year.
func tokenVolume() corev1.Volume {
	return corev1.Volume{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3600))}},
		{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
		}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}},
		}}},
	}}}}
}

var tokenMount = corev1.VolumeMount{Name: "token", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}

// disruptionBudget returns a PodDisruptionBudget that allows one unavailable replica; nil for a single replica.
func (in *Input) disruptionBudget(component string, instances int) []runtime.Object {
	if instances < 2 {
		return nil
	}
	return []runtime.Object{&policyv1.PodDisruptionBudget{
		ObjectMeta: in.meta(component, in.name(component)),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: in.labels(component)},
		},
	}}
}

// spread prefers different nodes for the replicas of a component. A single replica has it, too, so that another replica does
// not change its pod.
func (in *Input) spread(component string) *corev1.Affinity {
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
		Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: in.labels(component)},
		},
	}}}}
}
