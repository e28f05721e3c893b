package v1alpha1

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// AddressRanges is a set of addresses: one string of comma-separated elements, or an array of such strings.
// Each element is an address, a network in CIDR notation, or a range "first-last".
//
// The value is stored as written. A value of the wrong type does not make the object undecodable, because one
// such object would make every list that contains it fail; Elements reports the error.
type AddressRanges struct {
	// Raw is the JSON text of the value.
	Raw []byte `json:"-"`
}

// UnmarshalJSON stores data without checking its type. It never fails.
func (r *AddressRanges) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, []byte("null")) {
		r.Raw = nil
		return nil
	}
	r.Raw = bytes.Clone(data)
	return nil
}

// MarshalJSON returns the JSON text of r, or null if r is empty. It never fails.
func (r AddressRanges) MarshalJSON() ([]byte, error) {
	if len(r.Raw) == 0 {
		return []byte("null"), nil
	}
	return r.Raw, nil
}

// Elements returns the elements of r in order, without surrounding space; none if r is nil or empty. It
// returns an error if the value has the wrong type. ParseAddressRange parses an element.
func (r *AddressRanges) Elements() ([]string, error) {
	if r == nil || len(r.Raw) == 0 {
		return nil, nil
	}
	var one string
	if err := json.Unmarshal(r.Raw, &one); err == nil {
		return splitElements(nil, one), nil
	}
	// Pointers distinguish null in the array from an empty string.
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

// String returns the JSON text of r, for messages. It is empty if r is nil or empty.
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

// shorten truncates text to 64 bytes, for messages.
func shorten(text []byte) string {
	const limit = 64
	if len(text) <= limit {
		return string(text)
	}
	return string(bytes.ToValidUTF8(text[:limit], nil)) + "..."
}
