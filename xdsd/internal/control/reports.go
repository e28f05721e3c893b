package control

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/problem"
)

const (
	// maxReport limits the response of GET /problems.
	maxReport = 1 << 20
	// maxReportAge is how long the last report of a pod is used while no other can be read. It is shorter than vlanGrace, so
	// that a pod whose node has failed is not judged by it.
	maxReportAge = 25 * time.Second
	// minReadyTime is how long a ready pod may fail to report.
	minReadyTime = 45 * time.Second
)

// A podReport contains the reports of a pod's daemons.
type podReport struct {
	at       time.Time
	problems []problem.Problem
	vlan     *problem.VLAN // nil if unknown
	answers  []problem.Answer
	// known is false if no daemon of the pod serves /problems, as earlier versions.
	known bool
}

// readReport requests /problems from all daemons of a pod. The port "health" of CoreDNS does not serve it, and "state" does.
func (p *prober) readReport(ctx context.Context, pod *corev1.Pod) (podReport, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	all := podReport{at: time.Now()}
	for _, port := range []string{v1alpha1.PortHealth, "holder", "state"} {
		at, err := address(pod, port)
		if err != nil {
			continue // the pod lacks the daemon
		}
		report, err := p.requestProblems(ctx, at)
		if err != nil {
			return all, err
		}
		if report != nil {
			all.known, all.problems, all.answers = true, append(all.problems, report.Problems...), append(all.answers, report.Answers...)
			if all.vlan == nil {
				all.vlan = report.VLAN
			}
		}
	}
	for i := range all.problems {
		if all.problems[i].Object == (model.Ref{}) {
			all.problems[i].Object = podRef(pod)
		}
	}
	return all, nil
}

func podRef(pod *corev1.Pod) model.Ref {
	return model.Ref{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
}

// requestProblems requests /problems. It returns nil if the daemon does not serve it.
func (p *prober) requestProblems(ctx context.Context, at string) (*problem.Report, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/problems", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("requesting /problems from %s: %w", at, err)
	}
	response, err := p.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("requesting /problems: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	switch response.StatusCode {
	case http.StatusNotFound:
		return nil, nil //nolint:nilnil // documented
	case http.StatusOK:
	default:
		return nil, fmt.Errorf("requesting /problems from %s: %s", at, response.Status)
	}
	var report problem.Report
	if err := json.NewDecoder(io.LimitReader(response.Body, maxReport)).Decode(&report); err != nil {
		return nil, fmt.Errorf("reading /problems from %s: %w", at, err)
	}
	return &report, nil
}

// siteState is what control remembers of an Infra or ProxyServer: since when it has problems, and the last reports by pod.
type siteState struct {
	log     problem.Log
	reports map[string]podReport
}

// observation combines the reports of an Infra's or ProxyServer's pods.
type observation struct {
	// problems are the problems of the pods and of the VLAN, in the order of problem.Kinds.
	problems []problem.Problem
	// vlan reports whether a pod has a view of the VLAN, and components contains the components whose pods report.
	vlan       bool
	components map[string]bool
}

// observe reads the reports of the pods of an object, and evaluates its VLAN. f.pods must be empty. It adds problems
// that the caller has found.
func (s *Problems) observe(ctx context.Context, probe *prober, pods []corev1.Pod, f *vlanFacts, found []problem.Problem) *observation {
	reports, failures := make([]podReport, len(pods)), make([]error, len(pods))
	var group sync.WaitGroup
	for i := range pods {
		group.Go(func() { reports[i], failures[i] = probe.readReport(ctx, &pods[i]) })
	}
	group.Wait()
	return s.observeReports(pods, reports, failures, f, found, time.Now())
}

// observeReports is observe with the reports of pods, or the errors of reading them.
func (s *Problems) observeReports(
	pods []corev1.Pod, reports []podReport, failures []error, f *vlanFacts, found []problem.Problem, now time.Time,
) *observation {
	o, state := &observation{components: map[string]bool{}, problems: found}, s.observed.get(f.object.String())
	last := map[string]podReport{}
	for i := range pods {
		pod, report := &pods[i], reports[i]
		if err := failures[i]; err != nil {
			if report = state.reports[pod.Name]; now.Sub(report.at) > maxReportAge {
				report = podReport{}
			}
			if unreadyReason(pod) == "" && readySince(pod, now) >= minReadyTime {
				o.problems = append(o.problems, problem.Warned(problem.PodNotAnswering, podRef(pod), "control cannot read the problems of the ready pod").
					WithEvidence(err.Error()))
			}
		}
		last[pod.Name] = report
		o.problems = append(o.problems, report.problems...)
		o.vlan = o.vlan || report.vlan != nil
		o.components[pod.Labels[v1alpha1.LabelComponent]] = o.components[pod.Labels[v1alpha1.LabelComponent]] || report.known
		interfaces, err := cni.PodInterfaces(pod)
		if err != nil {
			interfaces = nil // Multus has not attached the pod yet
		}
		f.pods = append(f.pods, &vlanPod{podRef(pod), pod.Labels[v1alpha1.LabelComponent], readySince(pod, now) >= vlanGrace,
			interfaces, report.vlan, report.answers})
	}
	slices.SortFunc(f.pods, func(a, b *vlanPod) int { return strings.Compare(a.ref.Name, b.ref.Name) })
	o.problems = lasting(now, state.log.Update(now, slices.Concat(o.problems, vlanProblems(f), f.heldTwice())))
	state.reports = last
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sites == nil {
		s.sites = map[string][]problem.Problem{}
	}
	s.sites[f.object.String()] = slices.Clone(o.problems)
	slices.SortStableFunc(o.problems, problem.CompareCauses)
	return o
}

// readySince returns the time since which the pod has been ready, or unready.
func readySince(pod *corev1.Pod, now time.Time) time.Duration {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return now.Sub(c.LastTransitionTime.Time)
		}
	}
	return 0
}
