package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/status"
)

func init() {
	register(
		Check{
			Code: "OOOI-CTL-001", Title: "control runs", Component: componentControl, After: []string{"OOOI-API-001", "OOOI-NODE-001", "OOOI-NODE-003", "OOOI-NODE-004"}, Reads: slices.Concat(in(AtSystem, deployments, pods), logReads(AtSystem)),
			Run: checkControl,
		},
		Check{
			Code: "OOOI-CTL-002", Title: "control has reconciled the current generation of the Infra", Component: componentControl, After: []string{"OOOI-API-001", "OOOI-API-004", "OOOI-API-005", "OOOI-CTL-001", "OOOI-CTL-005", "OOOI-NET-006"}, Reads: in(AtInfra, infras),
			Run: func(s *Site) []Finding {
				if s.Infra.Status.ObservedGeneration == s.Infra.Generation {
					return nil
				}
				return []Finding{failed(s.ref(), "see control's log: kubectl -n "+render.SystemNamespace+" logs deployment/"+render.ControlName,
					"the status of the Infra is for generation %d, but the current generation is %d", s.Infra.Status.ObservedGeneration, s.Infra.Generation)}
			},
		},
		Check{
			Code: "OOOI-CTL-003", Title: "control's state page answers", Component: componentControl, After: []string{"OOOI-CTL-001", "OOOI-NET-007", "OOOI-NODE-003", "OOOI-SVC-003"}, Reads: pagesIn(AtSystem, controlState), NotApplicable: noPods(controlState, AtSystem),
			Run: checkPages(AtSystem, controlState),
		},
		Check{
			Code: "OOOI-CTL-004", Title: "control follows the API server, and one of its replicas leads", Component: componentControl, After: []string{"OOOI-API-003", "OOOI-API-004", "OOOI-API-005", "OOOI-CTL-001", "OOOI-NET-006", "OOOI-NODE-003", "OOOI-ACC-001", "OOOI-ACC-002"},
			Reads: slices.Concat(in(AtSystem, leaseObjects), pagesIn(AtSystem, controlState), optional(in(Everywhere, webhookKinds...))), NotApplicable: noPods(controlState, AtSystem),
			Run: checkControlState,
		},
		Check{
			Code: "OOOI-CTL-005", Title: "the API server admits the statuses that control writes", Component: componentControl, After: []string{"OOOI-API-004", "OOOI-API-005", "OOOI-CTL-001", "OOOI-NODE-003"},
			Reads: slices.Concat(pagesIn(AtSystem, controlState), optional(in(Everywhere, webhookKinds...))), NotApplicable: noPods(controlState, AtSystem),
			Run: checkControlStatuses,
		},
	)
}

func checkControl(s *Site) []Finding {
	for _, d := range all[appsv1.Deployment](s, deployments, AtSystem) {
		if d.Name != render.ControlName {
			continue
		}
		if d.Status.AvailableReplicas > 0 {
			return nil
		}
		ref := model.Ref{Kind: deployments.Kind, Namespace: d.Namespace, Name: d.Name}
		f := failed(ref, fmt.Sprintf("see its pods: kubectl -n %s describe pods", d.Namespace), "no replica of control is available: the status of Infras is outdated, and the apps address is not reconciled")
		for _, p := range all[corev1.Pod](s, pods, AtSystem) {
			if why := status.UnreadyReason(p); why != "" {
				crashed := s.unreadyFinding(p, why)
				f = f.because(p.Name + ": " + crashed.Message).because(crashed.Evidence...)
			}
		}
		return []Finding{f}
	}
	return []Finding{failed(model.Ref{Kind: deployments.Kind, Namespace: render.SystemNamespace, Name: render.ControlName}, "run 'kubectl oooi setup -f FILE' again to apply it", "the Deployment does not exist")}
}

