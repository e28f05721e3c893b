package doctor

import (
	"bufio"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
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
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// Probe is the result of probing an Infra's VLAN.
type Probe struct {
	// Failed is why the probe failed, empty if Report is set.
	Failed string `json:"failed,omitempty"`
	// NotStarted is set if it failed because its pod did not start.
	NotStarted bool          `json:"notStarted,omitempty"`
	Report     *probe.Report `json:"report,omitempty"`
}

// probeDeadline limits the run time of a probe's pod, and probeStart the time until it starts: its image is that of another
// pod of the Infra. probeLeftover is how long a finished Job is kept if doctor does not delete it. probeCleanup limits the
// deletion of one object. probeRequests limits all requests of a probe: those to servers that do not answer take five
// seconds, and nine if they accept connections.
const (
	probeRequests = 9 * time.Second
	probeDeadline = 90 * time.Second
	probeStart    = 30 * time.Second
	probeLeftover = 60 * time.Second
	probeCleanup  = 30 * time.Second
)

// Prober probes VLANs from short-lived pods that it creates on them.
type Prober struct {
	Client client.Client
	// Config is the connection over which the logs of pods are read.
	Config *rest.Config
	// Address is the VLAN address of the pod. The zero Addr selects a free IPv4 address of the DHCP ranges.
	Address netip.Addr
	// AddressFlag is the flag that sets Address.
	AddressFlag string
}

// Probe probes the VLAN of an Infra, "namespace/name", and adds the result to the facts; it does nothing if the
// facts do not contain the Infra. A failed probe is recorded in the facts, as is one that ends with ctx, for which Probe
// also returns an error.
// Probe deletes everything that it creates. If the process is killed, the objects expire after at most
// probeDeadline and probeLeftover. Probe may be called concurrently for several Infras.
func (p *Prober) Probe(ctx context.Context, facts *Facts, infra string) error {
	site := NewSite(facts, infra)
	if site == nil {
		return nil
	}
	site.reads = probeReads()
	report, err := p.runPod(ctx, site)
	result := &Probe{Report: report}
	switch {
	case err != nil && ctx.Err() != nil:
		result.Failed = "the VLAN was not probed: " + context.Cause(ctx).Error()
	case err != nil:
		result.Failed, result.NotStarted = "probing the VLAN failed: "+err.Error(), errors.Is(err, errNotStarted)
	}
	facts.addProbe(infra, result)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("probing the VLAN of Infra %s: %w", infra, errors.Join(context.Cause(ctx), err))
	}
	return nil
}

func (f *Facts) addProbe(infra string, p *Probe) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.probes[infra] = p
}

// runPod runs a probe's pod on the VLAN and returns its report.
func (p *Prober) runPod(ctx context.Context, s *Site) (*probe.Report, error) {
	data, err := p.Run(ctx, s, &Pod{Component: render.ComponentProbe, OnVLAN: true, Arguments: s.plan().arguments()})
	if err != nil {
		return nil, err
	}
	r := &probe.Report{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("decoding the report of the probe: %w: %.200s", err, data)
	}
	return r, nil
}

// A Pod is a short-lived pod of a site that runs 'xdsd probe'.
type Pod struct {
	// Component is the value of v1alpha1.LabelComponent on its objects.
	Component string
	// OnVLAN attaches the pod to the VLAN. Otherwise it is in the pod network only.
	OnVLAN bool
	// Arguments are those of 'xdsd probe'.
	Arguments []string
	// Deadline is the maximum time that the pod runs; 0 for that of a probe.
	Deadline time.Duration
	// Follow, if it is not nil, is called with each line that the pod prints while it runs, and returns true to end the pod.
	// Run returns no output, and no error if the pod ends before. The Job is that of the pod: objects that it owns are deleted with it.
	Follow func(job *batchv1.Job, line []byte) (done bool, err error)
}

// Leftover returns how long the objects of a Pod exist after its start, if they are not deleted.
func (p *Pod) Leftover() time.Duration { return p.deadline() + probeLeftover }

func (p *Pod) deadline() time.Duration { return cmp.Or(p.Deadline, probeDeadline) }

