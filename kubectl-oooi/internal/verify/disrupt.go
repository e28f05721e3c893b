package verify

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/internal/testclient"
	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// Limits of the time for which VMs do without a service while a pod is replaced.
const (
	// restartLimit is that of a service whose only pod is replaced: a new one has to start.
	restartLimit = 30 * time.Second
	// moveLimit is that of the proxy if another replica claims the floating address.
	moveLimit = 10 * time.Second
	// otherLimit is that of services that the pod does not provide, or of which another replica answers.
	otherLimit = 2 * time.Second
)

const (
	// baseline is how long all services must answer before a pod is deleted, and settle how long afterwards.
	baseline = 2 * time.Second
	settle   = 3 * time.Second
	// unsettled is the time after which a service that does not answer ends the scenario before it starts.
	unsettled = 15 * time.Second
	// watchTime is how long the client runs at most, less than its pod may.
	watchTime = doctor.ProbeDeadline - 15*time.Second
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
			Name: "replace-" + r.component, Group: GroupDisruption, Clients: []Client{VLAN}, disrupts: r.component,
			Title:  fmt.Sprintf("VMs get %s soon again when a pod is deleted", r.service),
			Remedy: "see why the pod starts late with 'kubectl describe pod', and docs/how-to/add-replicas.md for a second replica",
		})
	}
	return list
}

// A watch is a service that VMs use while pods are replaced.
type watch struct {
	component, service string
	probe.Watch
}

// watches returns the services of the site that have an address on the VLAN.
func (s *site) watches() []watch {
	steps := map[string][]probe.Step{}
	if s.noDNS(VLAN) == "" {
		for _, server := range s.servers(VLAN) {
			steps[v1alpha1.ComponentDNS] = append(steps[v1alpha1.ComponentDNS], probe.Step{DNS: &probe.Query{Server: server, Network: "udp", Name: s.names(VLAN)[0].Name, Type: "A"}})
		}
	}
	if s.noDHCP() == "" {
		own, _ := s.DHCPServers()
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

// disrupt deletes the pods of a component one after the other, while a client on the VLAN uses all services.
func (r *Runner) disrupt(ctx context.Context, s *site, scenario *Scenario) Result {
	result := Result{Name: scenario.Name, Group: scenario.Group, Title: scenario.Title, Status: doctor.Passed}
	watches := s.watches()
	if !slices.ContainsFunc(watches, func(w watch) bool { return w.component == scenario.disrupts }) {
		result.Status, result.Reason = doctor.Skipped, "the component is not enabled, or has nothing to test"
		return result
	}
	pods, err := r.podsOf(ctx, s, scenario.disrupts)
	if err == nil && len(pods) == 0 {
		err = fmt.Errorf("component %s has no pod", scenario.disrupts)
	}
	for i := range pods {
		if err != nil {
			break
		}
		r.Progress("replacing Pod " + pods[i].Name)
		d := &disruption{runner: r, watches: watches, pod: &pods[i], last: make([]probe.Watched, len(watches))}
		if err = d.run(ctx, s); err != nil {
			break
		}
		if d.ready.IsZero() {
			result.Requests = append(result.Requests, Request{
				Client: VLAN, Label: "all services while Pod " + pods[i].Name + " is replaced", Took: metav1.Duration{Duration: watchTime},
				Problem: "the new pod is not ready, or a service does not answer",
			})
			result.Status, result.Remedy = doctor.Failed, scenario.Remedy
		}
		for at, w := range watches {
			limit := otherLimit
			switch {
			case w.component != scenario.disrupts:
			case len(pods) == 1:
				limit = restartLimit
			case w.component == v1alpha1.ComponentProxy:
				limit = moveLimit
			}
			request := Request{
				Client: VLAN, Label: w.service + " while Pod " + pods[i].Name + " is replaced",
				Took: metav1.Duration{Duration: d.last[at].Gap.Round(100 * time.Millisecond)},
			}
			if d.last[at].Gap > limit {
				request.Problem = fmt.Sprintf("none for %s, want at most %s: %s", request.Took.Duration, limit, cmp.Or(d.last[at].Error, "no response"))
				result.Status, result.Remedy = doctor.Failed, scenario.Remedy
			}
			result.Requests = append(result.Requests, request)
		}
	}
	if err != nil {
		result.Status, result.Reason = doctor.Broken, err.Error()
	}
	return result
}

// podsOf returns the pods of a component.
func (r *Runner) podsOf(ctx context.Context, s *site, component string) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	err := r.Prober.Client.List(ctx, list, client.InNamespace(s.Infra.Namespace), client.MatchingLabels{v1alpha1.LabelInfra: s.Infra.Name, v1alpha1.LabelComponent: component})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of component %s: %w", component, err)
	}
	return list.Items, nil
}

