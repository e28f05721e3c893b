package setup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	infrastatus "github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// componentCheck is the component label of Jobs and pods that check a change before it is rolled out.
const componentCheck = "check"

const (
	checkDeadline = 90 * time.Second // for all checks together
	checkTTL      = time.Minute      // of a finished Job that setup could not delete
	checkCleanup  = 15 * time.Second // for the deletion of a Job
)

// checkCommands are the commands of containers in a check, by container name: the program validates its
// configuration, or only starts, and exits. Other containers keep their command. Envoy starts, and xdsd stops it.
var checkCommands = map[string][]string{
	"coredns":  {"/coredns", "-check", "-conf", "/etc/coredns/Corefile"},
	"coredhcp": {"/coredhcp", "--check", "--config", "/etc/coredhcp/config.yml"},
	"xdsd":     {"/xdsd", "check", "--min-envoy", oldestEnvoy},
	"holder":   {"/xdsd", "--help"},
	"control":  {"/xdsd", "--help"},
	"ingress":  {"/xdsd", "--help"},
}

// oldestEnvoy is the oldest version of Envoy that accepts the proxy's configuration.
const oldestEnvoy = "1.31"

// podTemplate returns the pod template of a StatefulSet or Deployment.
func podTemplate(o *unstructured.Unstructured) (*corev1.PodTemplateSpec, error) {
	// spec.template has the same type in a Deployment.
	like := &appsv1.StatefulSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, like); err != nil {
		return nil, fmt.Errorf("reading the pod template of %s: %w", inventory.Of(o), err)
	}
	return &like.Spec.Template, nil
}

// check runs a pod for each workload that replaces serving pods. The pod has the new images and validates the new
// configuration, if possible on the node of the present pod. It is attached to the new network without an address,
// because that is in use. An error means that a check failed. A check that cannot run is only a warning, because setup
// can roll back.
func (r *rollout) check(ctx context.Context) error {
	var checks []*podCheck
	defer func() {
		for _, c := range checks {
			c.remove(ctx)
		}
	}()
	if err := r.reportMACChecks(ctx); err != nil {
		return err
	}
	changed := r.changedWorkloads()
	if err := r.reportNetworks(ctx, changed); err != nil {
		return err
	}
	if err := r.checkFinalizers(ctx); err != nil {
		return err
	}
	for _, o := range changed {
		if err := r.admit(ctx, o); err != nil {
			return err
		}
	}
	var wanted []*podCheck
	for _, o := range changed {
		wanted = append(wanted, &podCheck{rollout: r, workload: o})
	}
	if r.Wait && r.first {
		if first := r.firstCheck(); first != nil {
			wanted = append(wanted, first)
		}
	}
	for _, c := range wanted {
		o := c.workload
		checks = append(checks, c)
		if err := c.start(ctx, r.plan); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("checking %s: %w", inventory.Of(o), contextError(ctx))
			}
			if err := c.warn(err); err != nil {
				return err
			}
			c.remove(ctx)
			checks = checks[:len(checks)-1]
		}
	}
	if len(checks) == 0 {
		return nil
	}
	if _, err := fmt.Fprintf(r.Out, "checking images, configuration and network of the changed workloads\n"); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, checkDeadline)
	defer cancel()
	errs := make([]error, len(checks))
	err := poll(waiting, r.Out, func(ctx context.Context) (string, error) {
		var missing []string
		for i, c := range checks {
			if c.done {
				continue
			}
			what, err := c.missing(ctx)
			switch skipped, ok := errors.AsType[*skippedError](err); {
			case ok:
				c.done, err = true, c.warn(skipped)
				errs[i] = err
			case err != nil && ctx.Err() != nil:
				return "", err //nolint:wrapcheck // it is wrapped below
			case err != nil:
				c.done, errs[i] = true, fmt.Errorf("checking %s: %w", inventory.Of(c.workload), err)
			case what == "":
				c.done = true
			default:
				missing = append(missing, what)
			}
		}
		return strings.Join(missing, "; "), nil
	})
	if err != nil {
		err = fmt.Errorf("checking the changed workloads: %w", err)
	}
	return errors.Join(append(slices.Clone(errs), err)...)
}

// changedWorkloads returns the workloads whose change replaces pods that serve: those with a ready pod and another
// generation, and new ones of a component that serves.
func (r *rollout) changedWorkloads() []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(r.plan.Objects), func(o *unstructured.Unstructured) bool {
		live, merged := r.live[entryWithoutUID(o)], r.merged[entryWithoutUID(o)]
		switch {
		case !isWorkload(o):
			return true
		case live == nil:
			return r.serving[componentOf(o, r.infra.String())] == nil
		default:
			return !hasReadyPod(live) || len(restarts(live, merged)) == 0
		}
	})
}

