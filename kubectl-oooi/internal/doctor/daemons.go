package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// Parts of the daemons' state pages that checks read.
type (
	// watchReport is the state of one watch of a daemon.
	watchReport struct {
		Resource  string `json:"resource"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		Connected bool   `json:"connected"`
		Missing   bool   `json:"missing"`
		Error     string `json:"error"`
		// Kept are the objects that disappeared from the API server and stay in use; nil for none.
		Kept *keptReport `json:"kept"`
	}

	keptReport struct {
		Objects int       `json:"objects"`
		Names   []string  `json:"names"`
		Until   time.Time `json:"until"` // zero: until they appear again
	}

	// storeReport is the state of all watches of a daemon. Since is the time from which its data is outdated,
	// zero if it is current.
	storeReport struct {
		At     time.Time `json:"at"`
		Synced bool      `json:"synced"`
		Since  time.Time `json:"since"`
		// SnapshotFailure is the error of the last write of the snapshot file, empty unless it failed.
		SnapshotFailure string        `json:"snapshotFailure"`
		Resources       []watchReport `json:"resources"`
	}
)

// maxStaleness is how long a daemon may be without a watch. A daemon restarts a watch immediately when it ends.
const maxStaleness = 30 * time.Second

// staleFindings returns a warning if a daemon does not follow the API server.
func staleFindings(pod *corev1.Pod, daemon, container string, synced bool, age time.Duration, watches []watchReport) []Finding {
	var evidence []string
	for _, w := range watches {
		if !w.Connected && !w.Missing && w.Error != "" {
			what := w.Resource
			if where := strings.Trim(w.Namespace+"/"+w.Name, "/"); where != "" {
				what += " in " + where
			}
			evidence = append(evidence, what+": "+w.Error)
		}
	}
	remedy := fmt.Sprintf("see its log: kubectl -n %s logs %s -c %s; check that the pod can reach the API server", pod.Namespace, pod.Name, container)
	var f Finding
	switch {
	case !synced:
		f = warned(podRef(pod), remedy, "%s has not reached the API server since it started, and uses its snapshot file", daemon)
	case age > maxStaleness:
		f = warned(podRef(pod), remedy, "%s does not follow the API server: its data is %s old", daemon, age.Round(time.Second))
	case len(evidence) > 0:
		f = warned(podRef(pod), remedy, "%s does not follow some of its objects", daemon)
	default:
		return keptFindings(pod, daemon, watches)
	}
	return append([]Finding{withRejectedToken(f.because(evidence...), pod)}, keptFindings(pod, daemon, watches)...)
}

// keptFindings returns a warning if a daemon uses objects that disappeared from the API server.
func keptFindings(pod *corev1.Pod, daemon string, watches []watchReport) []Finding {
	var evidence []string
	for _, w := range watches {
		if w.Kept == nil {
			continue
		}
		text := fmt.Sprintf("%s: %d", w.Resource, w.Kept.Objects)
		if len(w.Kept.Names) > 0 {
			text += ", such as " + w.Kept.Names[0]
		}
		if !w.Kept.Until.IsZero() {
			text += ", until " + w.Kept.Until.UTC().Format(time.RFC3339)
		}
		evidence = append(evidence, text)
	}
	if len(evidence) == 0 {
		return nil
	}
	return []Finding{warned(podRef(pod), "create the objects again; if they are meant to end, run 'kubectl oooi teardown'", "%s uses objects that disappeared from the API server", daemon).because(evidence...)}
}

// withRejectedToken adds that the API server rejects the token of a pod to a finding whose evidence says so, and the remedy.
func withRejectedToken(f Finding, pod *corev1.Pod) Finding {
	if slices.ContainsFunc(f.Evidence, func(e string) bool { return strings.Contains(e, string(metav1.StatusReasonUnauthorized)) }) {
		f.Message += ": the API server rejects its token"
		f.Remedy = "replace the pod, which then has a new token: " + restartPod(pod).Command + "; if the API server rejects that, too, find out why in its log, such as another key for tokens of ServiceAccounts"
	}
	return f
}

// staleFindings returns a warning if the daemon does not follow the API server.
func (f *storeReport) staleFindings(pod *corev1.Pod, daemon, container string) []Finding {
	age := time.Duration(0)
	if !f.Since.IsZero() {
		age = f.At.Sub(f.Since)
	}
	return staleFindings(pod, daemon, container, f.Synced, age, f.Resources)
}

// checkPages returns a Run function with a warning for each page that a pod did not return.
func checkPages(where Where, pages ...page) func(*Site) []Finding {
	return func(s *Site) []Finding {
		var findings []Finding
		for _, p := range pages {
			for _, pod := range s.servingPods(p, where) {
				a := s.facts.answer(pod, p)
				if a == nil || a.Silent == "" {
					continue
				}
				if why := status.UnreadyReason(pod); why != "" { // its container restarts, for instance
					findings = append(findings, s.unreadyPage(pod, p, why).because(a.Silent))
				} else {
					findings = append(findings, warned(podRef(pod), fmt.Sprintf("if its log shows no error (kubectl -n %s logs %s), check for a NetworkPolicy that does not admit the API server's nodes", pod.Namespace, pod.Name),
						"page %s of %s cannot be read: %s", p.path, p.daemon(), a.Silent).because(fmt.Sprintf("requested http://%s:%d%s through the API server", pod.Name, p.port, p.path)))
				}
			}
		}
		return findings
	}
}

// unreadyPage returns a warning for a page of a pod that is not ready, and says so if its container ended because it did not
// reach the API server, which answers doctor.
func (s *Site) unreadyPage(pod *corev1.Pod, p page, why string) Finding {
	f := s.unreadyFinding(pod, why)
	f.Severity = Warn
	if address, reason := s.lostAPIServer(pod); address != "" {
		f.Message = fmt.Sprintf("page %s of %s cannot be read: its container ended because it did not reach the API server at %s, which answers doctor: %s", p.path, p.daemon(), address, reason)
		f.Remedy = fmt.Sprintf("check the path from the pod on node %s to the API server, and run doctor again in a minute: other pods notice within 25 seconds if they do not reach it either", pod.Spec.NodeName)
		f.Evidence = nil
		return f
	}
	f.Message = fmt.Sprintf("page %s of %s cannot be read, because the pod is not ready: %s", p.path, p.daemon(), f.Message)
	return f
}

// noPods returns a NotApplicable function for checks of a page that no pod serves.
func noPods(p page, where Where) func(*Site) string {
	return func(s *Site) string {
		if where == AtInfra {
			if why := disabled(p.component)(s); why != "" {
				return why
			}
		}
		if len(s.servingPods(p, where)) == 0 {
			return p.daemon() + " has no pod with an address in the pod network"
		}
		return ""
	}
}

// noServingPods returns a NotApplicable function for checks of pages of several components that no pod serves.
func noServingPods(pages ...page) func(*Site) string {
	return func(s *Site) string {
		if slices.ContainsFunc(pages, func(p page) bool { return len(s.servingPods(p, AtInfra)) > 0 }) {
			return ""
		}
		return "no pod has an address in the pod network"
	}
}

// servingPods returns the Infra's pods, or control's, that serve a page.
func (s *Site) servingPods(p page, where Where) []*corev1.Pod {
	var list []*corev1.Pod
	for _, namespace := range s.namespaces[where] {
		list = append(list, s.facts.servingPods(p, namespace, s.owns)...)
	}
	return list
}
