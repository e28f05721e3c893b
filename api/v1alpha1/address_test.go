package v1alpha1

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestParseAddress(t *testing.T) {
	tests := []struct {
		name, text, want string
	}{
		{"IPv4", "192.0.2.4", "192.0.2.4"},
		{"IPv6", "2001:DB8::4", "2001:db8::4"},
		{"IPv4 with a prefix length", "192.0.2.4/24", "192.0.2.4"},
		{"IPv6 with a prefix length", "2001:db8::4/64", "2001:db8::4"},
		{"surrounding space", " 192.0.2.4 ", "192.0.2.4"},
		{"IPv4-mapped IPv6", "::ffff:192.0.2.4", "192.0.2.4"},
		{"empty", "", ""},
		{"host name", "proxy.example.com", ""},
		{"leading zero", "192.0.2.04", ""},
		{"prefix length too large", "192.0.2.4/33", ""},
		{"empty prefix length", "192.0.2.4/", ""},
		{"two prefix lengths", "192.0.2.4/24/24", ""},
		{"zone", "fe80::4%net1", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseAddress(test.text)
			if test.want == "" {
				if err == nil {
					t.Fatalf("got %s, want an error", got)
				}
				if !strings.Contains(err.Error(), `"`+test.text+`"`) {
					t.Errorf("the error does not quote the text: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestParseAddressRange(t *testing.T) {
	tests := []struct {
		name, text, first, last, wantErr string
	}{
		{"one address", "192.0.2.4", "192.0.2.4", "192.0.2.4", ""},
		{"first and last", "192.0.2.4-192.0.2.9", "192.0.2.4", "192.0.2.9", ""},
		{"first and last with spaces", " 192.0.2.4 - 192.0.2.9 ", "192.0.2.4", "192.0.2.9", ""},
		{"first is last", "192.0.2.4-192.0.2.4", "192.0.2.4", "192.0.2.4", ""},
		{"IPv6", "2001:db8::1-2001:db8::f", "2001:db8::1", "2001:db8::f", ""},
		{"network", "192.0.2.0/24", "192.0.2.0", "192.0.2.255", ""},
		{"network given by one of its addresses", "192.0.2.77/28", "192.0.2.64", "192.0.2.79", ""},
		{"network of one address", "192.0.2.4/32", "192.0.2.4", "192.0.2.4", ""},
		{"default route", "0.0.0.0/0", "0.0.0.0", "255.255.255.255", ""},
		{"IPv6 network", "2001:db8::/61", "2001:db8::", "2001:db8:0:7:ffff:ffff:ffff:ffff", ""},
		{"empty", "", "", "", "is not an IPv4 or IPv6 address"},
		{"not an address", "all of them", "", "", "is not an IPv4 or IPv6 address"},
		{"no start", "-192.0.2.9", "", "", "start of range"},
		{"no end", "192.0.2.4-", "", "", "end of range"},
		{"end before start", "192.0.2.9-192.0.2.4", "", "", "ends before it starts"},
		{"two families", "192.0.2.4-2001:db8::9", "", "", "mixes address families"},
		{"three addresses", "192.0.2.1-192.0.2.2-192.0.2.3", "", "", "end of range"},
		{"last octet only", "192.0.2.4-9", "", "", "end of range"},
		{"prefix length inside a range", "192.0.2.4/24-192.0.2.9", "", "", "has a prefix length"},
		{"prefix length too large", "192.0.2.0/33", "", "", "is not a network in CIDR notation"},
		{"IPv4-mapped network", "::ffff:192.0.2.0/120", "", "", "contains IPv4-mapped IPv6 addresses"},
		{"IPv6 network that ends with IPv4-mapped addresses", "::/80", "", "", "contains IPv4-mapped IPv6 addresses"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseAddressRange(test.text)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Fatalf("got %s and error %v, want an error with %q", got, err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := AddressRange{First: netip.MustParseAddr(test.first), Last: netip.MustParseAddr(test.last)}
			if got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestAddressRangeContains(t *testing.T) {
	r, err := ParseAddressRange("192.0.2.4-192.0.2.9")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{
		"192.0.2.3":        false,
		"192.0.2.4":        true,
		"192.0.2.7":        true,
		"192.0.2.9":        true,
		"192.0.2.10":       false,
		"::ffff:192.0.2.7": true,
		"2001:db8::7":      false,
	}
	for address, want := range tests {
		if got := r.Contains(netip.MustParseAddr(address)); got != want {
			t.Errorf("Contains(%s) is %v", address, got)
		}
	}
	if r.Contains(netip.Addr{}) || (AddressRange{}).Contains(netip.MustParseAddr("192.0.2.7")) {
		t.Error("the zero address is in a range, or the zero range contains an address")
	}
}

func TestAddressRangeWithout(t *testing.T) {
	for _, test := range []struct{ name, text, others, want string }{
		{"none", "192.0.2.1-192.0.2.4", "", "192.0.2.1-192.0.2.4"},
		{"outside", "192.0.2.1-192.0.2.4", "192.0.2.0 192.0.2.5-192.0.2.9", "192.0.2.1-192.0.2.4"},
		{"inside, in any order", "192.0.2.1-192.0.2.9", "192.0.2.7 192.0.2.3-192.0.2.4", "192.0.2.1-192.0.2.2 192.0.2.5-192.0.2.6 192.0.2.8-192.0.2.9"},
		{"both ends", "192.0.2.1-192.0.2.9", "192.0.2.0-192.0.2.2 192.0.2.8-192.0.2.12", "192.0.2.3-192.0.2.7"},
		{"overlapping, one inside of another", "192.0.2.1-192.0.2.9", "192.0.2.2-192.0.2.7 192.0.2.3 192.0.2.6-192.0.2.8", "192.0.2.1 192.0.2.9"},
		{"all", "192.0.2.1-192.0.2.9", "192.0.2.1-192.0.2.4 192.0.2.5-192.0.2.9", ""},
		{"the last address", "255.255.255.254/31", "255.255.255.255", "255.255.255.254"},
		{"up to the last address", "255.255.255.0/24", "255.255.255.0/24", ""},
		{"another address family", "0.0.0.0-0.0.0.9", "::/0", "0.0.0.0-0.0.0.9"},
	} {
		t.Run(test.name, func(t *testing.T) {
			parse := func(text string) AddressRange {
				r, err := ParseAddressRange(text)
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			var others []AddressRange
			for text := range strings.FieldsSeq(test.others) {
				others = append(others, parse(text))
			}
			var got []string
			for _, r := range parse(test.text).Without(others...) {
				got = append(got, r.String())
			}
			if text := strings.Join(got, " "); text != test.want {
				t.Errorf("got %s, want %s", text, test.want)
			}
		})
	}
}

func TestAddressRangeStringCanBeParsed(t *testing.T) {
	for _, text := range []string{"192.0.2.4", "192.0.2.4-192.0.2.9", "2001:db8::1-2001:db8::f"} {
		r, err := ParseAddressRange(text)
		if err != nil {
			t.Fatal(err)
		}
		if r.String() != text {
			t.Errorf("%s is written as %s", text, r)
		}
	}
}

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
