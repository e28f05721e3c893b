package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// Limits of a log, and of what findings quote of it.
const (
	logTail    = 100
	logBytes   = 64 << 10
	quoteLines = 5
	quoteBytes = 300
)

// logKey identifies the log of a container.
type logKey struct{ namespace, pod, container string }

// Log has the last lines of the log of a container that has terminated.
type Log struct {
	Namespace string   `json:"namespace"`
	Pod       string   `json:"pod"`
	Container string   `json:"container"`
	Lines     []string `json:"lines,omitempty"`
	// Unread is why there are none.
	Unread string `json:"unread,omitempty"`
}

func (l *Log) key() logKey { return logKey{l.Namespace, l.Pod, l.Container} }

// A crash is a container that has terminated with an error.
type crash struct {
	*corev1.ContainerStatus

	last *corev1.ContainerStateTerminated
	// restarts is set if a restart follows or has followed: the log is that of the previous run.
	restarts bool
}

// crashes returns the containers of a pod that have terminated with an error, and do not run again or did so recently, or
// that were restarted repeatedly.
func crashes(p *corev1.Pod, now time.Time) []crash {
	var list []crash
	statuses := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
	for i := range statuses {
		c := &statuses[i]
		last := c.LastTerminationState.Terminated
		switch {
		case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
			list = append(list, crash{c, c.State.Terminated, false})
		case last != nil && (last.ExitCode != 0 && !c.Ready || repeatedly(c, now) || crashed(c, now)):
			list = append(list, crash{c, last, true})
		}
	}
	return list
}

// loggedContainers are the containers whose logs are read.
var loggedContainers = append([]string{componentControl, "bootstrap"}, ourContainers...)

// logReads are the optional Reads of logs.
func logReads(where Where) []Read { return optional(in(where, podLogs)) }

// getLog requests the last lines of the log of a container that has terminated.
func getLog(ctx context.Context, clients *kubernetes.Clientset, pod *corev1.Pod, c *crash) *Log {
	l := &Log{Namespace: pod.Namespace, Pod: pod.Name, Container: c.Name}
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	stream, err := clients.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
		Container: c.Name, Previous: c.restarts, TailLines: new(int64(logTail)), LimitBytes: new(int64(logBytes)),
	}).Stream(ctx)
	if err != nil {
		l.Unread = err.Error()
		return l
	}
	defer func() { _ = stream.Close() }() // read only
	text, err := io.ReadAll(stream)
	if err != nil {
		l.Unread = err.Error()
		return l
	}
	l.Lines = quotable(string(text))
	return l
}

// credential matches what a log must not have, but may have by mistake.
var credential = regexp.MustCompile(`eyJ[\w-]+\.[\w-]+\.[\w-]+|(?i)(bearer|basic) [\w.~+/=-]+|[\w+/=]{60,}`)

// quotable returns the lines of a text that are not empty, without their middle if they are long, and without what looks
// like a credential.
func quotable(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = credential.ReplaceAllString(strings.TrimSpace(line), "[...]"); line != "" {
			if len(line) > quoteBytes { // the end of a wrapped error is its cause
				line = strings.ToValidUTF8(line[:quoteBytes/3], "") + "[...]" + strings.ToValidUTF8(line[len(line)-quoteBytes*2/3:], "")
			}
			lines = append(lines, line)
		}
	}
	return lines
}

// reasonLines match lines that may have the reason of an exit: that of a limit, one that begins the description of a crash,
// which precedes its stack trace, and an error, of which the last one is likely to be the reason.
var (
	limitLine = regexp.MustCompile(`(?i)too many open files`)
	fatalLine = regexp.MustCompile(`^(panic|fatal error): |\[critical\]|assert failure`)
	errorLine = regexp.MustCompile(`(?i)error|fatal|fail|cannot|invalid|not permitted|denied`)
)

// reasonIn returns the index of the line of a log that is likely to have the reason of an exit.
func reasonIn(lines []string) int {
	for _, expression := range []*regexp.Regexp{limitLine, fatalLine} {
		if at := slices.IndexFunc(lines, expression.MatchString); at >= 0 {
			return at
		}
	}
	for at, line := range slices.Backward(lines) {
		if errorLine.MatchString(line) {
			return at
		}
	}
	return len(lines) - 1
}

