package read

import (
	"slices"
	"testing"
)

func TestCorefileForwarders(t *testing.T) {
	list := CorefileForwarders(".:53 {\n    forward . /etc/resolv.conf\n}\na.example:53, dns://b.example. c.example:5353 {\n  forward . 10.0.0.1 10.0.0.2:53\n}\n" +
		"d.example {\n  forward . 10.0.0.9\n}\n(snippet) {\n  errors\n}\n")
	var zones []string
	for _, f := range list {
		if f.ForwardsTo([]string{"10.0.0.2"}) {
			zones = append(zones, f.Zones...)
		}
	}
	if len(list) != 4 || !slices.Equal(zones, []string{"a.example", "b.example", "c.example"}) {
		t.Errorf("got %q of %v", zones, list)
	}
}

func FuzzCorefileForwarders(f *testing.F) {
	f.Add("a.example {\n forward . 10.0.0.1\n}")
	f.Fuzz(func(_ *testing.T, text string) { CorefileForwarders(text) })
}
