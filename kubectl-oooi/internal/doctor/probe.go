package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// Probe is what was found from an Infra's VLAN.
type Probe struct {
	// Failed says why nothing was; empty with a Report.
	Failed string        `json:"failed,omitempty"`
	Report *probe.Report `json:"report,omitempty"`
}

// How long a probe's pod may run, for how long it is there afterwards if nobody is left to take
// it away, and how long taking it away may take.
const (
	probeDeadline = 90 * time.Second
	probeLeftover = 60 * time.Second
	probeCleanup  = 30 * time.Second
)

// Prober looks at VLANs from pods that it starts there, each for some seconds.
type Prober struct {
	Client client.Client
	Config *rest.Config
	// Address is the pod's on the VLAN; the zero value for one that DHCP could give out, and has
	// not.
	Address netip.Addr
}

// Probe looks at the VLAN of an Infra, "namespace/name", and adds what it finds to the facts. That
// it could not look is a fact as well; an error says that the context has ended. Nothing is left
// when it returns; nor, some minutes later, where it could not return.
func (p *Prober) Probe(ctx context.Context, facts *Facts, infra string) error {
	site := NewSite(facts, infra)
	if site == nil {
		return nil
	}
	site.reads = probeReads()
	report, err := p.look(ctx, site)
	if ctx.Err() != nil {
		return fmt.Errorf("probing the VLAN of %s: %w", infra, errors.Join(ctx.Err(), err))
	}
	one := &Probe{Report: report}
	if err != nil {
		one.Failed = "probing the VLAN failed: " + err.Error()
	}
	facts.addProbe(infra, one)
	return nil
}

func (f *Facts) addProbe(infra string, p *Probe) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.probes[infra] = p
}

func (f *Facts) loadProbes(r io.Reader) error {
	if err := json.NewDecoder(io.LimitReader(r, largest)).Decode(&f.probes); err != nil {
		return fmt.Errorf("%s: %w", probed, err)
	}
	return nil
}

// look runs a pod on the VLAN to its end.
func (p *Prober) look(ctx context.Context, s *Site) (report *probe.Report, err error) {
	like, image := s.likePod()
	if image == "" {
		return nil, errors.New("the Infra has no pod whose image the probe could use")
	}
	if err := p.sweep(ctx, s); err != nil {
		return nil, err
	}
	address, lease, err := p.hold(ctx, s)
	if err != nil {
		return nil, err
	}
	if lease != nil {
		defer func() { err = errors.Join(err, p.remove(ctx, lease)) }() // once the pod is gone
	}
	job, nad, err := (&render.Probe{
		Name: s.Infra.Name + "-probe-" + rand.String(5), Address: address, Arguments: s.plan().arguments(), Like: like, Image: image,
		Deadline: probeDeadline, Leftover: probeLeftover,
	}).Objects(s.input())
	if err != nil {
		return nil, err //nolint:wrapcheck // it is ours
	}
	// With the Infra goes whatever is left of it.
	job.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Infra", Name: s.Infra.Name, UID: s.Infra.UID}}
	// The Job first: its network goes with it, and it goes by itself. The pod waits for its network.
	if err := p.Client.Create(ctx, job); err != nil {
		return nil, fmt.Errorf("creating Job %s: %w", job.Name, err)
	}
	// The cluster takes its network away in its own time.
	defer func() { err = errors.Join(err, p.remove(ctx, job), p.remove(ctx, nad)) }()
	nad.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Name: job.Name, UID: job.UID}})
	if err := p.Client.Create(ctx, nad); err != nil {
		return nil, fmt.Errorf("creating NetworkAttachmentDefinition %s: %w", nad.GetName(), err)
	}
	return p.wait(ctx, job)
}

