package v1alpha1

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestAddressRangesElements(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
		wantErr    string
	}{
		{name: "absent", text: `null`},
		{name: "empty text", text: `""`},
		{name: "one network", text: `"192.0.2.0/24"`, want: []string{"192.0.2.0/24"}},
		{name: "several with commas", text: `"192.0.2.4-192.0.2.9, 192.0.2.64/28"`, want: []string{"192.0.2.4-192.0.2.9", "192.0.2.64/28"}},
		{name: "superfluous commas", text: `",192.0.2.4,,"`, want: []string{"192.0.2.4"}},
		{name: "empty array", text: `[]`},
		{name: "array", text: `["192.0.2.4", "192.0.2.64/28"]`, want: []string{"192.0.2.4", "192.0.2.64/28"}},
		{name: "array with commas inside", text: `["192.0.2.4,192.0.2.5", " 192.0.2.6 "]`, want: []string{"192.0.2.4", "192.0.2.5", "192.0.2.6"}},
		{name: "not an address, which ParseAddressRange reports", text: `"all of them"`, want: []string{"all of them"}},
		{name: "number", text: `5`, wantErr: "must be a string or an array of strings, not 5"},
		{name: "object", text: `{"first": "192.0.2.4"}`, wantErr: `not {"first": "192.0.2.4"}`},
		{name: "array with a number", text: `["192.0.2.4", 5]`, wantErr: "not [\"192.0.2.4\", 5]"},
		{name: "array with a null", text: `["192.0.2.4", null]`, wantErr: "element 1 must be a string, not null"},
		{name: "long text of a wrong type", text: `{"a": "` + strings.Repeat("a", 500) + `"}`, wantErr: strings.Repeat("a", 50) + "..."},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var r AddressRanges
			if err := json.Unmarshal([]byte(test.text), &r); err != nil {
				t.Fatal(err)
			}
			got, err := r.Elements()
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Fatalf("got %q and error %v, want an error with %q", got, err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestAbsentAddressRangesHaveNoElements(t *testing.T) {
	var absent *AddressRanges
	for _, r := range []*AddressRanges{absent, {}} {
		if got, err := r.Elements(); err != nil || len(got) != 0 {
			t.Errorf("%q: got %q, %v", r, got, err)
		}
	}
}

// TestAddressRangesOfWrongTypeKeepObjectDecodable checks that one object with a value of the wrong type does
// not make the decoding of a list, and so a watch, fail.
func TestAddressRangesOfWrongTypeKeepObjectDecodable(t *testing.T) {
	var list InfraList
	err := json.Unmarshal([]byte(`{"items": [
		{"metadata": {"name": "bad"}, "spec": {"appsIngress": {"metallb": {"ipAddressPoolRange": {"a": 1}, "addressPoolName": "a"}}}},
		{"metadata": {"name": "good"}}
	]}`), &list)
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 2 {
		t.Fatalf("got %d items", len(list.Items))
	}
	metallb := list.Items[0].Spec.AppsIngress.MetalLB
	if metallb.AddressPoolName != "a" {
		t.Error("the rest of the block is lost")
	}
	if _, err := metallb.IPAddressPoolRange.Elements(); err == nil {
		t.Error("the wrong type is not reported")
	}
}

func FuzzAddressRanges(f *testing.F) {
	for _, seed := range []string{`"192.0.2.4, 192.0.2.5"`, `["192.0.2.0/24"]`, `null`, `5`, `{"a": [null]}`, `["a", null]`, ` [ "a" ] `, `"\u2028<>&"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var m AppsIngressMetalLB
		document := append(append([]byte(`{"ipAddressPoolRange": `), text...), '}')
		if json.Unmarshal(document, &m) != nil {
			return // Not JSON, or other fields of another type.
		}
		elements, err := m.IPAddressPoolRange.Elements()
		if err != nil && len(elements) > 0 {
			t.Fatalf("got elements %q and error %v", elements, err)
		}
		for _, element := range elements {
			if element == "" || element != strings.TrimSpace(element) || strings.Contains(element, ",") {
				t.Fatalf("%q is not an element of %s", element, text)
			}
		}

		// Encoding and decoding must not change the value.
		written, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var decodedAgain AppsIngressMetalLB
		if err := json.Unmarshal(written, &decodedAgain); err != nil {
			t.Fatal(err)
		}
		rewritten, err := json.Marshal(decodedAgain)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(written, rewritten) {
			t.Fatalf("%s is written back as %s", written, rewritten)
		}
		elementsAgain, _ := decodedAgain.IPAddressPoolRange.Elements()
		if !slices.Equal(elements, elementsAgain) {
			t.Fatalf("elements %q became %q", elements, elementsAgain)
		}
	})
}