// undecided are substrings of errors after which it is unknown whether the API server would admit a pod of a workload.
var undecided = []string{
	"cannot create resource",           // RBAC: the user may not create pods
	"exceeded quota",                   // the workload's pod replaces another one
	"does not support dry run",         // a webhook with side effects
	"error looking up service account", // setup creates it later
}

// admit creates a pod of a workload as a dry run, with the labels that policies and webhooks may select, and returns an error if
// the API server refuses it.
func (r *rollout) admit(ctx context.Context, o *unstructured.Unstructured) error {
	template, err := podTemplate(o)
	if err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.GenerateName = o.GetNamespace(), o.GetName()+"-"
	pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = "check"
	if o.GetKind() == "StatefulSet" {
		delete(pod.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
		pod.Labels[appsv1.ControllerRevisionHashLabelKey] = o.GetName() + "-check"
		pod.Labels[appsv1.StatefulSetPodNameLabel] = o.GetName() + "-0"
		pod.Labels[appsv1.PodIndexLabel] = "0"
	}
	err = r.Client.Create(ctx, pod, client.DryRunAll, client.FieldOwner(Manager))
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("checking %s: %w", inventory.Of(o), contextError(ctx))
	case err == nil || slices.ContainsFunc(undecided, func(text string) bool { return strings.Contains(err.Error(), text) }):
		return nil
	}
	return fmt.Errorf("checking %s: the API server refuses its pods: %w", inventory.Of(o), err)
}

// reportNetworks prints a warning if serving pods move to another network, because the VMs' network has changed: a
// check finds out whether pods can be attached to it, and not whether VMs are there.
func (r *rollout) reportNetworks(ctx context.Context, changed []*unstructured.Unstructured) error {
	if len(changed) == 0 {
		return nil
	}
	var names []string
	for _, o := range changed {
		before, err := r.attachmentOf(ctx, r.live[entryWithoutUID(o)])
		if err != nil {
			return err
		}
		after, err := r.attachmentOf(ctx, o)
		if err != nil {
			return err
		}
		network := func(nad *unstructured.Unstructured) any {
			return networkWithout(nad, "name", "netAttachDefName", "ipam")
		}
		if before != nil && after != nil && !reflect.DeepEqual(network(before), network(after)) {
			names = append(names, o.GetName())
		}
	}
	if len(names) == 0 {
		return nil
	}
	source := r.plan.Infra.Spec.NetworkConfig
	_, err := fmt.Fprintf(r.Out, "Warning: NetworkAttachmentDefinition %s, the VMs' network, has changed since the last setup, and the pods of %s move to the changed network; check that the VMs are attached to the same network\n",
		source.NetworkAttachmentDefinition, strings.Join(names, ", "))
	return err
}

