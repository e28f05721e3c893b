package views

import (
	"strings"
	"testing"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/lab"
)

func TestParseRecords(t *testing.T) {
	list, err := ParseRecords(strings.NewReader(`
$ORIGIN example.com.
NFS 60 IN A 192.0.2.9
NFS 60 IN A 192.0.2.8 ; the second one
files IN CNAME nfs
_ldap._tcp IN SRV 10 20 389 nfs
text IN TXT "a \"quoted\" \228" "b"
9.2.0.192.in-addr.arpa. IN PTR nfs
`), "db.records")
	lab.Must(t, err)
	want := []v1alpha1.DNSRecord{
		{Name: "nfs.example.com", Type: "A", Values: []string{"192.0.2.9", "192.0.2.8"}},
		{Name: "files.example.com", Type: "CNAME", Values: []string{"nfs.example.com."}},
		{Name: "_ldap._tcp.example.com", Type: "SRV", Values: []string{"10 20 389 nfs.example.com."}},
		{Name: "text.example.com", Type: "TXT", Values: []string{"a \"quoted\" \xe4b"}},
		{Name: "9.2.0.192.in-addr.arpa", Type: "PTR", Values: []string{"nfs.example.com."}},
	}
	if len(list) != len(want) || *list[0].TTL != 60 || *list[1].TTL != 60 { // the last TTL of the file
		t.Fatalf("got %+v", list)
	}
	for i := range want {
		if got := list[i]; got.Name != want[i].Name || got.Type != want[i].Type || strings.Join(got.Values, ",") != strings.Join(want[i].Values, ",") {
			t.Errorf("got %+v, want %+v", got, want[i])
		}
	}
	for text, message := range map[string]string{
		"a.example.com. IN MX 10 b.example.com.":                           "a.example.com.: records of type MX are not supported",
		"a.example.com. 1 IN A 192.0.2.1\na.example.com. 2 IN A 192.0.2.2": "the records of type A have different TTLs",
		"a.example.com. IN A 192.0.2.256":                                  "db.records: dns: bad A A: \"192.0.2.256\" at line: 1:31",
	} {
		if _, err := ParseRecords(strings.NewReader(text), "db.records"); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%q: got %v, want %s", text, err, message)
		}
	}
}

// FuzzParseRecords parses arbitrary files. Records that are parsed are served or reported.
func FuzzParseRecords(f *testing.F) {
	f.Add("$ORIGIN example.com.\na IN A 192.0.2.9\n*.b 0 IN TXT \"\\000\"\n$GENERATE 1-3 c$ AAAA 2001:db8::$")
	f.Add("a.example.com. IN SRV 1 2 3 .\n_acme-challenge.example.com. IN PTR a")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseRecords(strings.NewReader(text), "file")
		if err != nil {
			return
		}
		set, faults := model.NewRecordSet(model.Ref{Kind: "File", Name: "file"}, "records", list)
		if len(set.Records)+len(faults) != len(list) {
			t.Errorf("%d records are served and %d reported, of %d", len(set.Records), len(faults), len(list))
		}
	})
}
