package leasedb

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
)

// config contains the plugin's arguments.
type config struct {
	store string // storeKubernetes or storeBolt
	pool  string

	namespace, kubeconfig, context, snapshot string // of storeKubernetes
	file                                     string // of storeBolt

	cidr   netip.Prefix
	ranges pool.Ranges
	// protected are addresses that are leased to no client, not even by a reservation: the argument protected,
	// server, and the first and last address of cidr.
	protected         []v1alpha1.AddressRange
	server            netip.Addr
	lease, quarantine time.Duration
	// relays are the networks of relay agents outside of cidr that are served; empty for all.
	relays []netip.Prefix
	// probe is the number of free addresses to probe in advance.
	probe int
}

const (
	storeKubernetes = "kubernetes"
	storeBolt       = "bolt"

	defaultPool       = "default"
	defaultLease      = time.Hour
	defaultQuarantine = 10 * time.Minute

	minLease = time.Minute
	maxLease = 365 * 24 * time.Hour

	// maxProbe limits the load on the kernel's neighbor table, which by default has room for about a thousand
	// entries.
	maxProbe = 256
)

// Names of the arguments, for any store and by store.
var (
	repeatable      = []string{"range", "exclude", "protected", "relay"}
	commonArguments = []string{"store", "pool", "range", "exclude", "protected", "cidr", "server", "relayed", "relay", "lease", "quarantine", "probe"}
	storeArguments  = map[string][]string{
		storeKubernetes: {"namespace", "kubeconfig", "context", "snapshot"},
		storeBolt:       {"file"},
	}
)