// likePod is a pod of ours, and its image.
func (s *Site) likePod() (*corev1.PodSpec, string) {
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

// sweep removes what earlier probes have left that were cut off, once it cannot be in use.
func (p *Prober) sweep(ctx context.Context, s *Site) error {
	list := &batchv1.JobList{}
	err := p.Client.List(ctx, list, client.InNamespace(s.Infra.Namespace), client.MatchingLabels{v1alpha1.LabelInfra: s.Infra.Name, v1alpha1.LabelComponent: render.ComponentProbe})
	if err != nil {
		return fmt.Errorf("looking for earlier probes: %w", err)
	}
	for i := range list.Items {
		if job := &list.Items[i]; s.facts.Taken.Sub(job.CreationTimestamp.Time) > probeDeadline+probeLeftover {
			if err := p.remove(ctx, job); err != nil {
				return err
			}
		}
	}
	return nil
}

// holding is how often an address is looked for that nobody takes in the same moment.
const holding = 5

// hold finds an address for the pod, and holds it by a lease of DHCP's own, which ends by itself:
// DHCP gives it to nobody meanwhile. An address that DHCP does not give out needs none.
func (p *Prober) hold(ctx context.Context, s *Site) (netip.Addr, *coordinationv1.Lease, error) {
	given := p.Address.IsValid()
	if given && !slices.ContainsFunc(s.ranges(), func(r v1alpha1.AddressRange) bool { return r.Contains(p.Address) }) {
		return p.Address, nil, nil
	}
	taken := s.takenAddresses()
	for range holding {
		address := p.Address
		if !given {
			if address = s.freeAddress(taken); !address.IsValid() {
				return address, nil, errors.New("DHCP has no free address for the pod; specify one with --probe-address")
			}
		}
		lease := leases.Hold(s.Infra.Namespace, s.Infra.Name, "oooi-"+render.ComponentProbe, address, time.Now(), probeDeadline+probeLeftover)
		err := p.Client.Create(ctx, lease)
		switch {
		case err == nil:
			return address, lease, nil
		case !apierrors.IsAlreadyExists(err):
			return address, nil, fmt.Errorf("reserving %s for the pod: %w", address, err)
		case given:
			return address, nil, fmt.Errorf("--probe-address: %s is leased; see 'kubectl oooi leases'", address)
		}
		taken[address] = true
	}
	return netip.Addr{}, nil, errors.New("no free address for the pod: other clients lease them first")
}

// wait waits for the pod to end, and reads what it has found.
func (p *Prober) wait(ctx context.Context, job *batchv1.Job) (*probe.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, probeDeadline)
	defer cancel()
	why := "its Job has not created a pod"
	for {
		list := &corev1.PodList{}
		if err := p.Client.List(ctx, list, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil && ctx.Err() == nil {
			return nil, fmt.Errorf("looking for the pod of Job %s: %w", job.Name, err)
		}
		for i := range list.Items {
			pod := &list.Items[i]
			why = status.Unready(pod)
			switch pod.Status.Phase {
			case corev1.PodSucceeded:
				return p.read(ctx, pod)
			case corev1.PodFailed:
				return nil, fmt.Errorf("Pod %s: %s", pod.Name, why) //nolint:staticcheck // a kind begins with a capital
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the pod of Job %s: %w: %s", job.Name, ctx.Err(), why)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// read is what the pod has printed.
func (p *Prober) read(ctx context.Context, pod *corev1.Pod) (*probe.Report, error) {
	clients, err := kubernetes.NewForConfig(p.Config)
	if err != nil {
		return nil, fmt.Errorf("reading the log of Pod %s: %w", pod.Name, err)
	}
	data, err := clients.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the log of Pod %s: %w", pod.Name, err)
	}
	r := &probe.Report{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("reading the log of Pod %s: %w: %.200s", pod.Name, err, data)
	}
	return r, nil
}

// remove deletes an object, and waits until it is gone, also when ctx has ended. A Job's pods go first.
func (p *Prober) remove(ctx context.Context, o client.Object) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeCleanup)
	defer cancel()
	uid := o.GetUID()
	propagation := metav1.DeletePropagationBackground
	if _, ok := o.(*batchv1.Job); ok { // only a Job has dependents: anything else would wait for the garbage collector for nothing
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
		return fmt.Errorf("deleting %s, which expires within %s: %w", o.GetName(), probeDeadline+probeLeftover, err)
	}
	return nil
}
