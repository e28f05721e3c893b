package verify

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
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
	// watchDeadline is how long the pod of the client may run, and watchMargin how much earlier the client ends.
	watchDeadline = 90 * time.Second
	watchMargin   = 15 * time.Second
	// quiet is the longest time between two responses of a service that works.
	quiet = time.Second
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
			run: func(ctx context.Context, runner *Runner, s *subject, result *Result) error {
				return runner.replace(ctx, s, r.component, result)
			},
		})
	}
	return append(list, Scenario{
		Name: "api-server-outage", Group: GroupDisruption, Clients: []Client{VLAN},
		Title:  "VMs keep addresses, names and connections while our pods cannot reach the API server",
		Remedy: "see the logs of the pods, and docs/explanation/availability.md for what continues without the API server",
		run: func(ctx context.Context, runner *Runner, s *subject, result *Result) error {
			return runner.outage(ctx, s, result)
		},
	})
}

// A watch is a service that VMs use while pods are replaced.
type watch struct {
	component, service string
	probe.Watch
}

// watches returns the services of the site that have an address on the VLAN.
func (s *subject) watches() []watch {
	steps := map[string][]probe.Step{}
	if s.noDNS(VLAN) == "" {
		for _, server := range s.servers(VLAN) {
			steps[v1alpha1.ComponentDNS] = append(steps[v1alpha1.ComponentDNS],
				probe.Step{DNS: &probe.Query{Server: server, Network: "udp", Name: s.names(VLAN)[0].Name, Type: "A"}})
		}
	}
	if s.noDHCP() == "" {
		own, _ := s.dhcpServers()
		steps[v1alpha1.ComponentDHCP] = []probe.Step{{DHCP: &probe.Client{MAC: s.client, Servers: own}}}
	}
	if s.Infra.Spec.InfraComponents.Proxy.IsEnabled() {
		for _, t := range s.endpoints(VLAN, model.RoleAPI) {
			steps[v1alpha1.ComponentProxy] = append(steps[v1alpha1.ComponentProxy], probe.Step{TLS: &t})
		}
	}
	var list []watch
	for _, r := range replaced {
		if len(steps[r.component]) > 0 {
			list = append(list, watch{r.component, r.service, probe.Watch{Steps: steps[r.component]}})
		}
	}
	return list
}

// runScenario runs a scenario that is more than requests.
func (r *Runner) runScenario(ctx context.Context, s *subject, scenario *Scenario) Result {
	result := Result{Name: scenario.Name, Group: scenario.Group, Title: scenario.Title, Status: output.Passed}
	if err := scenario.run(ctx, r, s, &result); err != nil {
		if errors.Is(err, errDeleted) {
			err = errDeleted // the other errors are its consequences
		}
		result.Status, result.Reason = output.Broken, err.Error()
	}
	if result.Status == output.Failed {
		result.Remedy = scenario.Remedy
	}
	return result
}

// fail adds a request that failed.
func (r *Result) fail(label, problem string) {
	r.Status = output.Failed
	r.Requests = append(r.Requests, Request{Client: VLAN, Label: label, Problem: problem})
}

// replace deletes the pods of a component one after the other, while a client on the VLAN uses all services.
func (r *Runner) replace(ctx context.Context, s *subject, component string, result *Result) error {
	watches := s.watches()
	if !slices.ContainsFunc(watches, func(w watch) bool { return w.component == component }) {
		result.Status, result.Reason = output.Skipped, "the component is not enabled, or has nothing to test"
		return nil
	}
	pods, err := r.podsOf(ctx, s, component)
	if err != nil {
		return err
	}
	if len(pods) == 0 {
		return fmt.Errorf("component %s has no pod", component)
	}
	for i := range pods {
		pod := &pods[i]
		if !status.PodReady(pod) {
			return fmt.Errorf("Pod %s is not ready", pod.Name) //nolint:staticcheck // a kind begins with a capital
		}
		r.Progress("replacing Pod " + pod.Name)
		d := &disruption{use: newUse(r, s, watches), pod: pod}
		if err := d.use.run(ctx, d.follow); err != nil {
			return err
		}
		if d.deleted.IsZero() {
			return errEnded
		}
		while := " while Pod " + pod.Name + " is replaced"
		if d.ready.IsZero() {
			result.fail("all services"+while, cmp.Or(d.state, "the new pod is ready, but a service does not answer"))
		}
		d.use.addGaps(result, while, func(w *watch) gap {
			switch {
			case w.component != component:
				return others
			case len(pods) == 1:
				return restarts[component]
			case component == v1alpha1.ComponentProxy:
				return move
			}
			return others
		})
	}
	return nil
}

// podsOf returns the pods of a component.
func (r *Runner) podsOf(ctx context.Context, s *subject, component string) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	err := r.Prober.Client.List(ctx, list, client.InNamespace(s.Infra.Namespace),
		client.MatchingLabels{v1alpha1.LabelInfra: s.Infra.Name, v1alpha1.LabelComponent: component})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of component %s: %w", component, err)
	}
	return list.Items, nil
}

// errEnded means that the client ended before it was of use.
var errEnded = errors.New("the client ended early")

// A use is the use of all services by a client on the VLAN during a disruption.
type use struct {
	runner  *Runner
	site    *subject
	watches []watch
	last    []probe.Watched // by watch
	started time.Time       // zero until the first report
	// deadline is how long the pod of the client may run.
	deadline time.Duration
}

