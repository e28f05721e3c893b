package doctor

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// withEdit adds the edit of a rendered object to a finding about a pod that does not start because of it, and its remedy.
func (s *Site) withEdit(f Finding, p *corev1.Pod) Finding {
	d := s.editBehind(p)
	if d == nil {
		return f
	}
	drifts := s.facts.drifts[s.key()]
	found := s.driftFindings(*d, s.restartedPods(drifts)[d.Component])[0]
	one := d.Differences[d.edited()]
	f.Message += fmt.Sprintf("; %s was changed by %q at %s", d.Object, one.Editor, formatTime(one.At))
	f.Remedy = found.Remedy
	return f.because(append([]string{d.Object.String() + ":"}, found.Evidence...)...)
}

// edited returns the index of the first difference that a known client made, -1 for none.
func (d *drift) edited() int {
	return slices.IndexFunc(d.Differences, func(one difference) bool { return one.Editor != "" })
}

// breaksPod reports whether a pod does not start because of an edit of an object.
func (s *Site) breaksPod(d *drift) bool {
	return slices.ContainsFunc(s.pods(d.Component), func(p *corev1.Pod) bool {
		behind := s.editBehind(p)
		return behind != nil && behind.Object == d.Object
	})
}

// editBehind returns the object of a pod's component whose edit explains why the pod does not start, nil if there is none:
// it was edited before, and the reason names the key of edited data, or a word that only the edited value has.
func (s *Site) editBehind(p *corev1.Pod) *drift {
	failure, at := s.startFailureOf(p)
	said := words(failure)
	drifts := s.facts.drifts[s.key()]
	for i := range drifts {
		d := &drifts[i]
		edited := d.edited()
		if len(said) == 0 || d.Component != componentOf(p) || edited < 0 || d.Differences[edited].At.After(at) {
			continue
		}
		for _, one := range d.Differences {
			var after, before []string
			for _, v := range one.Values {
				after, before = append(after, words(v.Found)...), append(before, words(v.Rendered)...)
			}
			key, isData := strings.CutPrefix(one.Path, ".data.")
			if slices.ContainsFunc(after, func(w string) bool { return slices.Contains(said, w) && !slices.Contains(before, w) }) ||
				isData && slices.ContainsFunc(said, func(w string) bool { return path.Base(w) == key }) {
				return d
			}
		}
	}
	return nil
}

// startFailureOf returns why an unready pod does not start, and when it failed: the reason of a crash, the image that cannot
// be pulled, or the kubelet's Event; empty for anything else.
func (s *Site) startFailureOf(p *corev1.Pod) (failure string, at time.Time) {
	if c := s.unreadyCrash(p); c != nil {
		reason, _ := s.crashReason(p, c)
		return reason, later(c.last.FinishedAt.Time, p.CreationTimestamp.Time)
	}
	if c, image := waitsForImage(p); c != nil {
		return image, p.CreationTimestamp.Time
	}
	if e := s.startEvent(p); e != nil {
		return e.Message, e.LastTimestamp.Time
	}
	return "", time.Time{}
}

// wordPattern matches words that may identify a value: long ones.
var wordPattern = regexp.MustCompile(`[\w./@-]{4,}`)

// words returns the words of a text, without punctuation around them.
func words(text string) []string {
	list := wordPattern.FindAllString(text, -1)
	for i := range list {
		list[i] = strings.Trim(list[i], ".-/")
	}
	return list
}
