package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// A gap is a limit for the time that a service may be interrupted.
type gap struct {
	usual time.Duration // the expected time in docs/explanation/availability.md
	limit time.Duration // a scenario fails beyond this time
}

// Gaps while a pod is replaced.
var (
	// restarts are the gaps of services whose only pod is replaced and must start again.
	restarts = map[string]gap{
		v1alpha1.ComponentDHCP:  {2 * time.Second, 30 * time.Second},
		v1alpha1.ComponentDNS:   {3 * time.Second, 30 * time.Second},
		v1alpha1.ComponentProxy: {3 * time.Second, 30 * time.Second},
	}
	// move is the proxy's gap while another replica takes the floating address.
	move = gap{3 * time.Second, 10 * time.Second}
	// others is the gap of services that the pod does not provide, or that another replica provides meanwhile.
	others = gap{time.Second, 2 * time.Second}
)

// serviceNames names what VMs get from each component.
var serviceNames = map[string]string{
	v1alpha1.ComponentDHCP: "addresses", v1alpha1.ComponentDNS: "names", v1alpha1.ComponentProxy: "connections to the control plane",
}

const (
	// All services must respond for baseline before a pod is deleted, and for settleTime afterwards.
	baseline   = 2 * time.Second
	settleTime = 3 * time.Second
	// baselineTimeout ends the scenario if a service does not respond before a pod is deleted.
	baselineTimeout = 15 * time.Second
	// useTime is how long the client sends requests. It ends before the pod's deadline.
	useTime = podDeadline - 15*time.Second
	// useInterval is the time between two requests to a service's address, and pollInterval the time between two reads of the pod.
	useInterval  = 100 * time.Millisecond
	pollInterval = 500 * time.Millisecond
	// silenceLimit is the longest time between two responses of a working service.
	silenceLimit = time.Second
)

// A service is a component as VMs use it. It is available if one of its addresses responds, since clients know all of them.
type service struct {
	component string
	steps     []probe.Step

	used     bool
	answered time.Time     // the last response or, before the first, the start
	gap      time.Duration // the longest time between two responses
	failure  string        // of the last request that failed
}

// newServices returns the services of the site that have an address on the VLAN.
func (s *subject) newServices() []*service {
	var list []*service
	add := func(component string, steps ...probe.Step) {
		if len(steps) > 0 {
			list = append(list, &service{component: component, steps: steps})
		}
	}
	if s.noDHCP() == "" {
		add(v1alpha1.ComponentDHCP, s.dhcpRequest())
	}
	var queries, connections []probe.Step
	if s.noDNS(VLAN) == "" {
		for _, server := range s.servers(VLAN) {
			queries = append(queries, probe.Step{DNS: &probe.Query{Server: server, Network: "udp", Name: s.names(VLAN)[0].Name, Type: "A"}})
		}
	}
	if s.Infra.Spec.InfraComponents.Proxy.IsEnabled() {
		for _, t := range s.endpoints(VLAN, model.RoleAPI) {
			connections = append(connections, probe.Step{TLS: &t})
		}
	}
	add(v1alpha1.ComponentDNS, queries...)
	add(v1alpha1.ComponentProxy, connections...)
	return list
}

// disrupt runs a disruptive scenario: it deletes a component's pods one after the other while a client on the VLAN uses all
// services.
func (t *test) disrupt(ctx context.Context, s *Scenario) Result {
	result, component := s.newResult(), strings.TrimPrefix(s.Name, "replace-")
	if !slices.ContainsFunc(t.site.newServices(), func(s *service) bool { return s.component == component }) {
		result.skip("the component is not enabled, or has nothing to test")
		return result
	}
	pods := &corev1.PodList{}
	err := t.Client.List(ctx, pods, client.InNamespace(t.site.Infra.Namespace), client.MatchingLabels(t.site.Labels(component)))
	if err == nil && len(pods.Items) == 0 {
		err = fmt.Errorf("no pods of component %s exist", component)
	}
	for i := 0; i < len(pods.Items) && err == nil; i++ {
		r := &replacement{test: t, pod: &pods.Items[i], services: t.site.newServices()}
		t.Progress("replacing Pod " + r.pod.Name)
		if err = r.run(ctx); err != nil {
			break
		}
		while := " while Pod " + r.pod.Name + " is replaced"
		if !r.ended {
			result.fail("all services"+while, cmp.Or(r.unready, "the new pod is ready, but a service does not respond"))
		}
		for _, s := range r.services {
			result.addGap(s, r.now, while, expectedGap(s.component, component, len(pods.Items)))
		}
	}
	switch {
	case err != nil:
		result.Status, result.Reason = output.Broken, err.Error()
	case result.Status == output.Failed:
		result.Remedy = s.Remedy
	}
	return result
}

// expectedGap returns the gap of a component's service while one of the given number of pods of component replaced is replaced.
func expectedGap(component, replaced string, pods int) gap {
	switch {
	case component != replaced:
		return others
	case pods == 1:
		return restarts[component]
	case component == v1alpha1.ComponentProxy:
		return move
	}
	return others
}