func newUse(r *Runner, s *subject, watches []watch) *use {
	return &use{runner: r, site: s, watches: watches, last: make([]probe.Watched, len(watches)), deadline: watchDeadline}
}

// run runs the client and calls each after each of its reports, until that returns true or the client ends.
func (u *use) run(ctx context.Context, each func(ctx context.Context, job *batchv1.Job) (done bool, err error)) (err error) {
	var all []probe.Watch
	for _, w := range u.watches {
		all = append(all, w.Watch)
	}
	argument, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("encoding the services to watch: %w", err)
	}
	pod := &clientPod{
		onVLAN: true, limit: u.deadline,
		arguments: []string{"--watch=" + string(argument), "--timeout=" + (u.deadline - watchMargin).String(), "--device=" + render.ProbeDevice},
		follow: func(job *batchv1.Job, line []byte) (bool, error) {
			if complete, err := u.take(line); !complete || err != nil {
				return false, err
			}
			return each(ctx, job)
		},
	}
	registered, err := u.runner.register(ctx, u.site, pod.leftover())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, u.runner.unregister(ctx, u.site, registered)) }()
	_, err = u.runner.Prober.run(ctx, u.site, pod)
	return err
}

// take takes a line of the client, and reports whether it completes a report about all services.
func (u *use) take(line []byte) (complete bool, err error) {
	one := probe.Watched{}
	if err := json.Unmarshal(line, &one); err != nil || one.Watch < 0 || one.Watch >= len(u.last) {
		return false, fmt.Errorf("decoding the output of the client: %w: %.200s", err, line)
	}
	u.last[one.Watch] = one
	complete = one.Watch == len(u.last)-1 // the client reports all services at a time
	if complete && u.started.IsZero() {
		u.started = time.Now()
	}
	return complete, nil
}

// silent returns the index of a service that does not answer, -1 if all do.
func (u *use) silent() int {
	return slices.IndexFunc(u.last, func(w probe.Watched) bool { return w.Attempts == 0 || w.Quiet > quiet })
}

// steady reports whether all services have answered for long enough to disrupt them. It is an error if one does not.
func (u *use) steady() (bool, error) {
	silent, since := u.silent(), time.Since(u.started)
	if silent >= 0 && since > unsettled {
		return false, fmt.Errorf("VMs do not get %s even before the disruption: %s", u.watches[silent].service, cmp.Or(u.last[silent].Error, "no response"))
	}
	return silent < 0 && since >= baseline, nil
}

// addGaps adds the longest time without each service to a result, which fails if one exceeds its limit.
func (u *use) addGaps(result *Result, while string, expected func(*watch) gap) {
	for i := range u.watches {
		w, last := &u.watches[i], &u.last[i]
		request := Request{Client: VLAN, Label: w.service + while, Took: metav1.Duration{Duration: last.Gap.Round(100 * time.Millisecond)}}
		switch want := expected(w); {
		case last.Gap > want.limit:
			request.Problem = fmt.Sprintf("none for %s, want at most %s, usually %s: %s", request.Took.Duration, want.limit,
				want.usual, cmp.Or(last.Error, "no response"))
			result.Status = output.Failed
		case last.Gap > want.usual:
			request.Note = fmt.Sprintf("longer than the usual %s", want.usual)
		}
		result.Requests = append(result.Requests, request)
	}
}

// A disruption is the replacement of one pod.
type disruption struct {
	use *use
	pod *corev1.Pod

	deleted, ready time.Time // zero until then
	state          string    // why the new pod is not ready; empty if it is, or if the pod has not been deleted
}

// follow deletes the pod when all services answer, and returns true when they do so again.
func (d *disruption) follow(ctx context.Context, _ *batchv1.Job) (done bool, err error) {
	now := time.Now()
	if d.deleted.IsZero() {
		if steady, err := d.use.steady(); !steady || err != nil {
			return false, err
		}
		if err := d.use.runner.Prober.Client.Delete(ctx, d.pod, client.Preconditions{UID: &d.pod.UID}); err != nil {
			return false, fmt.Errorf("deleting Pod %s: %w", d.pod.Name, err)
		}
		d.deleted = now
		return false, nil
	}
	d.observe(ctx)
	switch {
	case d.state != "" || d.use.silent() >= 0:
		d.ready = time.Time{}
	case d.ready.IsZero():
		d.ready = now
	}
	return !d.ready.IsZero() && now.Sub(d.ready) >= settle, nil
}

// observe sets the state of the new pod. Another pod of the same name replaces the deleted one.
func (d *disruption) observe(ctx context.Context) {
	pod := &corev1.Pod{}
	switch err := d.use.runner.Prober.Client.Get(ctx, client.ObjectKeyFromObject(d.pod), pod); {
	case apierrors.IsNotFound(err):
		d.state = "its controller has not created the new pod: see the Events of 'kubectl describe statefulset'"
	case err != nil && ctx.Err() != nil: // the last state remains
	case err != nil:
		d.state = "reading the new pod: " + err.Error()
	case pod.UID == d.pod.UID:
		d.state = "the pod has not ended"
	case !status.PodReady(pod):
		d.state = "the new pod is not ready: " + status.UnreadyReason(pod)
	default:
		d.state = ""
	}
}
