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

// A gap is a time without a service.
type gap struct {
	usual time.Duration // what docs/explanation/availability.md tells to expect
	limit time.Duration // beyond which a scenario fails
}

// Gaps while a pod is replaced.
var (
	// restarts are those of a service whose only pod is replaced: a new one has to start.
	restarts = map[string]gap{
		v1alpha1.ComponentDHCP:  {2 * time.Second, 30 * time.Second},
		v1alpha1.ComponentDNS:   {3 * time.Second, 30 * time.Second},
		v1alpha1.ComponentProxy: {3 * time.Second, 30 * time.Second},
	}
	// move is that of the proxy if another replica claims the floating address.
	move = gap{3 * time.Second, 10 * time.Second}
	// others are those of services that the pod does not provide, or of which another replica answers.
	others = gap{time.Second, 2 * time.Second}
)

// uses are what VMs get from the components.
var uses = map[string]string{
	v1alpha1.ComponentDHCP: "addresses", v1alpha1.ComponentDNS: "names", v1alpha1.ComponentProxy: "connections to the control plane",
}

const (
	// baseline is how long all services must answer before a pod is deleted, and settle how long afterwards.
	baseline = 2 * time.Second
	settle   = 3 * time.Second
	// unsettled is the time after which a service that does not answer ends the scenario before it starts.
	unsettled = 15 * time.Second
	// useTime is how long the client uses the services: it ends before the deadline of its pod.
	useTime = podDeadline - 15*time.Second
	// useInterval is the time between two requests to an address of a service, and pollInterval that between two looks at the pod.
	useInterval  = 100 * time.Millisecond
	pollInterval = 500 * time.Millisecond
	// quiet is the longest time between two responses of a service that works.
	quiet = time.Second
)

// A service is what VMs use of a component. It answers if one of its addresses does: clients know several.
type service struct {
	component string
	steps     []probe.Step

	used     bool
	answered time.Time     // the last response, or when the use began
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

// disrupt runs a disruptive scenario: it deletes the pods of a component one after the other, while a client on the VLAN uses all
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
		err = fmt.Errorf("component %s has no pod", component)
	}
	for i := 0; i < len(pods.Items) && err == nil; i++ {
		r := &replacement{test: t, pod: &pods.Items[i], services: t.site.newServices()}
		t.Progress("replacing Pod " + r.pod.Name)
		if err = r.run(ctx); err != nil {
			break
		}
		while := " while Pod " + r.pod.Name + " is replaced"
		if !r.ended {
			result.fail("all services"+while, cmp.Or(r.unready, "the new pod is ready, but a service does not answer"))
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

// expectedGap returns the gap of the service of a component, while one of several pods of another one, or of the same, is replaced.
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

// A replacement of a pod goes on with each outcome of a client on the VLAN that uses all services.
type replacement struct {
	*test

	pod      *corev1.Pod
	services []*service

	// began and now are the times of the first and the last outcome, by the clock of the client; zero until the first.
	began, now time.Time
	deleted    bool
	looked     time.Time // when the new pod was looked at last
	unready    string    // why it was not ready
	ready      time.Time // since when it is, and all services answer
	ended      bool      // whether they did so for some time
}

// run deletes the pod when all services have answered for some time, until they do so again and the new pod is ready, or the client
// ends.
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
		err = r.follow(ctx, job, func(o *probe.Outcome) (bool, error) {
			r.take(o)
			err := r.next(ctx)
			return r.ended, err
		})
	}
	return errors.Join(err, r.cleanUp(ctx))
}

// take adds the outcome of a request, whose step is an index of all steps of the services.
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
			s.failure = "DNS answers " + o.DNS.Rcode
		default:
			s.used, s.gap, s.answered = true, max(s.gap, o.Ended.Sub(s.answered)), o.Ended
		}
		return
	}
}

// next deletes the pod, or looks whether the new one is ready. The replacement has ended when it is and all services answer, for some
// time.
func (r *replacement) next(ctx context.Context) error {
	silent := r.silent()
	switch {
	case !r.deleted && silent == nil && r.now.Sub(r.began) >= baseline:
		r.deleted = true
		if err := r.Client.Delete(ctx, r.pod, client.Preconditions{UID: &r.pod.UID}); err != nil {
			return fmt.Errorf("deleting Pod %s: %w", r.pod.Name, err)
		}
	case !r.deleted && silent != nil && r.now.Sub(r.began) > unsettled:
		return fmt.Errorf("VMs do not get %s even before the disruption: %s", uses[silent.component], cmp.Or(silent.failure, "no response"))
	case r.deleted && r.now.Sub(r.looked) >= pollInterval:
		r.looked, r.unready = r.now, r.whyUnready(ctx)
		if r.unready != "" || silent != nil {
			r.ready = time.Time{}
		} else if r.ready.IsZero() {
			r.ready = r.now
		}
		r.ended = !r.ready.IsZero() && r.now.Sub(r.ready) >= settle
	}
	return nil
}

// silent returns a service that does not answer, nil if all do.
func (r *replacement) silent() *service {
	for _, s := range r.services {
		if !s.used || r.now.Sub(s.answered) > quiet {
			return s
		}
	}
	return nil
}

// whyUnready returns why the pod that replaces the deleted one, with the same name, is not ready; empty if it is.
func (r *replacement) whyUnready(ctx context.Context) string {
	pod := &corev1.Pod{}
	switch err := r.Client.Get(ctx, client.ObjectKeyFromObject(r.pod), pod); {
	case apierrors.IsNotFound(err):
		return "its controller has not created the new pod: see the Events of 'kubectl describe statefulset'"
	case err != nil:
		return "reading the new pod: " + err.Error()
	case pod.UID == r.pod.UID:
		return "the pod has not ended"
	case !status.PodReady(pod):
		return "the new pod is not ready: " + status.UnreadyReason(pod)
	}
	return ""
}

// addGap adds the longest time without a service, until now, to a result, which fails if it exceeds its limit.
func (r *Result) addGap(s *service, now time.Time, while string, want gap) {
	longest := max(s.gap, now.Sub(s.answered)).Round(100 * time.Millisecond)
	request := Request{Client: VLAN, Label: uses[s.component] + while, Took: metav1.Duration{Duration: longest}}
	switch {
	case longest > want.limit:
		request.Problem = fmt.Sprintf("none for %s, want at most %s, usually %s: %s", longest, want.limit, want.usual, cmp.Or(s.failure, "no response"))
		r.Status = output.Failed
	case longest > want.usual:
		request.Note = fmt.Sprintf("longer than the usual %s", want.usual)
	}
	r.Requests = append(r.Requests, request)
}
