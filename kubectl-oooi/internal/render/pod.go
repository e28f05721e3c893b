package render

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Names of the interfaces in the pods of an Infra.
const (
	vlanDevice = "net1" // on the VLAN
	podDevice  = "eth0" // in the pod network
)

// nonRootUser is the UID and GID of containers, unless SecurityContextConstraints select them.
const nonRootUser = 65532

// RequiredSCC is the annotation with which a pod selects OpenShift SecurityContextConstraints, regardless of others with a
// higher priority. Pods without capabilities comply with RestrictedSCC, which every ServiceAccount may use.
const (
	RequiredSCC   = "openshift.io/required-scc"
	RestrictedSCC = "restricted-v2"
)

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

// podSecurity returns the security context of a pod that listens on ports from lowest, and adds the annotation that OpenShift
// requires.
func (in *Input) podSecurity(lowest int64, annotations map[string]string) *corev1.PodSecurityContext {
	security := &corev1.PodSecurityContext{
		RunAsNonRoot:   new(true),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		Sysctls:        []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: fmt.Sprint(lowest)}},
	}
	if in.OpenShift { // OpenShift selects the user
		annotations[RequiredSCC] = RestrictedSCC
	} else {
		security.RunAsUser, security.RunAsGroup = new(int64(nonRootUser)), new(int64(nonRootUser))
	}
	return security
}

// hash returns a digest of a key and its configuration, for use as the suffix of an object's name.
func hash(key, config string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %d %s", len(key), key, len(config), config))
	return hex.EncodeToString(sum[:4])
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

// Environment variables of containers.
var (
	// podIP is the pod's address in the pod network, for listeners that must not be reachable on the VLAN.
	podIP   = fieldVariable("POD_IP", "status.podIP")
	podName = fieldVariable("POD_NAME", "metadata.name")
	// hostIP is the address of the pod's node.
	hostIP = fieldVariable("HOST_IP", "status.hostIP")
)

// fieldVariable returns a variable whose value is a field of the pod.
func fieldVariable(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
}

// httpProbe returns a probe that requests an HTTP path on a named port.
func httpProbe(path, port string, period int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:     corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString(port)}},
		PeriodSeconds:    period,
		TimeoutSeconds:   3,
		FailureThreshold: 3,
	}
}

// resources returns the resources in the Infra, or default requests of CPU and memory.
func resources(given *corev1.ResourceRequirements, cpu, memory string) corev1.ResourceRequirements {
	if given != nil {
		return *given
	}
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)},
	}
}

// daemon returns a pod with one container, which reads its configuration from a ConfigMap, keeps its state in a directory, and
// connects to the API server.
func daemon(config *corev1.ConfigMap, c corev1.Container) corev1.PodSpec {
	c.Env = []corev1.EnvVar{podIP}
	c.VolumeMounts = []corev1.VolumeMount{
		{Name: "config", MountPath: "/etc/" + c.Name, ReadOnly: true}, {Name: "state", MountPath: "/var/lib/" + c.Name}, tokenMount,
	}
	source := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: config.Name}}
	return corev1.PodSpec{
		Containers: []corev1.Container{restrictedContainer(c)},
		Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: source}},
			emptyDir("state", corev1.StorageMediumDefault), tokenVolume()},
	}
}

func emptyDir(name string, medium corev1.StorageMedium) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium}}}
}

// tcpPort returns a port of a container.
func tcpPort(name string, port int32) corev1.ContainerPort {
	return corev1.ContainerPort{Name: name, ContainerPort: port, Protocol: corev1.ProtocolTCP}
}

// tokenVolume returns the volume that the API server mounts into every container of a pod by default, to mount it only into
// the container that needs it. The token expires after an hour. With the default of 3607 seconds, most clusters issue a token
// that is valid for a year.
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
