package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	infrastatus "github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// componentCheck is the component label of Jobs and pods that check a change before it is rolled out.
const componentCheck = "check"

// checkCommands are the commands of containers in a check, by container name: the program validates its configuration, or only
// starts, and exits. Other containers keep their command. Envoy runs until it has accepted the proxy's configuration, and xdsd
// stops it.
var checkCommands = map[string][]string{
	"coredns":  {"/coredns", "-check", "-conf", "/etc/coredns/Corefile"},
	"coredhcp": {"/coredhcp", "--check", "--config", "/etc/coredhcp/config.yml"},
	"xdsd":     {"/xdsd", "check", "--min-envoy", "1.31"},
	"holder":   {"/xdsd", "--help"},
	"control":  {"/xdsd", "--help"},
	"ingress":  {"/xdsd", "--help"},
}

// A podCheck runs a workload's pod template as a Job, which pulls the new images and validates the new configuration, if possible on the
// node of the present pod. The Job's pod is attached to the new network without an address, because the address is in use.
type podCheck struct {
	*rollout
	*ObjectChange // of the workload

	arguments []string // of xdsd check
	job       *batchv1.Job
	since     stopwatch
}

// A skippedError means that the result of a check is unknown.
type skippedError string

func (s skippedError) Error() string { return string(s) }

// run creates the Job, waits until its pod has terminated, and deletes the Job. A Job that cannot be deleted expires.
func (c *podCheck) run(ctx context.Context) error {
	defer func() {
		if c.job != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
			defer cancel()
			_ = c.Client.Delete(ctx, c.job, client.PropagationPolicy(metav1.DeletePropagationBackground))
		}
	}()
	err := c.start(ctx)
	switch {
	case err == nil:
		return poll(ctx, io.Discard, c.result)
	case ctx.Err() != nil:
		return contextError(ctx)
	}
	return skippedError(err.Error())
}

// start creates the Job, and copies of the ConfigMaps and the network that its pod needs. The Job owns the copies.
func (c *podCheck) start(ctx context.Context) error {
	namespace, name := c.Namespace, c.Name+"-check-"+rand.String(5)
	own := map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelComponent: componentCheck, "app.kubernetes.io/part-of": "oooi"}
	template, err := podTemplate(c.rendered)
	if err != nil {
		return err
	}
	if err := c.strip(ctx, &template.Spec); err != nil {
		return err
	}
	template.Labels = own
	var needs []*unstructured.Unstructured
	for i := range template.Spec.Volumes {
		source := template.Spec.Volumes[i].ConfigMap
		if source == nil {
			continue
		}
		if config := c.plan.copyOf("ConfigMap", namespace, source.Name, name); config != nil {
			needs, source.Name = append(needs, config), name
		}
	}
	delete(template.Annotations, render.NetworksAnnotation)
	if network := c.plan.copyOf(read.AttachmentKind.Kind, namespace, render.NetworkOf(c.rendered), name); network != nil {
		if err := removeAddresses(network); err != nil {
			return err
		}
		needs = append(needs, network)
		template.Annotations[render.NetworksAnnotation] = fmt.Sprintf(`[{"name": %q, "namespace": %q, "interface": %q}]`, name, namespace, render.ProbeDevice)
	}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: own},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(0)), ActiveDeadlineSeconds: new(int64(2 * checkDeadline / time.Second)),
			TTLSecondsAfterFinished: new(int32(60)), Template: *template,
		},
	}
	if err := c.Client.Create(ctx, job, client.FieldOwner(Manager)); err != nil {
		return fmt.Errorf("creating Job %s: %w", name, err)
	}
	c.job, c.since = job, stopwatch{}
	for _, o := range needs {
		o.SetLabels(own)
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Name: name, UID: job.UID}})
		if err := c.Client.Create(ctx, o, client.FieldOwner(Manager)); err != nil {
			return fmt.Errorf("creating %s: %w", inventory.Of(o), err)
		}
	}
	return nil
}

// strip sets the containers' check commands, adds a container that checks the network, and removes resources that are in use or do not
// exist yet. A container requests only what the change adds, because the present pod keeps its requests. Limits stay, since a
// ResourceQuota may require them.
func (c *podCheck) strip(ctx context.Context, spec *corev1.PodSpec) error {
	spec.RestartPolicy, spec.TerminationGracePeriodSeconds = corev1.RestartPolicyNever, new(int64(1))
	account := client.ObjectKey{Namespace: c.Namespace, Name: spec.ServiceAccountName}
	if err := c.Client.Get(ctx, account, &corev1.ServiceAccount{}); apierrors.IsNotFound(err) { // setup creates it later
		spec.ServiceAccountName, spec.DeprecatedServiceAccount = "default", ""
	}
	labels, _, _ := unstructured.NestedStringMap(c.rendered.Object, "spec", "selector", "matchLabels")
	spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
		Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{LabelSelector: &metav1.LabelSelector{MatchLabels: labels}, TopologyKey: corev1.LabelHostname},
	}}}}
	present := map[string]corev1.ResourceList{}
	if c.Live != nil {
		template, err := podTemplate(c.Live)
		if err != nil {
			return err
		}
		for _, container := range slices.Concat(template.Spec.InitContainers, template.Spec.Containers) {
			present[container.Name] = container.Resources.Requests
		}
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			container := &containers[i]
			container.ReadinessProbe, container.LivenessProbe, container.StartupProbe, container.Lifecycle, container.Ports = nil, nil, nil, nil, nil
			if command := checkCommands[container.Name]; command != nil {
				container.Command = command
			}
			container.Resources.Requests = addedRequests(&container.Resources, present[container.Name])
		}
	}
	if len(c.arguments) > 0 {
		network := spec.Containers[0].DeepCopy() // with its security context and limits
		network.Name, network.Image, network.Env, network.VolumeMounts = componentCheck, c.plan.image, nil, nil
		network.Command, network.Args = append([]string{"/xdsd", "check"}, c.arguments...), nil
		spec.Containers = append(spec.Containers, *network)
	}
	return nil
}

