package v1alpha1

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// AddressRanges is a set of addresses as its author wrote it: one string with
// commas between its elements, or an array of such strings.
//
// The text is kept as it came. A value of the wrong type must not keep the
// object that holds it from being read, or all objects in the same list would
// be lost; Elements reports it.
type AddressRanges struct {
	// Raw is the JSON text of the value.
	Raw []byte `json:"-"`
}

// NewAddressRanges returns the ranges that an array of these elements stands
// for.
func NewAddressRanges(elements ...string) *AddressRanges {
	if elements == nil {
		elements = []string{}
	}
	raw, err := json.Marshal(elements)
	if err != nil {
		panic(err) // A slice of strings always has a JSON form.
	}
	return &AddressRanges{Raw: raw}
}

// UnmarshalJSON keeps data as it is, whatever its type.
func (r *AddressRanges) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, []byte("null")) {
		r.Raw = nil
		return nil
	}
	r.Raw = bytes.Clone(data)
	return nil
}

// MarshalJSON returns the text that was read.
func (r AddressRanges) MarshalJSON() ([]byte, error) {
	if len(r.Raw) == 0 {
		return []byte("null"), nil
	}
	return r.Raw, nil
}

// Elements returns the networks and ranges of r as text, in their order and
// without surrounding space. Absent ranges have no elements. The error says
// what is wrong with the value's type; ParseAddressRange checks an element.
func (r *AddressRanges) Elements() ([]string, error) {
	if r == nil || len(r.Raw) == 0 {
		return nil, nil
	}
	var one string
	if err := json.Unmarshal(r.Raw, &one); err == nil {
		return splitElements(nil, one), nil
	}
	// Pointers, so that a null in the array is not taken for an empty string.
	var many []*string
	if err := json.Unmarshal(r.Raw, &many); err != nil {
		return nil, fmt.Errorf("must be a string or an array of strings, not %s", shorten(r.Raw))
	}
	var elements []string
	for i, s := range many {
		if s == nil {
			return nil, fmt.Errorf("element %d must be a string, not null", i)
		}
		elements = splitElements(elements, *s)
	}
	return elements, nil
}

// String returns the text of r for messages.
func (r *AddressRanges) String() string {
	if r == nil {
		return ""
	}
	return string(r.Raw)
}

// splitElements appends the elements of a comma-separated list to elements.
func splitElements(elements []string, list string) []string {
	for element := range strings.SplitSeq(list, ",") {
		if element = strings.TrimSpace(element); element != "" {
			elements = append(elements, element)
		}
	}
	return elements
}

// shorten keeps a message readable when the value in it is long.
func shorten(text []byte) string {
	const limit = 64
	if len(text) <= limit {
		return string(text)
	}
	return string(bytes.ToValidUTF8(text[:limit], nil)) + "..."
}
