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

// podDeadline limits the run time of a pod, and podStart the time until it starts: its image is that of another pod of the
// Infra. podLeftover is how long a finished Job, and what belongs to it, is kept if the command does not delete it.
const (
	podDeadline = 90 * time.Second
	podStart    = 30 * time.Second
	podLeftover = 60 * time.Second
)

// runClient runs 'xdsd probe' with steps and more arguments in a pod, on the VLAN or in the pod network, for at most limit. It
// calls take with each outcome, until take returns true or the pod ends. cleanUp deletes what it creates. It may be called
// concurrently.
func (t *test) runClient(ctx context.Context, c Client, steps []probe.Step, limit time.Duration, take func(*probe.Outcome) bool, more ...string) error {
	text, err := json.Marshal(steps)
	if err != nil {
		return err
	}
	like, image := t.site.templatePod()
	r := &render.Probe{
		Name: t.site.Infra.Name + "-" + testclient.Component + "-" + utilrand.String(5), Arguments: append(more, "--steps="+string(text)), Like: &like.Spec,
		Image: image, Deadline: limit, Leftover: podLeftover,
	}
	if c == VLAN {
		r.Arguments = append(r.Arguments, "--device="+render.ProbeDevice)
		if r.Address, err = t.reserve(ctx, limit+podLeftover); err != nil {
			return err
		}
	}
	// It is on the platform of the other pod.
	job, nad, err := r.Objects(&render.Input{
		Infra: t.site.Infra, Written: &unstructured.Unstructured{}, Attachment: t.site.NetworkConfig(), OpenShift: like.Annotations[render.RequiredSCC] != "",
	})
	if err != nil {
		return err
	}
	// If the command is killed, the garbage collector deletes the Job with the Infra, or its TTL does, and the network with the Job.
	// The pod does not start before its network exists.
	job.OwnerReferences = []metav1.OwnerReference{t.site.ownerReference()}
	if err := t.create(ctx, job); err != nil {
		return err
	}
	t.lock.Lock()
	t.job = job
	t.lock.Unlock()
	if nad != nil {
		nad.SetOwnerReferences([]metav1.OwnerReference{jobReference(job)})
		if err := t.create(ctx, nad); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return t.follow(ctx, job, func(o *probe.Outcome) (bool, error) {
		if o.Step < 0 || o.Step >= len(steps) {
			return false, fmt.Errorf("the client reports the outcome of a step %d", o.Step)
		}
		return take(o), nil
	})
}

// jobReference returns a reference with which the garbage collector deletes an object with a Job.
func jobReference(job *batchv1.Job) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Name: job.Name, UID: job.UID}
}

// ownerReference returns a reference with which the garbage collector deletes an object with the Infra.
func (s *subject) ownerReference() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Infra", Name: s.Infra.Name, UID: s.Infra.UID}
}

// daemons are the containers that have oooi's image and follow the API server.
var daemons = []string{"coredns", "coredhcp", "xdsd"}

// templatePod returns one of the Infra's pods, and oooi's image in it; the image is empty if there is none.
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

// follow waits for the pod of a Job and calls take with each outcome that it prints, until take returns true or the pod has ended. It
// returns early if the pod cannot start.
func (t *test) follow(ctx context.Context, job *batchv1.Job, take func(*probe.Outcome) (bool, error)) error {
	reader, since, followed := &read.Reader{Client: t.Client}, time.Now(), false
	for {
		list := &corev1.PodList{}
		if err := t.Client.List(ctx, list, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil && ctx.Err() == nil {
			return fmt.Errorf("listing the pods of Job %s: %w", job.Name, err)
		}
		why, limit := fmt.Sprintf("kube-controller-manager has not created the pod of Job %s", job.Name), podStart
		var event *corev1.Event
		if len(list.Items) == 0 {
			if t.isDeleted(ctx, job) {
				return errDeleted
			}
			if event = reader.Warning(ctx, job.Namespace, job.UID); event != nil && event.Reason == "FailedCreate" {
				limit = 0
			}
		}
		for i := range list.Items {
			pod := &list.Items[i]
			if job.Spec.Template.Annotations[render.NetworksAnnotation] != "" && pod.Annotations[render.NetworksAnnotation] == "" {
				return fmt.Errorf("the pod does not start: a webhook or policy of the API server removed annotation %s: Pod %s lacks it",
					render.NetworksAnnotation, pod.Name)
			}
			why = status.UnreadyReason(pod)
			switch phase := pod.Status.Phase; {
			case phase == corev1.PodFailed:
				return fmt.Errorf("pod %s failed: %s", pod.Name, why)
			case followed && phase == corev1.PodSucceeded:
				return nil
			case followed: // it is about to end
			case phase == corev1.PodRunning, phase == corev1.PodSucceeded:
				if done, err := t.readLog(ctx, pod, take); done || err != nil {
					return err
				}
				followed = true
			default:
				event = reader.Warning(ctx, pod.Namespace, pod.UID)
				if stuck := status.StuckAfter(pod, event); stuck >= 0 {
					limit = stuck
				}
			}
		}
		if time.Since(since) >= limit && !followed {
			if event != nil && !strings.Contains(why, strings.TrimSpace(event.Message)) {
				why = strings.TrimSpace(event.Message)
			}
			return fmt.Errorf("the pod does not start: %s", why)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the pod of Job %s: %w: %s", job.Name, ctx.Err(), why)
		case <-time.After(200 * time.Millisecond):
		}
	}
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
		if err = outcomes.Decode(o); err == nil {
			done, err = take(o)
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("reading the log of Pod %s: %w", pod.Name, err)
	}
	return done, nil
}
