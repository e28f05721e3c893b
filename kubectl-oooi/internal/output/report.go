package output

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Metadata names the object that a report is about.
type Metadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Kind is the object's kind if the command reports on several kinds; empty for the command's main kind.
	Kind string `json:"kind,omitempty"`
}

// String returns "name", or "kind/name" for an object with a Kind.
func (m Metadata) String() string {
	if m.Kind == "" {
		return m.Name
	}
	return strings.ToLower(m.Kind) + "/" + m.Name
}

// A ReportList is a list of reports of one kind, in the form of a list of API objects.
type ReportList[T any] struct {
	metav1.TypeMeta `json:",inline"`

	Items []*T `json:"items"`
}

// ListOf returns a list of reports of a kind. Nil items are encoded as an empty list, not as null.
func ListOf[T any](kind string, items []*T) *ReportList[T] {
	if items == nil {
		items = []*T{}
	}
	return &ReportList[T]{TypeMeta: metav1.TypeMeta{APIVersion: APIVersion, Kind: kind + "List"}, Items: items}
}
