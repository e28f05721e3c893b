package render

import (
	"net/netip"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/testclient"
)

// ProbeDevice is the name of the interface on the VLAN in pods of probes and of components.
const ProbeDevice = vlanDevice

// A Probe is a Job that runs xdsd probe for 'kubectl oooi test', on the VLAN with a separate address, or in the pod network.
type Probe struct {
	// Name is the name of the Job, with which the name of the NetworkAttachmentDefinition begins. Address is the VLAN address
	// of the pod; the zero Addr for a pod that is only in the pod network.
	Name    string
	Address netip.Addr
	// Arguments are the arguments of xdsd probe.
	Arguments []string
	// Like is the spec of a pod of the Infra, whose pull secrets, node selector, tolerations and limits the probe uses.
	// Image is an image with xdsd.
	Like  *corev1.PodSpec
	Image string
	// Deadline is the maximum run time of the Job, and Leftover how long a finished Job exists if it is not deleted. Both
	// are rounded down to seconds.
	Deadline, Leftover time.Duration
}

// Objects returns the Job and the NetworkAttachmentDefinition of its pod, which is nil for a pod in the pod network only. The
// caller must create the Job, and set it as owner of the NetworkAttachmentDefinition. Objects returns an error if in.Attachment is not a CNI configuration.
func (p *Probe) Objects(in *Input) (*batchv1.Job, *unstructured.Unstructured, error) {
	annotations := map[string]string{}
	meta := in.meta(testclient.Component, p.Name)
	meta.Labels[v1alpha1.LabelManagedBy] = v1alpha1.ManagedBy
	policy := corev1.DNSClusterFirst // as other pods
	var nad *unstructured.Unstructured
	if p.Address.IsValid() {
		var err error
		if nad, annotations[NetworksAnnotation], err = in.attachment(testclient.Component, instance{p.Name, []netip.Addr{p.Address}}); err != nil {
			return nil, nil, err
		}
		nad.SetLabels(meta.Labels)
		policy = corev1.DNSDefault
	}
	return &batchv1.Job{
		ObjectMeta: meta,
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(0)), ActiveDeadlineSeconds: new(int64(p.Deadline / time.Second)),
			TTLSecondsAfterFinished: new(int32(p.Leftover / time.Second)), //nolint:gosec // minutes
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels, Annotations: annotations},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false), TerminationGracePeriodSeconds: new(int64(1)),
					EnableServiceLinks: new(false), SecurityContext: in.podSecurity(68, annotations), DNSPolicy: policy,
					ImagePullSecrets: p.Like.ImagePullSecrets, NodeSelector: p.Like.NodeSelector, Tolerations: p.Like.Tolerations,
					Containers: []corev1.Container{restrictedContainer(corev1.Container{
						Name: "probe", Image: p.Image, Command: append([]string{"/xdsd", "probe"}, p.Arguments...), Resources: probeResources(p.Like),
					})},
				},
			},
		},
	}, nad, nil
}

// probeResources returns the resources of a probe. The limits are copied from the first container of a pod, so that a
// ResourceQuota that allows the pod also allows the probe.
func probeResources(like *corev1.PodSpec) corev1.ResourceRequirements {
	r := resources(nil, "10m", "32Mi")
	r.Limits = like.Containers[0].Resources.Limits.DeepCopy()
	for name, limit := range r.Limits {
		if request, requested := r.Requests[name]; requested && request.Cmp(limit) > 0 {
			r.Requests[name] = limit
		}
	}
	return r
}