// reportMACChecks prints a warning if the network of a VM drops the frames of the VM after a migration.
func (r *rollout) reportMACChecks(ctx context.Context) error {
	network := r.plan.Infra.Spec.NetworkConfig.NetworkAttachment(r.infra.Namespace).String()
	configs := map[string]string{network: r.plan.attachment}
	var names []string
	first := "" // the NetworkAttachmentDefinition of the first VM
	for _, u := range r.plan.attached {
		if len(read.WithoutMAC(u, r.plan.networks, network)) == 0 {
			continue
		}
		for _, ref := range read.MachineAttachments(u, r.plan.networks, network) {
			if _, known := configs[ref]; !known {
				configs[ref] = r.configOf(ctx, ref)
			}
			if cni.ChecksMAC(configs[ref]) {
				names, first = append(names, u.GetNamespace()+"/"+u.GetName()), cmp.Or(first, ref)
				break
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(r.Out, "Warning: NetworkAttachmentDefinition %s has macspoofchk, and VMs on it have no macAddress (%d, such as %s): a migrated VM keeps its MAC address, but its new pod gets another one, so that the network drops the VM's frames; remove macspoofchk, or set macAddress in the VMs' specs\n",
		first, len(names), names[0])
	return err
}

// configOf returns the CNI configuration in a NetworkAttachmentDefinition, "namespace/name"; empty if it cannot be read.
func (r *rollout) configOf(ctx context.Context, ref string) string {
	namespace, name, _ := strings.Cut(ref, "/")
	nad, err := r.attachment(ctx, namespace, name)
	if err != nil || nad == nil {
		return "" // only a warning depends on it
	}
	config, _, _ := unstructured.NestedString(nad.Object, "spec", "config")
	return config
}

// attachment returns a NetworkAttachmentDefinition in the cluster; nil if it does not exist.
func (r *rollout) attachment(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error) {
	nad := &unstructured.Unstructured{}
	nad.SetGroupVersionKind(read.AttachmentKind)
	nad.SetNamespace(namespace)
	nad.SetName(name)
	return current(ctx, r.Client, nad)
}

// attachmentOf returns the NetworkAttachmentDefinition of a workload's pods: the plan's, or the present one. It is nil if
// the workload is nil or on the pod network only, and if the NetworkAttachmentDefinition does not exist.
func (r *rollout) attachmentOf(ctx context.Context, workload *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if workload == nil || render.NetworkOf(workload) == "" {
		return nil, nil
	}
	if nad := r.plan.find(read.AttachmentKind.Kind, workload.GetNamespace(), render.NetworkOf(workload)); nad != nil {
		return nad, nil
	}
	return r.attachment(ctx, workload.GetNamespace(), render.NetworkOf(workload))
}

// networkWithout returns the CNI plugins in a NetworkAttachmentDefinition without some fields; nil if they cannot be
// decoded.
func networkWithout(nad *unstructured.Unstructured, fields ...string) []map[string]any {
	config, _, _ := unstructured.NestedString(nad.Object, "spec", "config")
	plugins, err := cni.Plugins(config)
	if err != nil {
		return nil
	}
	for _, plugin := range plugins {
		for _, field := range fields {
			delete(plugin, field)
		}
	}
	return plugins
}

// A podCheck is the check of one workload, with a Job in the workload's namespace.
type podCheck struct {
	*rollout

	workload *unstructured.Unstructured
	only     []string // arguments of xdsd check, if the pod runs nothing else
	job      *batchv1.Job
	since    time.Time // when the pod was first found to be stuck; zero while it is not
	done     bool
}

// A skippedError means that a check could not run, so its result is unknown.
type skippedError struct{ why string }

func (s *skippedError) Error() string { return s.why }

func (c *podCheck) warn(err error) error {
	_, out := fmt.Fprintf(c.Out, "Warning: %s is changed without a check: %v\n", inventory.Of(c.workload), err)
	return out
}

// start creates the Job, and copies of the ConfigMaps and the network that its pod needs. The Job owns the copies.
func (c *podCheck) start(ctx context.Context, p *Plan) error {
	namespace, name := c.workload.GetNamespace(), c.workload.GetName()+"-check-"+rand.String(5)
	template, err := podTemplate(c.workload)
	if err != nil {
		return err
	}
	own := map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelComponent: componentCheck, "app.kubernetes.io/part-of": "oooi"}
	template.Labels = own
	spec := &template.Spec
	spec.RestartPolicy = corev1.RestartPolicyNever
	spec.TerminationGracePeriodSeconds = new(int64(1))
	if err := c.useExistingAccount(ctx, spec); err != nil {
		return err
	}
	if err := c.preferNode(ctx, spec); err != nil {
		return err
	}
	present, err := presentContainers(c.live[entryWithoutUID(c.workload)])
	if err != nil {
		return err
	}
	for i := range spec.Containers {
		stripContainer(&spec.Containers[i], present[spec.Containers[i].Name])
		if command := checkCommands[spec.Containers[i].Name]; command != nil {
			spec.Containers[i].Command = command
		}
	}
	for i := range spec.InitContainers {
		stripContainer(&spec.InitContainers[i], present[spec.InitContainers[i].Name])
	}
	if c.only != nil {
		p.addNetworkCheck(spec, c.only)
		spec.InitContainers, spec.Containers, spec.Volumes = nil, spec.Containers[len(spec.Containers)-1:], nil
	} else {
		p.addNetworkCheck(spec, p.newNetwork(c.workload.GetName(), componentOf(c.workload, c.infra.String())))
	}
	var needs []*unstructured.Unstructured
	for i := range spec.Volumes {
		source := spec.Volumes[i].ConfigMap
		if source == nil {
			continue
		}
		if config := p.find("ConfigMap", namespace, source.Name); config != nil {
			needs = append(needs, copyAs(config, name))
			source.Name = name
		}
	}
	network, err := c.network(p, template, name)
	if err != nil {
		return err
	}
	if network != nil {
		needs = append(needs, network)
	}
	c.job = &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: own},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(0)), ActiveDeadlineSeconds: new(int64(2 * checkDeadline / time.Second)),
			TTLSecondsAfterFinished: new(int32(checkTTL / time.Second)), Template: *template,
		},
	}
	if err := c.Client.Create(ctx, c.job, client.FieldOwner(Manager)); err != nil {
		c.job = nil
		return fmt.Errorf("creating Job %s: %w", name, err)
	}
	for _, o := range needs {
		o.SetLabels(own)
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Name: name, UID: c.job.UID}})
		if err := c.Client.Create(ctx, o, client.FieldOwner(Manager)); err != nil {
			return fmt.Errorf("creating %s: %w", inventory.Of(o), err)
		}
	}
	return nil
}

