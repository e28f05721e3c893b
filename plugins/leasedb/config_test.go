package leasedb

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	const good = "store=bolt file=/f cidr=192.0.2.0/24 server=192.0.2.2 range=192.0.2.10-192.0.2.19"
	tests := map[string]struct {
		args string
		err  string // empty: valid
	}{
		"bolt":                    {args: good},
		"kubernetes":              {args: "store=kubernetes namespace=clusters pool=clusters.demo cidr=192.0.2.0/24 server=192.0.2.2 range=192.0.2.10-192.0.2.19 snapshot=/s kubeconfig=/k context=c"},
		"times and exclusions":    {args: good + " exclude=192.0.2.11 exclude=192.0.2.13-192.0.2.14 lease=90m quarantine=0s range=192.0.2.30"},
		"no arguments":            {err: "store=: want kubernetes or bolt"},
		"unknown store":           {args: "store=sqlite", err: "store=sqlite: want kubernetes or bolt"},
		"unknown key":             {args: good + " leases=1h", err: "leases=1h: unknown argument for store=bolt; expected one of store, pool"},
		"key of another store":    {args: good + " namespace=x", err: "namespace=x: unknown argument for store=bolt"},
		"no key":                  {args: good + " 192.0.2.77", err: `"192.0.2.77" is not key=value`},
		"empty value":             {args: good + " lease=", err: "lease is empty"},
		"duplicate":               {args: good + " lease=1h lease=2h", err: "duplicate argument lease, with the values 1h and 2h"},
		"no file":                 {args: strings.Replace(good, "file=/f", "", 1), err: "file is missing"},
		"no pool":                 {args: "store=kubernetes namespace=x", err: "namespace or pool is missing"},
		"context, no kubeconfig":  {args: "store=kubernetes namespace=x pool=p context=c", err: "context=c requires kubeconfig"},
		"invalid pool":            {args: good + " pool=A/b", err: "pool=A/b: want"},
		"no range":                {args: "store=bolt file=/f cidr=192.0.2.0/24 server=192.0.2.2", err: "range is missing"},
		"invalid range":           {args: good + " range=192.0.2.9-192.0.2.1", err: "range=192.0.2.9-192.0.2.1: range \"192.0.2.9-192.0.2.1\" ends before it starts"},
		"range outside of cidr":   {args: good + " range=198.51.100.1", err: "range=198.51.100.1: not inside cidr=192.0.2.0/24"},
		"overlapping ranges":      {args: good + " range=192.0.2.12", err: "overlap"},
		"everything excluded":     {args: good + " exclude=192.0.2.0-192.0.2.99", err: "excluded"},
		"only the server address": {args: "store=bolt file=/f cidr=192.0.2.0/24 server=192.0.2.2 range=192.0.2.2", err: "excluded"},
		"no network":              {args: "store=bolt file=/f", err: "cidr=: want the IPv4 network of the clients, such as 192.0.2.0/24"},
		"protected addresses":     {args: good + " protected=192.0.2.1 protected=192.0.2.13-192.0.2.14"},
		"protected out of cidr":   {args: good + " protected=198.51.100.1", err: "protected=198.51.100.1: not inside cidr=192.0.2.0/24"},
		"server outside of cidr":  {args: strings.Replace(good, "server=192.0.2.2", "server=198.51.100.2", 1), err: "server=198.51.100.2: not inside cidr=192.0.2.0/24, so clients cannot renew"},
		"server behind a relay":   {args: strings.Replace(good, "server=192.0.2.2", "server=198.51.100.2 relayed=true", 1)},
		"relays":                  {args: good + " relay=198.51.100.0/24 relay=203.0.113.1/32"},
		"relays with host bits":   {args: good + " relay=198.51.100.1/24", err: "relay=198.51.100.1/24: want the IPv4 network of relay agents"},
		"IPv6 relays":             {args: good + " relay=2001:db8::/64", err: "relay=2001:db8::/64: want the IPv4 network"},
		"invalid relayed":         {args: good + " relayed=perhaps", err: "relayed=perhaps: want true or false"},
		"network address":         {args: strings.Replace(good, "server=192.0.2.2", "server=192.0.2.0", 1), err: "server=192.0.2.0 is the first or last address"},
		"broadcast address":       {args: strings.Replace(good, "server=192.0.2.2", "server=192.0.2.255", 1), err: "server=192.0.2.255 is the first or last address"},
		"IPv6":                    {args: "store=bolt file=/f cidr=2001:db8::/64 range=2001:db8::10-2001:db8::ffff", err: "cidr=2001:db8::/64: want the IPv4 network of the clients"},
		"too many addresses":      {args: "store=bolt file=/f cidr=10.0.0.0/8 server=10.0.0.1 range=10.0.1.0-10.255.255.255", err: "more than 1048576 addresses"},
		"host bits":               {args: strings.Replace(good, "192.0.2.0/24", "192.0.2.1/24", 1), err: "cidr=192.0.2.1/24: want the IPv4 network"},
		"no server":               {args: strings.Replace(good, "server=192.0.2.2", "", 1), err: "server=: want the IPv4 address"},
		"IPv6 server":             {args: strings.Replace(good, "server=192.0.2.2", "server=::1", 1), err: "server=::1: want the IPv4 address"},
		"short lease":             {args: good + " lease=1s", err: "lease=1s: want whole seconds between 1m0s"},
		"lease without a unit":    {args: good + " lease=3600", err: "lease=3600: want whole seconds"},
		"lease in milliseconds":   {args: good + " lease=60500ms", err: "lease=60500ms: want whole seconds"},
		"probe":                   {args: good + " probe=32"},
		"probe too small":         {args: good + " probe=0", err: "probe=0: want the number of free addresses"},
		"probe too large":         {args: good + " probe=1000", err: "probe=1000: want the number of free addresses"},
		"invalid exclusion":       {args: good + " exclude=x", err: `exclude=x: "x" is not an IPv4 or IPv6 address: want an address, NETWORK/LENGTH or FIRST-LAST inside cidr`},
		"networks":                {args: good + " exclude=192.0.2.12/30 protected=192.0.2.18/32"},
		"network with host bits":  {args: good + " exclude=192.0.2.13/30", err: "exclude=192.0.2.13/30: has host bits; the network is 192.0.2.12/30: want"},
		"network outside of cidr": {args: good + " exclude=192.0.2.0/23", err: "exclude=192.0.2.0/23: not inside cidr=192.0.2.0/24"},
		"network as a range":      {args: good + " range=192.0.2.64/28", err: "range=192.0.2.64/28: is a network: want an address or FIRST-LAST inside cidr"},
		"range with a length":     {args: good + " range=192.0.2.64-192.0.2.70/28", err: "has a prefix length"},
		"IPv4-mapped address":     {args: good + " exclude=::ffff:192.0.2.12", err: "exclude=::ffff:192.0.2.12: not inside cidr"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := Check(strings.Fields(tt.args)...)
			switch {
			case tt.err == "" && err != nil:
				t.Error(err)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err) || !strings.HasPrefix(err.Error(), "leasedb: ")):
				t.Errorf("got %v, want %q", err, tt.err)
			}
		})
	}
}

func TestProtectedAddressesAreNotLeased(t *testing.T) {
	c, err := parse(strings.Fields("store=bolt file=/f cidr=192.0.2.0/28 server=192.0.2.2 range=192.0.2.0-192.0.2.15 exclude=192.0.2.4 exclude=192.0.2.8/30 protected=192.0.2.6"))
	if err != nil {
		t.Fatal(err)
	}
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