// addedRequests returns the increase of each request; 0 instead of no request, which would default to the limit.
func addedRequests(r *corev1.ResourceRequirements, present corev1.ResourceList) corev1.ResourceList {
	added := corev1.ResourceList{}
	for name := range r.Limits {
		added[name] = resource.Quantity{}
	}
	for name, more := range r.Requests {
		more.Sub(present[name])
		if present == nil || more.Sign() < 0 {
			more = resource.Quantity{}
		}
		added[name] = more
	}
	return added
}

// copyOf returns a copy of an object of the plan with another name, without the annotations that identify objects of an Infra; nil if
// the plan has no such object.
func (p *Plan) copyOf(kind, namespace, name, as string) *unstructured.Unstructured {
	for _, o := range p.Objects {
		if o.GetKind() == kind && o.GetNamespace() == namespace && o.GetName() == name {
			c := o.DeepCopy()
			c.SetName(as)
			c.SetAnnotations(nil)
			return c
		}
	}
	return nil
}

// removeAddresses removes the addresses from a NetworkAttachmentDefinition, and sets the network's name.
func removeAddresses(nad *unstructured.Unstructured) error {
	text, _, _ := unstructured.NestedString(nad.Object, "spec", "config")
	config := map[string]any{}
	err := json.Unmarshal([]byte(text), &config)
	if plugins, ok := config["plugins"].([]any); ok {
		config["plugins"] = slices.DeleteFunc(plugins, func(p any) bool {
			plugin, _ := p.(map[string]any)
			delete(plugin, "ipam")
			return plugin["type"] == "sbr" // sbr needs an address
		})
	}
	if err == nil {
		text, err = render.NameNetwork(config, nad.GetNamespace(), nad.GetName())
	}
	if err == nil {
		err = unstructured.SetNestedField(nad.Object, text, "spec", "config")
	}
	if err != nil {
		return fmt.Errorf("copying the network of %s: %w", nad.GetName(), err)
	}
	return nil
}

// unsupported are substrings of a program's output if it does not support the check's command.
var unsupported = []string{"flag provided but not defined", "unknown flag", "unknown command"}

// result returns what the check waits for; empty when the check's pod has succeeded.
func (c *podCheck) result(ctx context.Context) (string, error) {
	var pods corev1.PodList
	if err := c.Client.List(ctx, &pods, client.InNamespace(c.job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: c.job.Name}); err != nil {
		return "", fmt.Errorf("listing the pods of Job %s: %w", c.job.Name, err)
	}
	if len(pods.Items) == 0 {
		if event := lastWarning(ctx, c.Client, c.job); event != nil && !isTimeout(event) {
			return "", fmt.Errorf("the API server rejected the check's pod, and may reject the workload's pods, too: %s", event.Message)
		}
		return "the pod of Job " + c.job.Name, nil
	}
	pod := &pods.Items[0]
	if pod.Status.Phase == corev1.PodSucceeded {
		return "", nil
	}
	var failed []string
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch end := s.State.Terminated; {
		case end == nil || end.ExitCode == 0:
		case slices.ContainsFunc(unsupported, func(text string) bool { return strings.Contains(end.Message, text) }):
			return "", skippedError("the image of container " + s.Name + " does not support this check")
		default:
			failed = append(failed, infrastatus.Exited(s.Name, end)+" (image "+s.Image+")")
		}
	}
	if len(failed) > 0 {
		return "", errors.New(strings.Join(failed, "; "))
	}
	// The replaced pod frees resources on its node.
	if condition := infrastatus.Unschedulable(pod); condition != nil && strings.Contains(condition.Message, "Too many pods") {
		return "", skippedError(condition.Message)
	}
	why, event := describe(ctx, c.Client, pod, infrastatus.UnreadyReason(pod))
	if grace := infrastatus.StuckAfter(pod, event); c.since.lasts(pod.UID, grace >= 0) >= grace && grace >= 0 {
		return "", errors.New(why)
	}
	return why, nil
}