// A disruption is the replacement of one pod.
type disruption struct {
	runner  *Runner
	watches []watch
	pod     *corev1.Pod
	last    []probe.Watched // by watch

	started, deleted, ready time.Time // zero until then
}

// run runs a client on the VLAN, deletes the pod when all services answer, and returns when they do so again.
func (d *disruption) run(ctx context.Context, s *site) (err error) {
	if !status.PodReady(d.pod) {
		return fmt.Errorf("Pod %s is not ready", d.pod.Name) //nolint:staticcheck // a kind begins with a capital
	}
	registered, err := d.runner.register(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.runner.unregister(ctx, s, registered)) }()
	var all []probe.Watch
	for _, w := range d.watches {
		all = append(all, w.Watch)
	}
	argument, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("encoding the services to watch: %w", err)
	}
	_, err = d.runner.Prober.Run(ctx, doctor.ClientSite(d.runner.Facts, d.runner.Infra), &doctor.Pod{
		Component: testclient.Component, OnVLAN: true,
		Arguments: []string{"--watch=" + string(argument), "--timeout=" + watchTime.String(), "--device=" + render.ProbeDevice},
		Follow:    func(line []byte) (bool, error) { return d.follow(ctx, line) },
	})
	if !d.deleted.IsZero() && errors.Is(err, doctor.ErrEnded) {
		return nil
	}
	return err //nolint:wrapcheck // error of an internal package
}

// follow takes a line of the client.
func (d *disruption) follow(ctx context.Context, line []byte) (done bool, err error) {
	one, now := probe.Watched{}, time.Now()
	if err := json.Unmarshal(line, &one); err != nil || one.Watch < 0 || one.Watch >= len(d.last) {
		return false, fmt.Errorf("decoding the output of the client: %w: %.200s", err, line)
	}
	d.last[one.Watch] = one
	if one.Watch != len(d.last)-1 {
		return false, nil // the client reports all services at a time
	}
	if d.started.IsZero() {
		d.started = now
	}
	silent := slices.IndexFunc(d.last, func(w probe.Watched) bool { return w.Attempts == 0 || w.Quiet > quiet })
	switch {
	case !d.deleted.IsZero():
		if silent >= 0 || !d.ready.IsZero() && !d.isReplaced(ctx) {
			d.ready = time.Time{}
		} else if d.ready.IsZero() && d.isReplaced(ctx) {
			d.ready = now
		}
		return !d.ready.IsZero() && now.Sub(d.ready) >= settle, nil
	case silent >= 0 && now.Sub(d.started) > unsettled:
		return false, fmt.Errorf("VMs do not get %s even before Pod %s is deleted: %s", d.watches[silent].service, d.pod.Name, cmp.Or(d.last[silent].Error, "no response"))
	case silent >= 0 || now.Sub(d.started) < baseline:
		return false, nil
	}
	if err := d.runner.Prober.Client.Delete(ctx, d.pod, client.Preconditions{UID: &d.pod.UID}); err != nil {
		return false, fmt.Errorf("deleting Pod %s: %w", d.pod.Name, err)
	}
	d.deleted = now
	return false, nil
}

// isReplaced reports whether another pod of the same name is ready.
func (d *disruption) isReplaced(ctx context.Context) bool {
	pod := &corev1.Pod{}
	err := d.runner.Prober.Client.Get(ctx, client.ObjectKeyFromObject(d.pod), pod)
	return err == nil && pod.UID != d.pod.UID && status.PodReady(pod)
}
