package verify

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/internal/testclient"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
	"github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// podDeadline limits the run time of a pod, and podStart the time until it starts, which includes no image pull: another pod of the
// Infra has the same image. podLeftover is the TTL of a finished Job, in case the command does not delete it.
const (
	podDeadline = 90 * time.Second
	podStart    = 30 * time.Second
	podLeftover = 60 * time.Second
)

// start creates the Job of a client, which runs 'xdsd probe' with steps and more arguments, on the VLAN or in the pod network.
// cleanUp deletes the created objects.
func (t *test) start(ctx context.Context, c Client, steps []probe.Step, more ...string) (*batchv1.Job, error) {
	text, err := json.Marshal(steps)
	if err != nil {
		return nil, err
	}
	like, image := t.site.templatePod()
	r := &render.Probe{
		Name: t.site.Infra.Name + "-" + testclient.Component + "-" + utilrand.String(5), Arguments: append(more, "--steps="+string(text)), Like: &like.Spec,
		Image: image, Deadline: podDeadline, Leftover: podLeftover,
	}
	if c == VLAN {
		r.Arguments = append(r.Arguments, "--device="+render.ProbeDevice)
		if r.Address, err = t.reserve(ctx, podDeadline+podLeftover); err != nil {
			return nil, err
		}
	}
	// The Job runs on the same platform as the other pod.
	job, nad, err := r.Objects(&render.Input{
		Infra: t.site.Infra, Written: &unstructured.Unstructured{}, Attachment: t.site.NetworkConfig(), OpenShift: like.Annotations[render.RequiredSCC] != "",
	})
	if err != nil {
		return nil, err
	}
	infra := t.site.Infra
	err = t.create(ctx, job, metav1.OwnerReference{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Infra", Name: infra.Name, UID: infra.UID})
	if err != nil || nad == nil {
		return job, err
	}
	owner := metav1.OwnerReference{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Name: job.Name, UID: job.UID}
	if slices.ContainsFunc(steps, func(s probe.Step) bool { return s.DHCP != nil }) {
		registration := testclient.Object(infra.Namespace, infra.Name, t.site.hostname, t.site.client, podDeadline+podLeftover)
		if err := t.create(ctx, registration, owner); err != nil {
			return nil, err
		}
	}
	return job, t.create(ctx, nad, owner) // last: the pod does not start before its network exists
}

// daemons are the containers that run oooi's image.
var daemons = []string{"coredns", "coredhcp", "xdsd"}

// templatePod returns one of the Infra's pods and its oooi image; the image is empty if no pod exists.
func (s *subject) templatePod() (*corev1.Pod, string) {
	for _, pod := range site.All[corev1.Pod](s.Site, site.Pods, site.AtInfra) {
		if !s.Owns(pod.Labels) || pod.DeletionTimestamp != nil {
			continue
		}
		for i := range pod.Spec.Containers {
			if c := &pod.Spec.Containers[i]; slices.Contains(daemons, c.Name) {
				return pod, c.Image
			}
		}
	}
	return nil, ""
}

// streamOutcomes waits for the pod of a Job and calls take with each outcome that the pod prints, until take returns true or the pod has
// terminated. It returns an error early if the pod cannot start. It is safe for concurrent use.
func (t *test) streamOutcomes(ctx context.Context, job *batchv1.Job, take func(*probe.Outcome) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, podDeadline)
	defer cancel()
	for began, logRead := time.Now(), false; ; {
		pod, err := t.podOf(ctx, job)
		switch {
		case err != nil:
			return err
		case pod != nil && pod.Status.Phase == corev1.PodFailed:
			return fmt.Errorf("pod %s failed: %s", pod.Name, status.UnreadyReason(pod))
		case pod != nil && pod.Status.Phase == corev1.PodSucceeded && logRead:
			return nil
		case logRead && pod == nil:
			return fmt.Errorf("the pod of Job %s was deleted", job.Name)
		case logRead: // the pod is about to terminate
		case pod != nil && (pod.Status.Phase == corev1.PodRunning || pod.Status.Phase == corev1.PodSucceeded):
			if done, err := t.readLog(ctx, pod, take); done || err != nil {
				return err
			}
			logRead = true
		default:
			if why, limit := t.unstarted(ctx, job, pod); time.Since(began) >= limit {
				return fmt.Errorf("the pod does not start: %s", why)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the pod of Job %s: %w", job.Name, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// podOf returns the pod of a Job; nil if it does not exist.
func (t *test) podOf(ctx context.Context, job *batchv1.Job) (*corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := t.Client.List(ctx, list, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil {
		return nil, fmt.Errorf("listing the pods of Job %s: %w", job.Name, err)
	}
	if len(list.Items) == 0 {
		return nil, nil //nolint:nilnil // no pod, no error
	}
	pod := &list.Items[0]
	if job.Spec.Template.Annotations[render.NetworksAnnotation] != "" && pod.Annotations[render.NetworksAnnotation] == "" {
		return nil, fmt.Errorf("the pod does not start: a webhook or policy removed annotation %s from Pod %s",
			render.NetworksAnnotation, pod.Name)
	}
	return pod, nil
}

// unstarted returns why the pod of a Job, which may be nil, has not started, and the time after which this is an error.
func (t *test) unstarted(ctx context.Context, job *batchv1.Job, pod *corev1.Pod) (why string, limit time.Duration) {
	reader := &read.Reader{Client: t.Client}
	if pod == nil {
		if event := reader.Warning(ctx, job.Namespace, job.UID); event != nil && event.Reason == "FailedCreate" {
			return event.Message, 0
		}
		return fmt.Sprintf("kube-controller-manager has not created the pod of Job %s", job.Name), podStart
	}
	event := reader.Warning(ctx, pod.Namespace, pod.UID)
	why, limit = status.UnreadyReason(pod), podStart
	if event != nil && !strings.Contains(why, strings.TrimSpace(event.Message)) {
		why = strings.TrimSpace(event.Message)
	}
	if stuck := status.StuckAfter(pod, event); stuck >= 0 {
		limit = stuck
	}
	return why, limit
}

// readLog calls take with each outcome in the log of a pod that runs or has ended, until take returns true.
func (t *test) readLog(ctx context.Context, pod *corev1.Pod, take func(*probe.Outcome) (bool, error)) (done bool, err error) {
	stream, err := t.clients.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		return false, fmt.Errorf("reading the log of Pod %s: %w", pod.Name, err)
	}
	defer func() { _ = stream.Close() }() // read only
	for outcomes := json.NewDecoder(stream); !done && err == nil; {
		o := &probe.Outcome{}
		if err = outcomes.Decode(o); errors.Is(err, io.EOF) {
			return false, nil
		} else if err != nil {
			return false, fmt.Errorf("reading the log of Pod %s: %w", pod.Name, err)
		}
		done, err = take(o)
	}
	return done, err
}
