package v1alpha1

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func FuzzParseAddressRange(f *testing.F) {
	for _, seed := range []string{"192.0.2.4", "192.0.2.4-192.0.2.9", "192.0.2.0/24", "2001:db8::/61", "::-::", "-", "/", "1.1.1.1/", "fe80::1%a-fe80::2%a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseAddressRange(text)
		if err != nil {
			return
		}
		if !r.First.IsValid() || !r.Last.IsValid() || r.Last.Less(r.First) || !r.Contains(r.First) || !r.Contains(r.Last) {
			t.Fatalf("%q became %s", text, r)
		}
		again, err := ParseAddressRange(r.String())
		if err != nil || again != r {
			t.Fatalf("%q became %s, which became %s, %v", text, r, again, err)
		}
	})
}

func TestZeroValuesAreEmpty(t *testing.T) {
	if got, err := new(AddressRanges).Elements(); err != nil || len(got) != 0 {
		t.Errorf("got %q, %v", got, err)
	}
	address := netip.MustParseAddr("192.0.2.7")
	if (AddressRange{}).Contains(address) || (AddressRange{First: address, Last: address}).Contains(netip.Addr{}) {
		t.Error("the zero address is in a range, or the zero range contains an address")
	}
}

// TestObjectWithInvalidAddressRangesIsDecodable checks that one object with a value of the wrong type does
// not make the decoding of a list, and so a watch, fail.
func TestObjectWithInvalidAddressRangesIsDecodable(t *testing.T) {
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