// useExistingAccount replaces a ServiceAccount that setup creates later by the namespace's default one.
func (c *podCheck) useExistingAccount(ctx context.Context, spec *corev1.PodSpec) error {
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.workload.GetNamespace(), Name: spec.ServiceAccountName}, &corev1.ServiceAccount{})
	if apierrors.IsNotFound(err) {
		spec.ServiceAccountName, spec.DeprecatedServiceAccount = "", ""
		return nil
	}
	if err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("reading ServiceAccount %s: %w", spec.ServiceAccountName, err)
	}
	return nil
}

// find returns an object of the plan; nil if it has none of that name.
func (p *Plan) find(kind, namespace, name string) *unstructured.Unstructured {
	at := slices.IndexFunc(p.Objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == kind && o.GetNamespace() == namespace && o.GetName() == name
	})
	if at < 0 {
		return nil
	}
	return p.Objects[at]
}

// copyAs returns a copy of an object with another name, without the annotations that identify objects of an Infra.
func copyAs(o *unstructured.Unstructured, name string) *unstructured.Unstructured {
	c := withoutServerFields(o)
	c.SetName(name)
	c.SetAnnotations(nil)
	return c
}

// presentContainers returns the resource requests in a workload's pod template by container; none if the workload is nil.
func presentContainers(live *unstructured.Unstructured) (map[string]corev1.ResourceList, error) {
	requests := map[string]corev1.ResourceList{}
	if live == nil {
		return requests, nil
	}
	template, err := podTemplate(live)
	if err != nil {
		return nil, err
	}
	for _, c := range slices.Concat(template.Spec.InitContainers, template.Spec.Containers) {
		requests[c.Name] = c.Resources.Requests
	}
	return requests, nil
}

// stripContainer removes probes and ports: the container serves nothing. It requests only what the change adds to the present
// requests, because the present pod still has these. It keeps the limits, which a ResourceQuota may require.
func stripContainer(c *corev1.Container, present corev1.ResourceList) {
	c.ReadinessProbe, c.LivenessProbe, c.StartupProbe, c.Lifecycle, c.Ports = nil, nil, nil, nil, nil
	requests := corev1.ResourceList{}
	for name := range c.Resources.Limits {
		requests[name] = resource.Quantity{} // absent ones default to the limits
	}
	for name, more := range c.Resources.Requests {
		more.Sub(present[name])
		if requests[name] = more; more.Sign() < 0 || present == nil {
			requests[name] = resource.Quantity{}
		}
	}
	c.Resources = corev1.ResourceRequirements{Requests: requests, Limits: c.Resources.Limits}
}

// preferNode sets a preferred affinity to the node of the pod that will be replaced.
func (c *podCheck) preferNode(ctx context.Context, spec *corev1.PodSpec) error {
	pods, err := podsOf(ctx, c.Client, c.workload)
	if err != nil {
		return err
	}
	spec.Affinity = nil
	if len(pods) > 0 && pods[0].Spec.NodeName != "" {
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
			Weight: 100, Preference: corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{pods[0].Spec.NodeName}},
			}},
		}}}}
	}
	return nil
}

