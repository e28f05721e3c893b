package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
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

const (
	// baseline is how long all services must answer before a pod is deleted, and settle how long afterwards.
	baseline = 2 * time.Second
	settle   = 3 * time.Second
	// unsettled is the time after which a service that does not answer ends the scenario before it starts.
	unsettled = 15 * time.Second
	// useMargin is how much earlier the client ends than the deadline of its pod.
	useMargin = 15 * time.Second
	// useInterval is the time between two requests to an address of a service, and pollInterval that between two looks at the results.
	useInterval  = 100 * time.Millisecond
	pollInterval = 500 * time.Millisecond
	// quiet is the longest time between two responses of a service that works.
	quiet = time.Second
	// stalled is the longest time between two outcomes, if only because requests time out.
	stalled = 5 * time.Second
)

// replaced are the components in the order in which their pods are replaced, with what VMs get from them.
var replaced = []struct{ component, service string }{
	{v1alpha1.ComponentDHCP, "addresses"}, {v1alpha1.ComponentDNS, "names"}, {v1alpha1.ComponentProxy, "connections to the control plane"},
}

func disruptionScenarios() []Scenario {
	var list []Scenario
	for _, r := range replaced {
		list = append(list, Scenario{
			Name: "replace-" + r.component, Group: GroupDisruption, Clients: []Client{VLAN},
			Title:  fmt.Sprintf("VMs get %s soon again when a pod is deleted", r.service),
			Remedy: "see why the pod starts late with 'kubectl describe pod', and docs/how-to/add-replicas.md for a second replica",
			run:    func(ctx context.Context, t *test, result *Result) error { return t.replace(ctx, r.component, result) },
		})
	}
	return append(list, Scenario{
		Name: "api-server-outage", Group: GroupDisruption, Clients: []Client{VLAN},
		Title:  "VMs keep addresses, names and connections while our pods cannot reach the API server",
		Remedy: "see the logs of the pods, and docs/explanation/availability.md for what continues without the API server",
		run:    func(ctx context.Context, t *test, result *Result) error { return t.outage(ctx, result) },
	})
}

// A use is the use of all services on the VLAN by a client during a disruption.
type use struct {
	services []*service

	lock sync.Mutex
	// began and now are the times of the first and the last outcome, by the clock of the client; zero until the first.
	began, now time.Time
	received   time.Time // when the last outcome was received
}

// A service is what VMs use of a component. It answers if one of its addresses does: clients know several.
type service struct {
	component, name string
	steps           []probe.Step

	used     bool
	answered time.Time     // the last response, or when the use began
	gap      time.Duration // the longest time between two responses
	failure  string        // of the last request that failed
}

// newUse returns the services of the site that have an address on the VLAN.
func (s *subject) newUse() *use {
	steps := map[string][]probe.Step{}
	if s.noDNS(VLAN) == "" {
		for _, server := range s.servers(VLAN) {
			steps[v1alpha1.ComponentDNS] = append(steps[v1alpha1.ComponentDNS],
				probe.Step{DNS: &probe.Query{Server: server, Network: "udp", Name: s.names(VLAN)[0].Name, Type: "A"}})
		}
	}
	if s.noDHCP() == "" {
		steps[v1alpha1.ComponentDHCP] = []probe.Step{{DHCP: &probe.Client{MAC: s.client, Servers: s.Model.DHCP}}}
	}
	if s.Infra.Spec.InfraComponents.Proxy.IsEnabled() {
		for _, t := range s.endpoints(VLAN, model.RoleAPI) {
			steps[v1alpha1.ComponentProxy] = append(steps[v1alpha1.ComponentProxy], probe.Step{TLS: &t})
		}
	}
	u := &use{}
	for _, r := range replaced {
		if len(steps[r.component]) > 0 {
			u.services = append(u.services, &service{component: r.component, name: r.service, steps: steps[r.component]})
		}
	}
	return u
}