// Run runs a pod and returns what it prints. It deletes everything that it creates, even if ctx ends. It may be called
// concurrently with different Sites.
func (p *Prober) Run(ctx context.Context, s *Site, pod *Pod) (output []byte, err error) {
	input, err := s.input()
	if err != nil {
		return nil, fmt.Errorf("rendering the pod: %w", err)
	}
	like, image := s.templatePod()
	if image == "" {
		return nil, errors.New("the Infra has no pod with a container coredns, coredhcp or xdsd, whose image the probe requires")
	}
	if err := p.deleteEarlier(ctx, s, pod.Component); err != nil {
		return nil, err
	}
	r := &render.Probe{
		Component: pod.Component, Name: s.Infra.Name + "-" + pod.Component + "-" + rand.String(5), Arguments: pod.Arguments, Like: like, Image: image,
		Deadline: pod.deadline(), Leftover: probeLeftover,
	}
	if pod.OnVLAN {
		var lease *coordinationv1.Lease
		if r.Address, lease, err = p.reserve(ctx, s, pod); err != nil {
			return nil, err
		}
		if lease != nil {
			defer func() { err = errors.Join(err, p.Discard(ctx, lease)) }() // after the pod is deleted
		}
	}
	job, nad, err := r.Objects(input)
	if err != nil {
		return nil, err //nolint:wrapcheck // error of an internal package
	}
	// If the command is killed, the garbage collector deletes the Job with the Infra.
	job.OwnerReferences = []metav1.OwnerReference{s.OwnerReference()}
	// The Job is created before its network, which it owns, and is deleted by its TTL. The pod does not start
	// before its network exists.
	if err := p.Client.Create(ctx, job); err != nil {
		return nil, fmt.Errorf("creating Job %s: %w", job.Name, err)
	}
	// The garbage collector also deletes the network with the Job, but later.
	defer func() { err = errors.Join(err, p.Discard(ctx, job)) }()
	if nad != nil {
		defer func() { err = errors.Join(err, p.Discard(ctx, nad)) }()
		nad.SetOwnerReferences([]metav1.OwnerReference{JobReference(job)})
		if err := p.Client.Create(ctx, nad); err != nil {
			return nil, fmt.Errorf("creating NetworkAttachmentDefinition %s: %w", nad.GetName(), err)
		}
	}
	return p.wait(ctx, job, pod)
}

// JobReference returns a reference with which the garbage collector deletes an object with a Job.
func JobReference(job *batchv1.Job) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Name: job.Name, UID: job.UID}
}

// OwnerReference returns a reference with which the garbage collector deletes an object with the Infra.
func (s *Site) OwnerReference() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Infra", Name: s.Infra.Name, UID: s.Infra.UID}
}

// templatePod returns the specification of one of the Infra's pods and our image in it; the image is empty if
// there is none.
func (s *Site) templatePod() (*corev1.PodSpec, string) {
	for _, pod := range all[corev1.Pod](s, pods, AtInfra) {
		if pod.Labels[v1alpha1.LabelInfra] != s.Infra.Name || pod.DeletionTimestamp != nil {
			continue
		}
		for i := range pod.Spec.Containers {
			if c := &pod.Spec.Containers[i]; slices.Contains([]string{"coredns", "coredhcp", "xdsd"}, c.Name) {
				return &pod.Spec, c.Image
			}
		}
	}
	return nil, ""
}

// deleteEarlier deletes Jobs of interrupted commands that are older than a pod can run.
func (p *Prober) deleteEarlier(ctx context.Context, s *Site, component string) error {
	list := &batchv1.JobList{}
	err := p.Client.List(ctx, list, client.InNamespace(s.Infra.Namespace), client.MatchingLabels{v1alpha1.LabelInfra: s.Infra.Name, v1alpha1.LabelComponent: component})
	if err != nil {
		return fmt.Errorf("listing earlier Jobs: %w", err)
	}
	for i := range list.Items {
		if job := &list.Items[i]; s.facts.Taken.Sub(job.CreationTimestamp.Time) > probeDeadline+probeLeftover {
			if err := p.Remove(ctx, job); err != nil {
				return err
			}
		}
	}
	return nil
}

// ReservationHolder returns the client, as in leases.Lease, of an address that a pod of a component has reserved.
func ReservationHolder(component string) string {
	return "id:" + hex.EncodeToString([]byte("oooi-"+component))
}

// reserveAttempts is how many addresses are tried if other clients lease the chosen ones at the same time.
const reserveAttempts = 5