// network returns a copy of the workload's NetworkAttachmentDefinition without addresses, because these are in use, and
// refers to it in the template. The copy is a network with another name. It returns nil for a workload that is only on the pod network.
func (c *podCheck) network(p *Plan, template *corev1.PodTemplateSpec, name string) (*unstructured.Unstructured, error) {
	const annotation = render.NetworksAnnotation
	if template.Annotations[annotation] == "" {
		return nil, nil
	}
	var networks []map[string]any
	if err := json.Unmarshal([]byte(template.Annotations[annotation]), &networks); err != nil || len(networks) != 1 {
		return nil, errors.Join(fmt.Errorf("reading annotation %s of the pod template of %s: found %d networks, want 1", annotation, inventory.Of(c.workload), len(networks)), err)
	}
	nad := p.find(read.AttachmentKind.Kind, fmt.Sprint(networks[0]["namespace"]), fmt.Sprint(networks[0]["name"]))
	if nad == nil {
		delete(template.Annotations, annotation)
		return nil, nil
	}
	o := copyAs(nad, name)
	text, _, err := unstructured.NestedString(o.Object, "spec", "config")
	config := map[string]any{}
	if err := errors.Join(err, json.Unmarshal([]byte(text), &config)); err != nil {
		return nil, fmt.Errorf("reading spec.config of %s: %w", inventory.Of(nad), err)
	}
	if plugins, ok := config["plugins"].([]any); ok {
		plugins = slices.DeleteFunc(plugins, func(p any) bool { // sbr needs an address
			plugin, ok := p.(map[string]any)
			return ok && plugin["type"] == "sbr"
		})
		for _, p := range plugins {
			if plugin, ok := p.(map[string]any); ok {
				delete(plugin, "ipam")
			}
		}
		config["plugins"] = plugins
	}
	changed, err := render.NameNetwork(config, o.GetNamespace(), name)
	if err == nil {
		err = unstructured.SetNestedField(o.Object, changed, "spec", "config")
	}
	if err != nil {
		return nil, fmt.Errorf("encoding the network of %s: %w", name, err)
	}
	delete(networks[0], "ips")
	delete(networks[0], "mac")
	networks[0]["name"] = name
	attach, err := json.Marshal(networks)
	if err != nil {
		return nil, fmt.Errorf("encoding the network of %s: %w", name, err)
	}
	template.Annotations[annotation] = string(attach)
	return o, nil
}

// missing returns what the check waits for, and an empty string when the pod has succeeded.
func (c *podCheck) missing(ctx context.Context) (string, error) {
	var pods corev1.PodList
	if err := c.Client.List(ctx, &pods, client.InNamespace(c.job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: c.job.Name}); err != nil {
		return "", fmt.Errorf("listing the pods of Job %s: %w", c.job.Name, err)
	}
	waiter := &Waiter{Client: c.Client}
	if len(pods.Items) == 0 {
		if event := waiter.event(ctx, c.job.Namespace, c.job.UID); event != nil && !unanswered(event) {
			return "", fmt.Errorf("the API server refused the pod of the check, and may refuse the pods of the workload too: %s", strings.TrimSpace(event.Message))
		}
		return "the pod of Job " + c.job.Name, nil
	}
	pod := &pods.Items[0]
	var failed []string
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		end := s.State.Terminated
		if end == nil || end.ExitCode == 0 {
			continue
		}
		output := strings.TrimSpace(end.Message)
		if strings.Contains(output, "flag provided but not defined") || strings.Contains(output, "unknown flag") || strings.Contains(output, "unknown command") {
			return "", &skippedError{"the image of container " + s.Name + " does not support this check"}
		}
		failed = append(failed, fmt.Sprintf("container %s, image %s, exited with %d: %s", s.Name, s.Image, end.ExitCode, output))
	}
	switch {
	case len(failed) > 0:
		return "", errors.New(strings.Join(failed, "; "))
	case pod.Status.Phase == corev1.PodSucceeded:
		return "", nil
	}
	why, event := waiter.describe(ctx, pod, infrastatus.UnreadyReason(pod))
	grace := infrastatus.StuckAfter(pod, event)
	for _, condition := range pod.Status.Conditions {
		// The replaced pod of the workload frees a place on its node.
		if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable && strings.Contains(condition.Message, "Too many pods") {
			return "", &skippedError{condition.Message}
		}
	}
	switch {
	case grace < 0:
		c.since = time.Time{}
	case c.since.IsZero():
		c.since = time.Now()
	case time.Since(c.since) >= grace:
		return "", errors.New(why)
	}
	return why, nil
}

// remove deletes the Job and the objects that it owns. If that fails, it prints a warning: the Job expires.
func (c *podCheck) remove(ctx context.Context) {
	if c.job == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkCleanup)
	defer cancel()
	if err := client.IgnoreNotFound(c.Client.Delete(ctx, c.job, client.PropagationPolicy(metav1.DeletePropagationBackground))); err != nil {
		fmt.Fprintf(c.Out, "Warning: deleting Job %s/%s, which expires within %s: %v\n", c.job.Namespace, c.job.Name, 2*checkDeadline+checkTTL, err)
	}
}