// take adds the outcome of a request, whose step is an index of all steps of the services.
func (u *use) take(o *probe.Outcome) {
	u.lock.Lock()
	defer u.lock.Unlock()
	if u.began.IsZero() {
		u.began, u.now = o.Ended, o.Ended
		for _, s := range u.services {
			s.answered = o.Ended
		}
	}
	u.received = time.Now()
	if o.Ended.After(u.now) {
		u.now = o.Ended
	}
	index := o.Step
	for _, s := range u.services {
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

// silent returns a service that does not answer, nil if all do.
func (u *use) silent() *service {
	u.lock.Lock()
	defer u.lock.Unlock()
	for _, s := range u.services {
		if !s.used || u.now.Sub(s.answered) > quiet || time.Since(u.received) > stalled {
			return s
		}
	}
	return nil
}

// isSteady reports whether all services have answered for long enough to disrupt them. It is an error if one does not.
func (u *use) isSteady(context.Context) (bool, error) {
	silent := u.silent()
	u.lock.Lock()
	defer u.lock.Unlock()
	since := u.now.Sub(u.began)
	if silent != nil && since > unsettled {
		return false, fmt.Errorf("VMs do not get %s even before the disruption: %s", silent.name, cmp.Or(silent.failure, "no response"))
	}
	return silent == nil && since >= baseline, nil
}

// addGaps adds the longest time without each service to a result, which fails if one exceeds its limit.
func (u *use) addGaps(result *Result, while string, expected func(*service) gap) {
	for _, s := range u.services {
		longest := max(s.gap, u.now.Sub(s.answered))
		request := Request{Client: VLAN, Label: s.name + while, Took: metav1.Duration{Duration: longest.Round(100 * time.Millisecond)}}
		switch want := expected(s); {
		case longest > want.limit:
			request.Problem = fmt.Sprintf("none for %s, want at most %s, usually %s: %s", request.Took.Duration, want.limit,
				want.usual, cmp.Or(s.failure, "no response"))
			result.Status = output.Failed
		case longest > want.usual:
			request.Note = fmt.Sprintf("longer than the usual %s", want.usual)
		}
		result.Requests = append(result.Requests, request)
	}
}

// errEnded means that the client ended before the disruption did.
var errEnded = errors.New("the client ended early")

// disrupt runs a client on the VLAN that uses all services, in a pod that runs for at most limit. It calls disruption when all services
// have answered for some time. The context of the disruption ends with the client, with errEnded as the cause.
func (t *test) disrupt(ctx context.Context, u *use, limit time.Duration, disruption func(context.Context) error) (err error) {
	whole := ctx
	defer func() { err = errors.Join(err, t.cleanUp(whole)) }()
	if err := t.register(ctx, limit+podLeftover); err != nil {
		return err
	}
	var steps []probe.Step
	for _, s := range u.services {
		steps = append(steps, s.steps...)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)
	running.Go(func() {
		err := t.runClient(ctx, VLAN, steps, limit, func(o *probe.Outcome) bool { u.take(o); return false },
			"--interval="+useInterval.String(), "--timeout="+(limit-useMargin).String())
		if err == nil {
			err = errEnded
		}
		cancel(err)
	})
	if err := poll(ctx, u.isSteady); err != nil {
		return err
	}
	return disruption(ctx)
}

// poll calls done until it returns true or an error. If ctx ends, it returns the cause.
func poll(ctx context.Context, done wait.ConditionWithContextFunc) error {
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, done)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// replace deletes the pods of a component one after the other, while a client on the VLAN uses all services.
func (t *test) replace(ctx context.Context, component string, result *Result) error {
	if !slices.ContainsFunc(t.site.newUse().services, func(s *service) bool { return s.component == component }) {
		result.skip("the component is not enabled, or has nothing to test")
		return nil
	}
	pods, err := t.podsOf(ctx, component)
	if err != nil {
		return err
	}
	if len(pods) == 0 {
		return fmt.Errorf("component %s has no pod", component)
	}
	expected := func(s *service) gap {
		switch {
		case s.component == component && len(pods) == 1:
			return restarts[component]
		case s.component == component && component == v1alpha1.ComponentProxy:
			return move
		}
		return others
	}
	for i := range pods {
		pod := &pods[i]
		if !status.PodReady(pod) {
			return fmt.Errorf("Pod %s is not ready", pod.Name) //nolint:staticcheck // a kind begins with a capital
		}
		t.Progress("replacing Pod " + pod.Name)
		u, while := t.site.newUse(), " while Pod "+pod.Name+" is replaced"
		err := t.disrupt(ctx, u, podDeadline, func(ctx context.Context) error { return t.replacePod(ctx, u, pod, while, result) })
		if err != nil {
			return err
		}
		u.addGaps(result, while, expected)
	}
	return nil
}

// replacePod deletes a pod, and waits until the new one is ready and all services have answered for some time.
func (t *test) replacePod(ctx context.Context, u *use, pod *corev1.Pod, while string, result *Result) error {
	if err := t.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); err != nil {
		return fmt.Errorf("deleting Pod %s: %w", pod.Name, err)
	}
	unready, ready := "", time.Time{}
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		if why := t.unready(ctx, pod); ctx.Err() == nil {
			unready = why
		}
		if unready != "" || u.silent() != nil {
			ready = time.Time{}
		} else if ready.IsZero() {
			ready = time.Now()
		}
		return !ready.IsZero() && time.Since(ready) >= settle, nil
	})
	if errors.Is(err, errEnded) {
		result.fail("all services"+while, cmp.Or(unready, "the new pod is ready, but a service does not answer"))
		return nil
	}
	return err
}

// podsOf returns the pods of a component.
func (t *test) podsOf(ctx context.Context, component string) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	err := t.Client.List(ctx, list, client.InNamespace(t.site.Infra.Namespace), client.MatchingLabels(t.site.Labels(component)))
	if err != nil {
		return nil, fmt.Errorf("listing the pods of component %s: %w", component, err)
	}
	return list.Items, nil
}

// unready returns why the pod that replaces a deleted one, with the same name, is not ready; empty if it is.
func (t *test) unready(ctx context.Context, deleted *corev1.Pod) string {
	pod := &corev1.Pod{}
	switch err := t.Client.Get(ctx, client.ObjectKeyFromObject(deleted), pod); {
	case apierrors.IsNotFound(err):
		return "its controller has not created the new pod: see the Events of 'kubectl describe statefulset'"
	case err != nil:
		return "reading the new pod: " + err.Error()
	case pod.UID == deleted.UID:
		return "the pod has not ended"
	case !status.PodReady(pod):
		return "the new pod is not ready: " + status.UnreadyReason(pod)
	}
	return ""
}
