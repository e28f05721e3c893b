package output

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Metadata names the object that a report is about.
type Metadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// ReportList is several reports of one kind, as API servers list objects.
type ReportList[T any] struct {
	metav1.TypeMeta `json:",inline"`

	Items []*T `json:"items"`
}

// ListOf is the list of reports of a kind. None are an empty list, and no null.
func ListOf[T any](kind string, items []*T) *ReportList[T] {
	if items == nil {
		items = []*T{}
	}
	return &ReportList[T]{TypeMeta: metav1.TypeMeta{APIVersion: APIVersion, Kind: kind + "List"}, Items: items}
}
