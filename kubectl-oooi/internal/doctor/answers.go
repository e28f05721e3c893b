package doctor

import (
	"encoding/json"
	"fmt"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
)

// question is a page of one pod.
type question struct {
	namespace, pod string
	page           page
}

// Answer is what a pod has said on one of its pages, or why it was not heard.
type Answer struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Component string `json:"component"`
	Port      int    `json:"port"`
	Path      string `json:"path"`
	// Body is the page, as far as checks read it.
	Body string `json:"body,omitempty"`
	// Refused says why the pod was not asked; Silent, why it was asked and nothing that means
	// anything came back. Empty both: Body is what it says.
	Refused string `json:"refused,omitempty"`
	Silent  string `json:"silent,omitempty"`
}

func (a *Answer) question() question {
	return question{a.Namespace, a.Pod, page{a.Component, a.Port, a.Path}}
}

// unasked says why a page that a check reads is not known of some pod that nobody could ask; empty
// where each was asked.
func (s *Site) unasked(r Read) string {
	for _, namespace := range s.namespaces[r.Where] {
		for _, pod := range s.facts.askable(r.Page, namespace, s.Infra.Name) {
			a, ok := s.facts.answers[question{namespace, pod.Name, r.Page}]
			switch {
			case !ok:
				return fmt.Sprintf("%s of Pod %s/%s was not requested", r.Page.path, namespace, pod.Name)
			case a.Refused != "":
				return a.Refused
			}
		}
	}
	return ""
}

// said is what one pod says.
type said[T any] struct {
	pod *corev1.Pod
	is  T
}

// heard are the answers of the Infra's pods, or of control's. Of those that are silent the check
// knows nothing, and where it finds nothing with the others it is no pass.
func (s *Site) heard(p page, where Where) []said[string] {
	if !s.declared(Read{Kind: podPages, Where: where, Page: p}) {
		return nil
	}
	var list []said[string]
	for _, namespace := range s.namespaces[where] {
		for _, pod := range s.facts.askable(p, namespace, s.Infra.Name) {
			switch a := s.facts.answers[question{namespace, pod.Name, p}]; {
			case a == nil:
			case a.Silent != "":
				s.silent = append(s.silent, fmt.Sprintf("Pod %s did not answer: %s", pod.Name, a.Silent))
			default:
				list = append(list, said[string]{pod, a.Body})
			}
		}
	}
	return list
}

// states are pages in JSON.
func states[T any](s *Site, p page, where Where) []said[T] {
	var list []said[T]
	for _, h := range s.heard(p, where) {
		var state T
		if err := json.Unmarshal([]byte(h.is), &state); err != nil {
			s.broken = append(s.broken, fmt.Sprintf("reading %s of Pod %s: %v", p.path, h.pod.Name, err))
			continue
		}
		list = append(list, said[T]{h.pod, state})
	}
	return list
}

// metrics are pages of the Infra's pods in Prometheus' text format.
func (s *Site) metrics(p page) []said[series] {
	var list []said[series]
	for _, h := range s.heard(p, AtInfra) {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(h.is))
		if err != nil {
			s.broken = append(s.broken, fmt.Sprintf("reading %s of Pod %s: %v", p.path, h.pod.Name, err))
			continue
		}
		list = append(list, said[series]{h.pod, families})
	}
	return list
}

// series are metrics by their names.
type series map[string]*dto.MetricFamily

// each hands every sample of a metric to take, with its labels.
func (s series) each(name string, take func(labels map[string]string, value float64)) {
	for _, m := range s[name].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		take(labels, m.GetGauge().GetValue()+m.GetCounter().GetValue()+m.GetUntyped().GetValue())
	}
}

// sum adds up the samples of a metric; 0 for none.
func (s series) sum(name string) float64 {
	sum := 0.0
	s.each(name, func(_ map[string]string, value float64) { sum += value })
	return sum
}