// reserve returns an address for the pod and the Lease that reserves it, which DHCP takes for an ordinary lease
// and which expires. The Lease is nil if the address is outside of the DHCP ranges.
func (p *Prober) reserve(ctx context.Context, s *Site, pod *Pod) (netip.Addr, *coordinationv1.Lease, error) {
	given := p.Address.IsValid()
	if given {
		if why := s.unusable(p.Address); why != "" {
			return p.Address, nil, fmt.Errorf("address %s of the pod on the VLAN %s; specify a free address of the VLAN", p.Address, why)
		}
	}
	if given && !slices.ContainsFunc(s.ranges(), func(r v1alpha1.AddressRange) bool { return r.Contains(p.Address) }) {
		return p.Address, nil, nil
	}
	taken := s.takenAddresses()
	for range reserveAttempts {
		address := p.Address
		if !given {
			if address = s.freeAddress(taken); !address.IsValid() {
				return address, nil, fmt.Errorf("the DHCP ranges have no free IPv4 address for the pod on the VLAN; specify another free address of the VLAN with %s", p.AddressFlag)
			}
			taken[address] = true
			if !s.freeAddress(taken).IsValid() {
				return address, nil, fmt.Errorf("%s is the last free IPv4 address of the DHCP ranges, which a VM may need; specify another free address of the VLAN with %s", address, p.AddressFlag)
			}
		}
		lease := leases.Reservation(s.Infra.Namespace, s.Infra.Name, "oooi-"+pod.Component, address, time.Now(), pod.Leftover())
		err := p.Client.Create(ctx, lease)
		switch {
		case err == nil:
			return address, lease, nil
		case !apierrors.IsAlreadyExists(err):
			return address, nil, fmt.Errorf("reserving address %s for the pod on the VLAN: %w", address, err)
		case given:
			return address, nil, fmt.Errorf("address %s of the pod on the VLAN is leased; specify an address that 'kubectl oooi leases' does not list", address)
		}
	}
	return netip.Addr{}, nil, fmt.Errorf("reserving an address for the pod on the VLAN: other clients leased every chosen address first; specify a free one with %s", p.AddressFlag)
}

// errNotStarted means that the pod of a probe did not start, or not on the VLAN.
var errNotStarted = errors.New("the pod does not start")

// wait waits for the pod of a Job to finish and returns its log, or follows the log. It returns early if the pod cannot start.
func (p *Prober) wait(ctx context.Context, job *batchv1.Job, run *Pod) ([]byte, error) {
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
				return nil, ErrDeleted
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
				return nil, fmt.Errorf("Pod %s failed: %s", pod.Name, why)
			case corev1.PodRunning:
				if run.Follow != nil {
					return nil, p.follow(ctx, pod, func(line []byte) (bool, error) { return run.Follow(job, line) })
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
	clients, err := newClients(p.Config)
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
	clients, err := newClients(p.Config)
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

// ErrDeleted means that another client deleted an object that the command has created, while it ran.
var ErrDeleted = errors.New("another client, such as 'kubectl oooi test --cleanup', deleted objects of this command while it ran; run it again")

// isDeleted reports whether an object that was created no longer exists, or is about to be deleted.
func (p *Prober) isDeleted(ctx context.Context, o client.Object) bool {
	now, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return false
	}
	err := p.Client.Get(ctx, client.ObjectKeyFromObject(o), now)
	return apierrors.IsNotFound(err) || err == nil && (now.GetUID() != o.GetUID() || now.GetDeletionTimestamp() != nil)
}

// Discard is Remove for an object that the command has created. It returns ErrDeleted if another client has deleted it.
func (p *Prober) Discard(ctx context.Context, o client.Object) error {
	before, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeCleanup)
	defer cancel()
	if p.isDeleted(before, o) {
		return errors.Join(ErrDeleted, p.Remove(ctx, o))
	}
	return p.Remove(ctx, o)
}

// Remove deletes an object and waits until it no longer exists, even if ctx has ended. The pods of a Job are
// deleted before it.
func (p *Prober) Remove(ctx context.Context, o client.Object) error {
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
		return fmt.Errorf("deleting object %s of the probe, which expires within some minutes: %w", o.GetName(), err)
	}
	return nil
}
