package doctor

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// TestCrashNamesItsReason expects the message of a pod that is not ready to have the line of the log with the reason, and
// the remedy to follow it.
func TestCrashNamesItsReason(t *testing.T) {
	var stack strings.Builder
	for range 30 {
		stack.WriteString("[2026-01-02 03:04:05.000][1][critical][backtrace] [./source/server/backtrace.h:98] #0: Envoy::Network::SocketImpl [0x55d0c0ffee00]\n")
	}
	const remedyOfLog, remedyOfLimit = "correct what the log says: kubectl -n clusters logs demo-proxy-0 -c envoy --previous", "raise the limit of open files in the configuration of the container runtime on node n (LimitNOFILE of its systemd unit), and delete the pod: kubectl -n clusters delete pod demo-proxy-0"
	for _, tc := range []struct {
		name, log, message string // message is the termination message
		want, remedy       string
		evidence           int
	}{
		{"Envoy's log", "[info] starting\n[warn] evutil_make_internal_pipe_: pipe: Too many open files\n[critical][assert] assert failure: event_base != nullptr\n" + stack.String(), stack.String()[:2048], "container envoy exited with 134: [warn] evutil_make_internal_pipe_: pipe: Too many open files; it is restarted", remedyOfLimit, 6},
		{"only the termination message", "", "[critical][main] error initializing config '/etc/envoy.json': no such file\n[info][main] exiting\n", "container envoy exited with 134: [critical][main] error initializing config '/etc/envoy.json': no such file; it is restarted", remedyOfLog, 3},
		{"panic", "started\npanic: assignment to entry in nil map\n\ngoroutine 1 [running]:\nmain.main()\n", "", "container envoy exited with 134: panic: assignment to entry in nil map; it is restarted", remedyOfLog, 5},
		{"no reason in the log", "one\ntwo\n", "", "container envoy exited with 134: two; it is restarted", remedyOfLog, 3},
		{"no log", "", "", "container envoy exited with 134; it is restarted", remedyOfLog, 0},
		{"credentials", "error: Authorization: Bearer abc.def-ghi and eyJhbGciOi.eyJzdWIi.c2ln\n", "", "container envoy exited with 134: error: Authorization: [...] and [...]; it is restarted", remedyOfLog, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			facts, site := siteOf(t)
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "demo-proxy-0"}, Spec: corev1.PodSpec{NodeName: "n"}}
			last := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 134, Message: tc.message, FinishedAt: metav1.NewTime(time.Now())}}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "envoy", LastTerminationState: last, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
			if tc.log != "" {
				l := &Log{Namespace: "clusters", Pod: "demo-proxy-0", Container: "envoy", Lines: quotable(tc.log)}
				facts.logs[l.key()] = l
			}
			f := site.unreadyFinding(p, status.UnreadyReason(p))
			if f.Message != tc.want || f.Remedy != tc.remedy || len(f.Evidence) != tc.evidence {
				t.Errorf("message %q\nremedy %q\nevidence %q", f.Message, f.Remedy, f.Evidence)
			}
			if text, err := json.Marshal(facts.sortedLogs()); err != nil || len(text) > 100*quoteBytes {
				t.Errorf("%d bytes: %v", len(text), err)
			}
		})
	}
}

// TestFailedRequests has errors of requests to the API server in logs and termination messages of control.
func TestFailedRequests(t *testing.T) {
	for text, want := range map[string]string{
		`failed to get server groups: Get "https://10.96.0.1:443/api?timeout=5s": context deadline exceeded`:                                                                        "10.96.0.1:443: context deadline exceeded",
		`level=ERROR msg="error retrieving lock" err="Get \"https://10.96.0.1:443/apis/coordination.k8s.io/v1/leases/oooi-control\": dial tcp 10.96.0.1:443: i/o timeout" lock=x/y`: "10.96.0.1:443: dial tcp 10.96.0.1:443: i/o timeout",
		`Get "https://10.96.0.1:443/api": net/http: request canceled while waiting for connection (Client.Timeout exceeded while awaiting headers)`:                                 "10.96.0.1:443: net/http: request canceled while waiting for connection (Client.Timeout exceeded while awaiting headers)",
		`Get "https://10.96.0.1:443/api": Unauthorized`: "",
		`context deadline exceeded`:                     "",
	} {
		got := ""
		if m := failedRequest.FindStringSubmatch(text); m != nil {
			got = m[1] + ": " + m[2]
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