// poolName matches a pool name: a valid prefix of the name of a Lease object.
var poolName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,198}[a-z0-9])?$`)

// parse parses the arguments, which CoreDHCP has split at white space.
func parse(args []string) (config, error) {
	values := map[string][]string{}
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		switch {
		case !ok || key == "":
			return config{}, fmt.Errorf("leasedb: %q is not key=value; CoreDHCP splits the arguments at white space", arg)
		case value == "":
			return config{}, fmt.Errorf("leasedb: %s is empty; set a value or remove it", key)
		case !slices.Contains(repeatable, key) && values[key] != nil:
			return config{}, fmt.Errorf("leasedb: duplicate argument %s, with the values %s and %s; remove one", key, values[key][0], value)
		}
		values[key] = append(values[key], value)
	}
	p := parser{values: values, c: config{}}
	p.parse()
	if p.err != nil {
		return config{}, fmt.Errorf("leasedb: %w", p.err)
	}
	return p.c, nil
}

// A parser keeps the first error.
type parser struct {
	values map[string][]string
	c      config
	err    error
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

func (p *parser) value(key, fallback string) string {
	if v := p.values[key]; v != nil {
		return v[0]
	}
	return fallback
}

func (p *parser) parse() {
	c := &p.c
	c.store = p.value("store", "")
	if _, ok := storeArguments[c.store]; !ok {
		p.fail("store=%s: must be %s or %s", c.store, storeKubernetes, storeBolt)
		return
	}
	known := slices.Concat(commonArguments, storeArguments[c.store])
	for key, v := range p.values {
		if !slices.Contains(known, key) {
			p.fail("%s=%s: unknown argument for store=%s; expected one of %s", key, v[0], c.store, strings.Join(known, ", "))
		}
	}
	c.file, c.namespace, c.snapshot = p.value("file", ""), p.value("namespace", ""), p.value("snapshot", "")
	c.kubeconfig, c.context = p.value("kubeconfig", ""), p.value("context", "")
	switch c.store {
	case storeBolt:
		c.pool = p.value("pool", defaultPool)
		if c.file == "" {
			p.fail("file is missing; set it to the lease file, on a volume that outlives the process")
		}
	case storeKubernetes:
		c.pool = p.value("pool", "")
		if c.namespace == "" || c.pool == "" {
			p.fail("namespace or pool is missing; set the namespace of the Leases, and a pool name that all replicas on the network share")
		}
		if c.context != "" && c.kubeconfig == "" {
			p.fail("context=%s requires kubeconfig", c.context)
		}
	}
	if !poolName.MatchString(c.pool) {
		p.fail("pool=%s: must be at most 200 lower-case letters, digits, dots and hyphens, the first and last a letter or digit", c.pool)
	}
	c.lease = p.duration("lease", defaultLease, minLease, maxLease)
	c.quarantine = p.duration("quarantine", defaultQuarantine, 0, maxLease)
	if text := p.value("probe", ""); text != "" {
		var err error
		if c.probe, err = strconv.Atoi(text); err != nil || c.probe < 1 || c.probe > maxProbe {
			p.fail("probe=%s: must be the number of free addresses to probe in advance, from 1 to %d", text, maxProbe)
		}
	}
	for _, text := range p.values["relay"] {
		relays, err := netip.ParsePrefix(text)
		if err != nil || !relays.Addr().Is4() || relays != relays.Masked() {
			p.fail("relay=%s: must be the IPv4 network of relay agents, such as 198.51.100.0/24", text)
		}
		c.relays = append(c.relays, relays)
	}
	p.network()
}

// servesRelay reports whether requests of a relay agent are served.
func (c *config) servesRelay(agent netip.Addr) bool {
	return len(c.relays) == 0 || c.cidr.Contains(agent) || slices.ContainsFunc(c.relays, func(r netip.Prefix) bool { return r.Contains(agent) })
}

func (p *parser) duration(key string, fallback, shortest, longest time.Duration) time.Duration {
	text := p.value(key, "")
	if text == "" {
		return fallback
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < shortest || d > longest || d%time.Second != 0 {
		p.fail("%s=%s: must be whole seconds between %s and %s, such as 90m", key, text, shortest, longest)
	}
	return d
}

// network parses the arguments about addresses.
func (p *parser) network() {
	c := &p.c
	var err error
	if c.cidr, err = netip.ParsePrefix(p.value("cidr", "")); err != nil || !c.cidr.Addr().Is4() || c.cidr != c.cidr.Masked() {
		p.fail("cidr=%s: must be the IPv4 network of the clients, such as 192.0.2.0/24", p.value("cidr", ""))
		return
	}
	c.protected = p.ranges("protected")
	protect := func(a netip.Addr) { c.protected = append(c.protected, v1alpha1.AddressRange{First: a, Last: a}) }
	p.server()
	protect(c.server)
	if c.cidr.Bits() < 31 { // RFC 3021
		protect(c.cidr.Addr())
		protect(v1alpha1.RangeOf(c.cidr).Last)
	}
	ranges, excluded := p.ranges("range"), p.ranges("exclude")
	if ranges == nil {
		p.fail("range is missing; set the addresses to lease, such as range=FIRST-LAST")
	}
	if p.err == nil {
		if c.ranges, err = pool.NewRanges(ranges, append(excluded, c.protected...)); err != nil {
			p.fail("range=%s: %w", strings.Join(p.values["range"], " range="), err)
		}
	}
}

// server parses the address of this server. Clients renew at that address, so it must be in their network, unless
// they reach it through a relay agent.
func (p *parser) server() {
	c, text := &p.c, p.value("server", "")
	var err error
	if c.server, err = netip.ParseAddr(text); err != nil || !c.server.Is4() || c.server.IsUnspecified() {
		p.fail("server=%s: must be the IPv4 address at which clients reach this server", text)
	}
	relayed, err := strconv.ParseBool(p.value("relayed", "false"))
	if err != nil {
		p.fail("relayed=%s: must be true or false", p.value("relayed", ""))
	}
	switch {
	case !c.cidr.Contains(c.server) && !relayed:
		p.fail("server=%s: not inside cidr=%s, so clients cannot renew; set the address of this server in that network, or add relayed=true if clients "+
			"reach it through a relay agent and a route", text, c.cidr)
	case c.cidr.Bits() < 31 && (c.server == c.cidr.Addr() || c.server == v1alpha1.RangeOf(c.cidr).Last):
		p.fail("server=%s is the first or last address of cidr=%s, which no host can have; set the address of this server", text, c.cidr)
	}
}

// ranges parses the arguments with a key. A network is not a range, because it also contains addresses that are not for
// clients; in the other arguments it must not have host bits, which would be ignored.
func (p *parser) ranges(key string) []v1alpha1.AddressRange {
	syntax := "an address, NETWORK/LENGTH or FIRST-LAST"
	if key == "range" {
		syntax = "an address or FIRST-LAST"
	}
	var list []v1alpha1.AddressRange
	for _, text := range p.values[key] {
		r, err := v1alpha1.ParseAddressRange(text)
		network, notNetwork := netip.ParsePrefix(text)
		switch {
		case err != nil:
		case notNetwork == nil && key == "range":
			err = errors.New("is a network")
		case notNetwork == nil && network != network.Masked():
			err = fmt.Errorf("has host bits; the network is %v", network.Masked())
		case strings.Contains(text, ":") || !p.c.cidr.Contains(r.First) || !p.c.cidr.Contains(r.Last):
			err = fmt.Errorf("not inside cidr=%v", p.c.cidr)
		}
		if err != nil {
			p.fail("%s=%s: %w; must be %s inside cidr", key, text, err, syntax)
			continue
		}
		list = append(list, r)
	}
	return list
}

// family is the address family of all pools, in metrics, states and stores.
const family = "ipv4"

// nameWithFamily returns the name of the pool with its address family.
func (c config) nameWithFamily() string { return c.pool + "/" + family }

// sharesBindings reports whether both configurations store the same bindings.
func (c config) sharesBindings(o config) bool {
	return c.store == o.store && c.pool == o.pool && c.file == o.file && c.namespace == o.namespace
}
