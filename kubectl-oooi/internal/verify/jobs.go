package verify

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/internal/testclient"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
	"github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// probeDeadline limits the run time of a pod, and probeStart the time until it starts: its image is that of another pod of the
// Infra. probeLeftover is how long a finished Job is kept if the command does not delete it. probeCleanup limits the deletion of
// one object.
const (
	probeDeadline = 90 * time.Second
	probeStart    = 30 * time.Second
	probeLeftover = 60 * time.Second
	probeCleanup  = 30 * time.Second
)

// Prober runs 'xdsd probe' in short-lived pods of a site, on the VLAN or in the pod network.
type Prober struct {
	Client client.Client
	// Config is the connection over which logs of pods, and the problems that they report, are read.
	Config *rest.Config
	// Address is the VLAN address of the pod on the VLAN. The zero Addr selects a free IPv4 address of the DHCP ranges.
	Address netip.Addr
	// AddressFlag is the flag that sets Address.
	AddressFlag string
}

// A clientPod is a short-lived pod of a site that runs 'xdsd probe'.
type clientPod struct {
	// onVLAN attaches the pod to the VLAN. Otherwise it is in the pod network only.
	onVLAN bool
	// arguments are those of 'xdsd probe'.
	arguments []string
	// limit is the maximum time that the pod runs; 0 for probeDeadline.
	limit time.Duration
	// follow, if it is not nil, is called with each line that the pod prints while it runs, and returns true to end the pod.
	// Prober.run returns no output, and no error if the pod ends before. The Job is that of the pod: objects that it owns are
	// deleted with it.
	follow func(job *batchv1.Job, line []byte) (done bool, err error)
}

// leftover returns how long the objects of a pod exist after its start, if they are not deleted.
func (p *clientPod) leftover() time.Duration { return p.deadline() + probeLeftover }

func (p *clientPod) deadline() time.Duration { return cmp.Or(p.limit, probeDeadline) }

// run runs a pod and returns what it prints. It deletes everything that it creates, even if ctx ends. It may be called
// concurrently.
func (p *Prober) run(ctx context.Context, s *subject, pod *clientPod) (output []byte, err error) {
	like, image := s.templatePod()
	if image == "" {
		return nil, errors.New("the Infra has no pod with a container coredns, coredhcp or xdsd, whose image the pod requires")
	}
	if err := p.deleteEarlier(ctx, s); err != nil {
		return nil, err
	}
	r := &render.Probe{
		Name: s.Infra.Name + "-" + testclient.Component + "-" + rand.String(5), Arguments: pod.arguments, Like: &like.Spec, Image: image,
		Deadline: pod.deadline(), Leftover: probeLeftover,
	}
	if pod.onVLAN {
		var lease *coordinationv1.Lease
		if r.Address, lease, err = p.reserve(ctx, s, pod); err != nil {
			return nil, err
		}
		if lease != nil {
			defer func() { err = errors.Join(err, p.discard(ctx, lease)) }() // after the pod is deleted
		}
	}
	job, nad, err := r.Objects(s.input(like))
	if err != nil {
		return nil, err
	}
	// If the command is killed, the garbage collector deletes the Job with the Infra.
	job.OwnerReferences = []metav1.OwnerReference{s.ownerReference()}
	// The Job is created before its network, which it owns, and is deleted by its TTL. The pod does not start
	// before its network exists.
	if err := p.Client.Create(ctx, job); err != nil {
		return nil, fmt.Errorf("creating Job %s: %w", job.Name, err)
	}
	// The garbage collector also deletes the network with the Job, but later.
	defer func() { err = errors.Join(err, p.discard(ctx, job)) }()
	if nad != nil {
		defer func() { err = errors.Join(err, p.discard(ctx, nad)) }()
		nad.SetOwnerReferences([]metav1.OwnerReference{jobReference(job)})
		if err := p.Client.Create(ctx, nad); err != nil {
			return nil, fmt.Errorf("creating NetworkAttachmentDefinition %s: %w", nad.GetName(), err)
		}
	}
	return p.wait(ctx, job, pod)
}