// crashReason returns the reason of a crash, and the lines of the log around it as evidence; empty if neither the log nor
// the termination message, which the kubelet takes from the end of the log, has any.
func (s *Site) crashReason(p *corev1.Pod, c *crash) (reason string, evidence []string) {
	lines := quotable(c.last.Message)
	if l := s.facts.logs[logKey{p.Namespace, p.Name, c.Name}]; l != nil && len(l.Lines) > 0 {
		lines = l.Lines
	}
	if len(lines) < 2 {
		return strings.Join(lines, ""), nil
	}
	at := reasonIn(lines)
	first := max(0, min(at-1, len(lines)-quoteLines))
	return lines[at], append([]string{"from its log:"}, lines[first:min(first+quoteLines, len(lines))]...)
}

// fileLimitRemedy returns the remedy for a process that could not open another file.
func fileLimitRemedy(p *corev1.Pod) string {
	return fmt.Sprintf("raise the limit of open files in the configuration of the container runtime on node %s (LimitNOFILE of its systemd unit), and delete the pod: %s", p.Spec.NodeName, restartPod(p).Command)
}

// unreadyCrash returns the crash because of which a pod is not ready, nil if there is none.
func (s *Site) unreadyCrash(p *corev1.Pod) *crash {
	why := status.UnreadyReason(p)
	all := crashes(p, s.facts.Taken)
	at := slices.IndexFunc(all, func(c crash) bool {
		return c.last.ExitCode != 0 && strings.HasPrefix(why, status.Exited(c.Name, c.last))
	})
	if at < 0 {
		return nil
	}
	return &all[at]
}

// unreadyFinding returns the finding about a pod that is not ready, with the reason in the log of a container that crashed.
func (s *Site) unreadyFinding(p *corev1.Pod, why string) Finding {
	remedy := fmt.Sprintf("see the events and the state of the pod: kubectl -n %s describe pod %s", p.Namespace, p.Name)
	c := s.unreadyCrash(p)
	if c == nil {
		return failed(podRef(p), remedy, "%s", why)
	}
	reason, evidence := s.crashReason(p, c)
	short := *c.last
	short.Message = reason
	why = status.Exited(c.Name, &short)
	if c.restarts {
		why += "; it is restarted"
		remedy = fmt.Sprintf("correct what the log says: kubectl -n %s logs %s -c %s --previous", p.Namespace, p.Name, c.Name)
	}
	if limitLine.MatchString(reason) {
		remedy = fileLimitRemedy(p)
	}
	return failed(podRef(p), remedy, "%s", why).because(evidence...)
}

// repeatedly reports whether a container has terminated at least manyRestarts times, the last time within recentRestart.
func repeatedly(c *corev1.ContainerStatus, now time.Time) bool {
	last := c.LastTerminationState.Terminated
	return last != nil && c.RestartCount >= manyRestarts && now.Sub(last.FinishedAt.Time) <= recentRestart
}

// bugCodes are exit codes of a process that ends because of an error of its own: a Go panic, and the signals of an
// assertion and of invalid instructions and accesses.
var bugCodes = []int32{2, 128 + 4, 128 + 6, 128 + 7, 128 + 8, 128 + 11}

// crashed reports whether a container runs again that has terminated with an error within recentCrash: at least
// manyCrashes times, or because of its memory or a bug. A single other error, as of a restart of the node, is no crash.
func crashed(c *corev1.ContainerStatus, now time.Time) bool {
	last := c.LastTerminationState.Terminated
	return last != nil && last.ExitCode != 0 && c.Ready && now.Sub(last.FinishedAt.Time) <= recentCrash &&
		(c.RestartCount >= manyCrashes || last.Reason == outOfMemory || slices.Contains(bugCodes, last.ExitCode))
}

// sortedLogs returns the logs, sorted by container.
func (f *Facts) sortedLogs() []*Log {
	list := make([]*Log, 0, len(f.logs))
	for _, l := range f.logs {
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b *Log) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod), strings.Compare(a.Container, b.Container))
	})
	return list
}

// ownPods returns the pods of a namespace that are the Infra's or control's.
func (s *Site) ownPods(namespace string) []*corev1.Pod {
	var list []*corev1.Pod
	for _, u := range s.facts.list(pods, namespace) {
		pod, err := decodeOnce[corev1.Pod](s.facts, u)
		if err == nil && (s.owns(pod.Labels) || componentOf(pod) == componentControl) {
			list = append(list, pod)
		}
	}
	return list
}