// A replacement deletes a pod and measures gaps in the requests of a client on the VLAN that uses all services.
type replacement struct {
	*test

	pod      *corev1.Pod
	services []*service

	// began and now are the times of the first and the last outcome, by the client's clock; zero before the first outcome.
	began, now time.Time
	deleted    bool
	lastRead   time.Time // when the new pod was last read
	unready    string    // why it was not ready
	ready      time.Time // since when it is ready and all services respond
	ended      bool      // whether this has lasted for settleTime
}

// run deletes the pod after all services have responded for baseline, and waits until the new pod is ready and all services respond
// again, or the client ends.
func (r *replacement) run(ctx context.Context) error {
	if !status.PodReady(r.pod) {
		return fmt.Errorf("Pod %s is not ready", r.pod.Name) //nolint:staticcheck // a kind begins with a capital
	}
	var steps []probe.Step
	for _, s := range r.services {
		steps = append(steps, s.steps...)
	}
	job, err := r.start(ctx, VLAN, steps, "--interval="+useInterval.String(), "--timeout="+useTime.String())
	if err == nil {
		err = r.streamOutcomes(ctx, job, func(o *probe.Outcome) (bool, error) {
			r.take(o)
			err := r.next(ctx)
			return r.ended, err
		})
	}
	return errors.Join(err, r.cleanUp(ctx))
}

// take adds the outcome of a request. Its Step is an index into the concatenated steps of all services.
func (r *replacement) take(o *probe.Outcome) {
	if r.began.IsZero() {
		r.began, r.now = o.Ended, o.Ended
		for _, s := range r.services {
			s.answered = o.Ended
		}
	}
	if o.Ended.After(r.now) {
		r.now = o.Ended
	}
	index := o.Step
	for _, s := range r.services {
		if index -= len(s.steps); index >= 0 {
			continue
		}
		switch {
		case o.Error != "":
			s.failure = o.Error
		case o.DNS != nil && o.DNS.Rcode != "NOERROR":
			s.failure = "DNS returns " + o.DNS.Rcode
		default:
			s.used, s.gap, s.answered = true, max(s.gap, o.Ended.Sub(s.answered)), o.Ended
		}
		return
	}
}

// next deletes the pod or, afterwards, checks whether the replacement has ended: the new pod is ready and all services have responded for
// settleTime.
func (r *replacement) next(ctx context.Context) error {
	silent := r.silent()
	switch {
	case !r.deleted && silent == nil && r.now.Sub(r.began) >= baseline:
		r.deleted = true
		if err := r.Client.Delete(ctx, r.pod, client.Preconditions{UID: &r.pod.UID}); err != nil {
			return fmt.Errorf("deleting Pod %s: %w", r.pod.Name, err)
		}
	case !r.deleted && silent != nil && r.now.Sub(r.began) > baselineTimeout:
		return fmt.Errorf("cannot measure the interruption: VMs do not get %s even before the pod is deleted: %s",
			serviceNames[silent.component], cmp.Or(silent.failure, "no response"))
	case r.deleted && r.now.Sub(r.lastRead) >= pollInterval:
		r.lastRead, r.unready = r.now, r.whyUnready(ctx)
		if r.unready != "" || silent != nil {
			r.ready = time.Time{}
		} else if r.ready.IsZero() {
			r.ready = r.now
		}
		r.ended = !r.ready.IsZero() && r.now.Sub(r.ready) >= settleTime
	}
	return nil
}

// silent returns a service that does not respond; nil if all respond.
func (r *replacement) silent() *service {
	for _, s := range r.services {
		if !s.used || r.now.Sub(s.answered) > silenceLimit {
			return s
		}
	}
	return nil
}

// whyUnready returns why the new pod, which has the deleted pod's name, is not ready; empty if it is ready.
func (r *replacement) whyUnready(ctx context.Context) string {
	pod := &corev1.Pod{}
	switch err := r.Client.Get(ctx, client.ObjectKeyFromObject(r.pod), pod); {
	case apierrors.IsNotFound(err):
		return "the StatefulSet has not created the new pod; see the Events in 'kubectl describe statefulset'"
	case err != nil:
		return "reading the new pod: " + err.Error()
	case pod.UID == r.pod.UID:
		return "the deleted pod has not terminated"
	case !status.PodReady(pod):
		return "the new pod is not ready: " + status.UnreadyReason(pod)
	}
	return ""
}

// addGap adds a service's longest gap until now to a result. The result fails if the gap exceeds its limit.
func (r *Result) addGap(s *service, now time.Time, while string, want gap) {
	longest := max(s.gap, now.Sub(s.answered)).Round(100 * time.Millisecond)
	request := Request{Client: VLAN, Label: serviceNames[s.component] + while, Took: metav1.Duration{Duration: longest}}
	switch {
	case longest > want.limit:
		request.Problem = fmt.Sprintf("no response for %s, expected at most %s, usually %s: %s", longest, want.limit, want.usual, cmp.Or(s.failure, "no response"))
		r.Status = output.Failed
	case longest > want.usual:
		request.Note = fmt.Sprintf("longer than the usual %s", want.usual)
	}
	r.Requests = append(r.Requests, request)
}