// input returns the parts of render's input from which it renders a pod of the test, on the platform of another pod.
func (s *subject) input(like *corev1.Pod) *render.Input {
	return &render.Input{
		Infra: s.Infra, Written: &unstructured.Unstructured{}, Attachment: s.NetworkConfig(), OpenShift: like.Annotations[render.RequiredSCC] != "",
	}
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

// deleteEarlier deletes Jobs of interrupted commands that are older than a pod can run.
func (p *Prober) deleteEarlier(ctx context.Context, s *subject) error {
	list := &batchv1.JobList{}
	err := p.Client.List(ctx, list, client.InNamespace(s.Infra.Namespace),
		client.MatchingLabels{v1alpha1.LabelInfra: s.Infra.Name, v1alpha1.LabelComponent: testclient.Component})
	if err != nil {
		return fmt.Errorf("listing earlier Jobs: %w", err)
	}
	for i := range list.Items {
		job := &list.Items[i]
		deadline := probeDeadline
		if seconds := job.Spec.ActiveDeadlineSeconds; seconds != nil {
			deadline = time.Duration(*seconds) * time.Second
		}
		if s.Facts.Taken.Sub(job.CreationTimestamp.Time) > deadline+probeLeftover {
			if err := p.remove(ctx, job); err != nil {
				return err
			}
		}
	}
	return nil
}

// annotationRemoved is why a pod is not on the VLAN.
const annotationRemoved = "a webhook or policy of the API server removed annotation " + render.NetworksAnnotation

// errNotStarted means that the pod did not start, or not on the VLAN.
var errNotStarted = errors.New("the pod does not start")

// wait waits for the pod of a Job to finish and returns its log, or follows the log. It returns early if the pod cannot start.
func (p *Prober) wait(ctx context.Context, job *batchv1.Job, run *clientPod) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, run.deadline())
	defer cancel()
	reader, since := &read.Reader{Client: p.Client}, time.Now()
	for {
		list := &corev1.PodList{}
		if err := p.Client.List(ctx, list, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil && ctx.Err() == nil {
			return nil, fmt.Errorf("listing the pods of Job %s: %w", job.Name, err)
		}
		why, limit := fmt.Sprintf("kube-controller-manager has not created the pod of Job %s", job.Name), probeStart
		var event *corev1.Event
		if len(list.Items) == 0 {
			if p.isDeleted(ctx, job) {
				return nil, errDeleted
			}
			if event = reader.Warning(ctx, job.Namespace, job.UID); event != nil && event.Reason == "FailedCreate" {
				limit = 0
			}
		}
		for i := range list.Items {
			pod := &list.Items[i]
			if job.Spec.Template.Annotations[render.NetworksAnnotation] != "" && pod.Annotations[render.NetworksAnnotation] == "" {
				return nil, fmt.Errorf("%w: %s: Pod %s lacks it", errNotStarted, annotationRemoved, pod.Name)
			}
			why = status.UnreadyReason(pod)
			switch pod.Status.Phase {
			case corev1.PodSucceeded:
				return p.readLog(ctx, pod)
			case corev1.PodFailed:
				return nil, fmt.Errorf("pod %s failed: %s", pod.Name, why)
			case corev1.PodRunning:
				if run.follow != nil {
					return nil, p.follow(ctx, pod, func(line []byte) (bool, error) { return run.follow(job, line) })
				}
				limit = run.deadline()
			default:
				event = reader.Warning(ctx, pod.Namespace, pod.UID)
				if stuck := status.StuckAfter(pod, event); stuck >= 0 {
					limit = stuck
				}
			}
		}
		if time.Since(since) >= limit {
			if event != nil && !strings.Contains(why, strings.TrimSpace(event.Message)) {
				why = strings.TrimSpace(event.Message)
			}
			return nil, fmt.Errorf("%w: %s", errNotStarted, why)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the pod of Job %s: %w: %s", job.Name, ctx.Err(), why)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// readLog returns the log of a pod.
func (p *Prober) readLog(ctx context.Context, pod *corev1.Pod) ([]byte, error) {
	clients, err := site.NewClients(p.Config)
	if err != nil {
		return nil, fmt.Errorf("reading the log of Pod %s: %w", pod.Name, err)
	}
	data, err := clients.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the log of Pod %s: %w", pod.Name, err)
	}
	return data, nil
}

// follow calls take with each line that a running pod prints, until take returns true or the pod ends.
func (p *Prober) follow(ctx context.Context, pod *corev1.Pod, take func([]byte) (bool, error)) error {
	clients, err := site.NewClients(p.Config)
	if err != nil {
		return fmt.Errorf("following the log of Pod %s: %w", pod.Name, err)
	}
	stream, err := clients.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		return fmt.Errorf("following the log of Pod %s: %w", pod.Name, err)
	}
	defer func() { _ = stream.Close() }() // read only
	lines := bufio.NewScanner(stream)
	for lines.Scan() {
		if done, err := take(lines.Bytes()); done || err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("following the log of Pod %s: %w", pod.Name, err)
	}
	return nil
}

// errDeleted means that another client deleted an object that the command has created, while it ran.
var errDeleted = errors.New("another client, such as 'kubectl oooi test --cleanup', deleted objects of this command while it ran; run it again")

// isDeleted reports whether an object that was created no longer exists, or is about to be deleted.
func (p *Prober) isDeleted(ctx context.Context, o client.Object) bool {
	now, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return false
	}
	err := p.Client.Get(ctx, client.ObjectKeyFromObject(o), now)
	return apierrors.IsNotFound(err) || err == nil && (now.GetUID() != o.GetUID() || now.GetDeletionTimestamp() != nil)
}

