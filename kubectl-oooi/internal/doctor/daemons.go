package doctor

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// What daemons say of themselves, as far as checks read it.
type (
	// watched is one resource that a daemon follows.
	watched struct {
		Resource  string `json:"resource"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		Objects   int    `json:"objects"`
		Connected bool   `json:"connected"`
		Missing   bool   `json:"missing"`
		Error     string `json:"error"`
	}

	// followed is all that a daemon follows, and since when it knows nothing newer.
	followed struct {
		At        time.Time `json:"at"`
		Synced    bool      `json:"synced"`
		Since     time.Time `json:"since"`
		Resources []watched `json:"resources"`
	}
)

// stale is how long a daemon may go without following the API server: a watch that ends is begun
// anew at once.
const stale = 30 * time.Second

// notFollowing is what a daemon says that does not follow the API server; nil of one that does.
func notFollowing(pod *corev1.Pod, daemon, container string, synced bool, age time.Duration, watches []watched) []Finding {
	var evidence []string
	for _, w := range watches {
		if !w.Connected && !w.Missing && w.Error != "" {
			where := strings.Trim(w.Namespace+"/"+w.Name, "/")
			evidence = append(evidence, strings.Trim(fmt.Sprintf("%s in %s: %s", w.Resource, where, w.Error), " "))
		}
	}
	remedy := fmt.Sprintf("see its log: kubectl -n %s logs %s -c %s; can the pod reach the API server?", pod.Namespace, pod.Name, container)
	var f Finding
	switch {
	case !synced:
		f = warned(podRef(pod), remedy, "%s has not reached the API server since it started, and uses its snapshot file", daemon)
	case age > stale:
		f = warned(podRef(pod), remedy, "%s does not follow the API server: its data is %s old", daemon, age.Round(time.Second))
	case len(evidence) > 0:
		f = warned(podRef(pod), remedy, "%s does not follow all objects", daemon)
	default:
		return nil
	}
	return []Finding{f.because(evidence...)}
}

// following is the check's, of a store.
func (f *followed) following(pod *corev1.Pod, daemon, container string) []Finding {
	age := time.Duration(0)
	if !f.Since.IsZero() {
		age = f.At.Sub(f.Since)
	}
	return notFollowing(pod, daemon, container, f.Synced, age, f.Resources)
}

// mute are the pods that do not answer when they are asked about themselves.
func mute(where Where, pages ...page) func(*Site) []Finding {
	return func(s *Site) []Finding {
		var findings []Finding
		for _, p := range pages {
			for _, namespace := range s.namespaces[where] {
				for _, pod := range s.facts.askable(p, namespace, s.Infra.Name) {
					a := s.facts.answers[question{namespace, pod.Name, p}]
					if a != nil && a.Silent != "" {
						findings = append(findings, warned(podRef(pod), fmt.Sprintf("if its log shows no error (kubectl -n %s logs %s), check for a NetworkPolicy that does not admit the API server's nodes", namespace, pod.Name),
							"%s does not answer, although the pod is ready: %s", p.daemon(), a.Silent).because(fmt.Sprintf("requested http://%s:%d%s through the API server", pod.Name, p.port, p.path)))
					}
				}
			}
		}
		return findings
	}
}

// asks says that there is no daemon to ask; empty where there is.
func asks(p page, where Where) func(*Site) string {
	return func(s *Site) string {
		if where == AtInfra {
			if why := disabled(p.component)(s); why != "" {
				return why
			}
		}
		if len(s.askable(p, where)) == 0 {
			return p.daemon() + " has no pod with an address in the pod network"
		}
		return ""
	}
}

// askable are the Infra's pods that serve a page, or control's.
func (s *Site) askable(p page, where Where) []*corev1.Pod {
	var list []*corev1.Pod
	for _, namespace := range s.namespaces[where] {
		list = append(list, s.facts.askable(p, namespace, s.Infra.Name)...)
	}
	return list
}

func controlChecks() []Check {
	return []Check{
		{
			Code: "OOOI-CTL-003", Title: "control's state page answers", After: []string{"OOOI-CTL-001"}, Reads: says(AtSystem, controlState), Applies: asks(controlState, AtSystem),
			Run: mute(AtSystem, controlState),
		},
		{
			Code: "OOOI-CTL-004", Title: "control follows the API server, and one of its replicas leads", After: []string{"OOOI-CTL-001", "OOOI-ACC-001"}, Reads: says(AtSystem, controlState), Applies: asks(controlState, AtSystem),
			Run: controlLags,
		},
	}
}

// controlLags is what is wrong with what the replicas of control see, and with who leads.
func controlLags(s *Site) []Finding {
	type state struct {
		Leads bool     `json:"leads"`
		Store followed `json:"store"`
	}
	var findings []Finding
	var leaders []string
	replicas := states[state](s, controlState, AtSystem)
	for _, r := range replicas {
		findings = append(findings, r.is.Store.following(r.pod, "control", "control")...)
		if r.is.Leads {
			leaders = append(leaders, r.pod.Name)
		}
	}
	if len(leaders) == 0 && len(replicas) > 0 && len(s.silent) == 0 {
		findings = append(findings, failed(podRef(replicas[0].pod), "see the logs of its pods and Lease oooi-control; no replica can lead without the API server",
			"none of %d replicas of control leads: status is not written, and the apps address is not reconciled", len(replicas)))
	}
	return findings
}

func dnsDaemonChecks() []Check {
	applies := asks(dnsMetrics, AtInfra)
	return []Check{
		{
			Code: "OOOI-DNS-005", Title: "DNS's metrics page answers", After: []string{"OOOI-POD-002"}, Reads: says(AtInfra, dnsMetrics), Applies: applies,
			Run: mute(AtInfra, dnsMetrics),
		},
		{
			Code: "OOOI-DNS-006", Title: "DNS follows the API server", After: []string{"OOOI-POD-002", "OOOI-ACC-001"}, Reads: says(AtInfra, dnsMetrics), Applies: applies,
			Run: func(s *Site) []Finding {
				var findings []Finding
				for _, d := range s.metrics(dnsMetrics) {
					synced, age := true, 0.0
					d.is.each("coredns_oooi_synced", func(_ map[string]string, value float64) { synced = synced && value == 1 })
					d.is.each("coredns_oooi_snapshot_age_seconds", func(_ map[string]string, value float64) { age = max(age, value) })
					findings = append(findings, notFollowing(d.pod, "coredns", "coredns", synced, time.Duration(age*float64(time.Second)), nil)...)
				}
				return findings
			},
		},
	}
}
