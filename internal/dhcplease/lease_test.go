package dhcplease

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/densityops/oooi/test/lab"
)

func TestLabelsAreValidAndUnique(t *testing.T) {
	long := strings.Repeat("x", 100)
	seen := map[string]string{}
	for _, text := range []string{"worker-0", "02:00:00:00:00:01", "clusters.demo", long + "1", long + "2", "ümläut", "...", "", strings.Repeat("-", 100)} {
		value := Label(text)
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			t.Errorf("the label of %q is %q: %v", text, value, problems)
		}
		if other, twice := seen[value]; twice && value != "" {
			t.Errorf("%q and %q both have the label %q", text, other, value)
		}
		seen[value] = text
	}
}

func TestNamesAreValidAndInvertible(t *testing.T) {
	for _, text := range []string{"192.0.2.10", "2001:db8::1", "::"} {
		addr := netip.MustParseAddr(text)
		if problems := validation.IsDNS1123Subdomain(Name("clusters.demo", addr)); len(problems) > 0 {
			t.Errorf("%s: %v", text, problems)
		}
		if pool, got, ok := ParseName(Name("clusters.demo", addr)); !ok || got != addr || pool != "clusters.demo" {
			t.Errorf("the name of %s is parsed as %s, %v, %v", text, pool, got, ok)
		}
	}
	for _, lease := range []string{
		"", "clusters.demo", "clusters.demo.", "192.0.2.10", "clusters.demo.192.0.2.010", "clusters.demo.2001-db8--1",
		"clusters.demo.192.0.2.10.x", "clusters.demo.fe80-0000-0000-0000-0000-0000-0000-0001%eth0",
	} {
		if pool, got, ok := ParseName(lease); ok {
			t.Errorf("%q is parsed as %s, %v", lease, pool, got)
		}
	}
}

func TestDecodeRejectsOtherPools(t *testing.T) {
	o := Object("clusters.other", time.Hour, Binding{Addr: netip.MustParseAddr("192.0.2.10"), Holder: "demo/a/vlan", Used: time.Now()})
	if b, err := Decode("clusters.demo", o); err == nil {
		t.Errorf("got %+v", b)
	}
}

func TestParseInterface(t *testing.T) {
	i := Interface{Namespace: "clusters-demo", VM: "worker-1", Name: "vlan"}
	if got, err := ParseInterface(i.String()); err != nil || got != i {
		t.Errorf("%q is parsed as %v, %v", i, got, err)
	}
	for _, text := range []string{"", "a", "a/b", "a/b/", "/b/c", "a//c", "a/b/c/d"} {
		if got, err := ParseInterface(text); err == nil {
			t.Errorf("%q is parsed as %v", text, got)
		}
	}
}

// TestUsualLeaseHasNoAnnotations checks that labels represent a usual binding completely.
func TestUsualLeaseHasNoAnnotations(t *testing.T) {
	o := Object("clusters.demo", time.Hour, Binding{
		Addr: netip.MustParseAddr("192.0.2.10"), Holder: "demo/worker-0/vlan", MAC: "02:00:00:00:00:01", Hostname: "worker-0", Used: time.Now(),
	})
	if len(o.Annotations) != 0 {
		t.Errorf("the annotations are %v, want none", o.Annotations)
	}
}

func FuzzBinding(f *testing.F) {
	used := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, b := range []Binding{
		{Addr: netip.MustParseAddr("192.0.2.10"), Holder: "demo/worker-0/vlan", MAC: "02:00:00:00:00:01", Used: used},
		{Addr: netip.MustParseAddr("2001:db8::1"), Holder: Declined, Expires: used, Used: used},
	} {
		seed, err := json.Marshal(Object("p", time.Hour, b))
		lab.Must(f, err)
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var o coordinationv1.Lease
		if json.Unmarshal(data, &o) != nil {
			return
		}
		b, err := Decode("p", &o)
		if err != nil {
			return
		}
		if !b.Addr.IsValid() || b.Holder == "" || b.Addr.Zone() != "" {
			t.Errorf("got %+v", b)
		}
		again, err := Decode("p", Object("p", time.Hour, b))
		if err != nil || again.Addr != b.Addr || again.Holder != b.Holder || !again.Expires.Equal(b.Expires) {
			t.Errorf("%+v is encoded and decoded as %+v, %v", b, again, err)
		}
	})
}
