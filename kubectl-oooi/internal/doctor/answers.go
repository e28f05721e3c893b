package doctor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
)

// pageKey identifies a page of one pod.
type pageKey struct {
	namespace, pod string
	page           page
}

// Answer is the page that a pod returned, or the reason why there is none.
type Answer struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Component string `json:"component"`
	Port      int    `json:"port"`
	Path      string `json:"path"`
	// Body is the page, reduced to what checks read.
	Body string `json:"body,omitempty"`
	// Refused is set if the user may not request the page: it has the API server's message. Silent is why the
	// request failed otherwise. Body is valid if both are empty.
	Refused string `json:"refused,omitempty"`
	Silent  string `json:"silent,omitempty"`
}

func (a *Answer) key() pageKey {
	return pageKey{a.Namespace, a.Pod, page{a.Component, a.Port, a.Path}}
}

// answer returns the answer of a pod to the request of a page, nil if it was not requested.
func (f *Facts) answer(pod *corev1.Pod, p page) *Answer {
	return f.answers[pageKey{pod.Namespace, pod.Name, p}]
}

// unreadPage returns why a page that a check reads is missing for a pod: it was not requested, or the user
// lacks a right. It is empty if the page was requested of every pod; a pod that did not answer is reported by
// pageBodies.
func (s *Site) unreadPage(r Read) string {
	for _, pod := range s.servingPods(r.Page, r.Where) {
		switch a := s.facts.answer(pod, r.Page); {
		case a == nil:
			return fmt.Sprintf("page %s of Pod %s/%s was not requested", r.Page.path, pod.Namespace, pod.Name)
		case a.Refused != "":
			return a.Refused
		}
	}
	return ""
}

// podPage is the decoded page of one pod.
type podPage[T any] struct {
	pod   *corev1.Pod
	value T
}

// pageBodies returns the body of a page for each of the Infra's pods, or of control's, that answered. Pods that
// did not answer are added to s.unanswered, so that the check does not pass without them, unless an earlier check found
// the cause, or the check runs without the page.
func (s *Site) pageBodies(p page, where Where) []podPage[string] {
	if !s.declared(Read{Kind: podPages, Where: where, Page: p}) {
		return nil
	}
	whole := !slices.Contains(s.reads, Read{Kind: podPages, Where: where, Page: p, Optional: true})
	var list []podPage[string]
	for _, pod := range s.servingPods(p, where) {
		switch a := s.facts.answer(pod, p); {
		case a == nil, a.Refused != "": // see unreadPage
		case a.Silent != "" && (s.explained[componentOf(pod)] != "" || !whole):
		case a.Silent != "":
			s.unanswered = append(s.unanswered, fmt.Sprintf("Pod %s did not answer: %s", pod.Name, a.Silent))
		default:
			list = append(list, podPage[string]{pod, a.Body})
		}
	}
	return list
}

// states decodes a JSON page of each pod that answered. A page that cannot be decoded is an error of the check.
func states[T any](s *Site, p page, where Where) []podPage[T] {
	var list []podPage[T]
	for _, answer := range s.pageBodies(p, where) {
		var state T
		if err := json.Unmarshal([]byte(answer.value), &state); err != nil {
			s.checkErrors = append(s.checkErrors, fmt.Sprintf("decoding page %s of Pod %s: %v", p.path, answer.pod.Name, err))
			continue
		}
		list = append(list, podPage[T]{answer.pod, state})
	}
	return list
}

// metrics decodes a page in Prometheus' text format of each of the Infra's pods that answered.
func (s *Site) metrics(p page) []podPage[series] {
	var list []podPage[series]
	for _, answer := range s.pageBodies(p, AtInfra) {
		families, err := parseMetrics(answer.value)
		if err != nil {
			s.checkErrors = append(s.checkErrors, fmt.Sprintf("decoding page %s of Pod %s: %v", p.path, answer.pod.Name, err))
			continue
		}
		list = append(list, podPage[series]{answer.pod, families})
	}
	return list
}

// parseMetrics parses a page in Prometheus' text format.
func parseMetrics(text string) (series, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(strings.NewReader(text)) //nolint:wrapcheck // the caller names the page
}

// series maps the names of metrics to their families.
type series map[string]*dto.MetricFamily

// each calls take with the labels and the value of every sample of a metric.
func (s series) each(name string, take func(labels map[string]string, value float64)) {
	for _, m := range s[name].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		take(labels, m.GetGauge().GetValue()+m.GetCounter().GetValue()+m.GetUntyped().GetValue())
	}
}

// sum returns the sum of the samples of a metric, 0 if there are none.
func (s series) sum(name string) float64 {
	sum := 0.0
	s.each(name, func(_ map[string]string, value float64) { sum += value })
	return sum
}
