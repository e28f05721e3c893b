package output

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Metadata names the object that a report is about.
type Metadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
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