// discard is remove for an object that the command has created. It returns errDeleted if another client has deleted it.
func (p *Prober) discard(ctx context.Context, o client.Object) error {
	before, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeCleanup)
	defer cancel()
	if p.isDeleted(before, o) {
		return errors.Join(errDeleted, p.remove(ctx, o))
	}
	return p.remove(ctx, o)
}

// remove deletes an object and waits until it no longer exists, even if ctx has ended. The pods of a Job are
// deleted before it.
func (p *Prober) remove(ctx context.Context, o client.Object) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeCleanup)
	defer cancel()
	uid := o.GetUID()
	propagation := metav1.DeletePropagationBackground
	if _, ok := o.(*batchv1.Job); ok { // other objects have no dependents; foreground deletion would only wait for the garbage collector
		propagation = metav1.DeletePropagationForeground
	}
	err := p.Client.Delete(ctx, o, client.PropagationPolicy(propagation), client.Preconditions{UID: &uid})
	for err == nil {
		if err = p.Client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil || o.GetUID() != uid {
			break
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	if err := client.IgnoreNotFound(err); err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting object %s of the test, which expires within some minutes: %w", o.GetName(), err)
	}
	return nil
}

// follows reports whether the daemon of a pod of DHCP, DNS or the proxy follows the API server, according to the daemon.
func (p *Prober) follows(ctx context.Context, pod *corev1.Pod) (bool, error) {
	clients, err := site.NewClients(p.Config)
	if err != nil {
		return false, err
	}
	follows := false
	for _, a := range site.Ask(ctx, clients, pod) {
		switch {
		case !slices.Contains(daemons, a.Container): // the holder of a floating address follows no objects
		case a.Report == nil:
			return false, fmt.Errorf("reading the problems of Pod %s: %s", pod.Name, a.Refused+a.Silent)
		default:
			follows = !slices.ContainsFunc(a.Report.Problems, func(p problem.Problem) bool { return p.Code == problem.DataStale })
		}
	}
	return follows, nil
}