// controlReport is the part of a state page of control that checks read.
type controlReport struct {
	Leads bool `json:"leads"`
	// Election is the time and the error of the last request for the Lease, empty if it succeeded.
	Election string      `json:"election"`
	Store    storeReport `json:"store"`
	// Services are the cluster IPs of proxies that accept no connections of the replica.
	Services []struct {
		Infra   string         `json:"infra"`
		Address netip.AddrPort `json:"address"`
		Error   string         `json:"error"`
		Since   time.Time      `json:"since"`
	} `json:"services"`
	// StatusFailures are the statuses that could not be written, with the error and the time of the last attempt.
	StatusFailures []struct {
		Kind      string    `json:"kind"`
		Namespace string    `json:"namespace"`
		Name      string    `json:"name"`
		At        time.Time `json:"at"`
		Error     string    `json:"error"`
	} `json:"statusFailures"`
}

// foreignHolder returns the holder of control's Lease if it is not the name of a pod of control, which a replica uses;
// empty otherwise. The Lease of a pod that no longer exists expires after seconds.
func (s *Site) foreignHolder() string {
	for _, l := range all[coordinationv1.Lease](s, leaseObjects, AtSystem) {
		if l.Name != render.ControlName || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" {
			continue
		}
		if holder := *l.Spec.HolderIdentity; !strings.HasPrefix(holder, render.ControlName+"-") {
			return holder
		}
	}
	return ""
}

// checkControlState finds replicas of control that do not follow the API server, and a control without a
// leader.
func checkControlState(s *Site) []Finding {
	var findings []Finding
	var leaders []string
	replicas := states[controlReport](s, controlState, AtSystem)
	for _, r := range replicas {
		findings = append(findings, r.value.Store.staleFindings(r.pod, "control", "control")...)
		if r.value.Leads {
			leaders = append(leaders, r.pod.Name)
		}
	}
	if len(leaders) == 0 && len(replicas) > 0 && len(s.unanswered) == 0 {
		f := failed(podRef(replicas[0].pod), "see the logs of control's pods, and Lease oooi-system/oooi-control; no replica can lead without the API server",
			"none of %d replicas of control leads: no status is written, and the apps address is not reconciled", len(replicas))
		for _, r := range replicas {
			if r.value.Election != "" {
				f = f.because("Pod " + r.pod.Name + ": Lease oooi-system/oooi-control: " + r.value.Election)
				if by, remedy := s.rejection(render.SystemNamespace, r.value.Election); by != "" && f.Remedy != remedy {
					f.Message, f.Remedy = f.Message+"; requests for Leases are rejected: "+by, remedy
				}
			}
		}
		if other := s.foreignHolder(); other != "" {
			f.Message += fmt.Sprintf("; %q, which is no replica, holds Lease %s/%s", other, render.SystemNamespace, render.ControlName)
			f.Remedy = fmt.Sprintf("find out who wrote the Lease (kubectl -n %[1]s get lease %[2]s -o yaml --show-managed-fields), and delete it: kubectl -n %[1]s delete lease %[2]s", render.SystemNamespace, render.ControlName)
		}
		findings = append(findings, f)
	}
	return findings
}

// checkControlStatuses finds statuses of the Infra and its ProxyServers that control could not write because of admission.
// Other errors have checks of their own.
func checkControlStatuses(s *Site) []Finding {
	names := []string{s.Infra.Name}
	for _, p := range s.proxyModels() {
		names = append(names, p.Name)
	}
	var findings []Finding
	for _, r := range states[controlReport](s, controlState, AtSystem) {
		for _, f := range r.value.StatusFailures {
			by, remedy := s.rejection(f.Namespace, f.Error)
			if f.Namespace != s.Infra.Namespace || !slices.Contains(names, f.Name) || by == "" {
				continue
			}
			ref := model.Ref{Kind: f.Kind, Namespace: f.Namespace, Name: f.Name}
			findings = append(findings, failed(ref, remedy, "control cannot write the status, which is outdated: requests are rejected: %s", by).because(formatTime(f.At)+": "+f.Error))
		}
	}
	return findings
}
