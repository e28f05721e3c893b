package leasedb

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

func TestArguments(t *testing.T) {
	const valid = "store=bolt file=/f cidr=192.0.2.0/24 server=192.0.2.2 range=192.0.2.10-192.0.2.19"
	golden.Errors(t, "testdata/arguments.txt", func(line string) error {
		return Check(strings.Fields(strings.Replace(strings.TrimPrefix(line, "no arguments"), "+", valid, 1))...)
	})
}

func TestProtectedAddressesAreNotLeased(t *testing.T) {
	c, err := parse(strings.Fields("store=bolt file=/f cidr=192.0.2.0/28 server=192.0.2.2 range=192.0.2.0-192.0.2.15 exclude=192.0.2.4 exclude=192.0.2.8/30 protected=192.0.2.6"))
	lab.Must(t, err)
	var got []string
	for i := range c.ranges.Size() {
		got = append(got, c.ranges.Addr(i).String())
	}
	if want := []string{"192.0.2.1", "192.0.2.3", "192.0.2.5", "192.0.2.7", "192.0.2.12", "192.0.2.13", "192.0.2.14"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("store=bolt file=/f cidr=192.0.2.0/24 server=192.0.2.2 range=192.0.2.10-192.0.2.19 exclude=192.0.2.12")
	f.Add("store=kubernetes namespace=a pool=b cidr=2001:db8::/64 range=2001:db8::-2001:db8::ff")
	f.Add("store=bolt file=/f cidr=255.255.255.255/32 server=1.1.1.1 relayed=true range=255.255.255.255")
	f.Fuzz(func(t *testing.T, args string) {
		c, err := parse(strings.Fields(args))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "leasedb: ") {
				t.Errorf("the error %q does not name the plugin", err)
			}
			return
		}
		if c.ranges.Size() == 0 || c.lease <= 0 || c.pool == "" {
			t.Errorf("%q is parsed as %+v", args, c)
		}
		for _, r := range c.protected {
			for _, a := range []netip.Addr{r.First, r.Last} {
				if _, ok := c.ranges.Number(a); ok {
					t.Errorf("%q leases the protected address %v", args, a)
				}
			}
		}
	})
}
