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

	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
)

// config is what the plugin's arguments say.
type config struct {
	store string // storeKubernetes or storeBolt
	pool  string

	namespace, kubeconfig, context, snapshot string // of storeKubernetes
	file                                     string // of storeBolt

	cidr   netip.Prefix
	ranges pool.Ranges
	// own are addresses of the network that nobody gets, reserved or not; server is among them.
	own               []pool.Range
	server            netip.Addr
	lease, quarantine time.Duration
	// probe is how many free addresses are looked at ahead of need.
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

	// maxProbe is no burden for the kernel's table of neighbours, which has room for a thousand.
	maxProbe = 256
)

// The arguments. Only ranges may be given more than once.
var (
	repeatable = []string{"range", "exclude", "protected"}
	everywhere = []string{"store", "pool", "range", "exclude", "protected", "cidr", "server", "relayed", "lease", "quarantine", "probe"}
	ofStore    = map[string][]string{
		storeKubernetes: {"namespace", "kubeconfig", "context", "snapshot"},
		storeBolt:       {"file"},
	}
)

// poolName is what fits in front of an address in an object's name.
var poolName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,198}[a-z0-9])?$`)

// parse reads the arguments, as CoreDHCP has split them at white space.
func parse(args []string) (config, error) {
	values := map[string][]string{}
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		switch {
		case !ok || key == "":
			return config{}, fmt.Errorf("leasedb: %q is not key=value: CoreDHCP splits the plugin's one line at white space", arg)
		case value == "":
			return config{}, fmt.Errorf("leasedb: %s is empty: give it a value or leave it out", key)
		case !slices.Contains(repeatable, key) && values[key] != nil:
			return config{}, fmt.Errorf("leasedb: %s is there twice, as %s and %s: leave one out", key, values[key][0], value)
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

// parser keeps the first thing wrong.
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

func (p *parser) one(key, absent string) string {
	if v := p.values[key]; v != nil {
		return v[0]
	}
	return absent
}

func (p *parser) parse() {
	c := &p.c
	c.store = p.one("store", "")
	if _, ok := ofStore[c.store]; !ok {
		p.fail("store=%s: want %s or %s", c.store, storeKubernetes, storeBolt)
		return
	}
	known := slices.Concat(everywhere, ofStore[c.store])
	for key, v := range p.values {
		if !slices.Contains(known, key) {
			p.fail("%s=%s: store=%s has no such argument; it has %s", key, v[0], c.store, strings.Join(known, ", "))
		}
	}
	c.file, c.namespace, c.snapshot = p.one("file", ""), p.one("namespace", ""), p.one("snapshot", "")
	c.kubeconfig, c.context = p.one("kubeconfig", ""), p.one("context", "")
	switch c.store {
	case storeBolt:
		c.pool = p.one("pool", defaultPool)
		if c.file == "" {
			p.fail("file is missing: name the lease file, on a volume that outlives the process")
		}
	case storeKubernetes:
		c.pool = p.one("pool", "")
		if c.namespace == "" || c.pool == "" {
			p.fail("namespace or pool is missing: name the Leases' namespace, and a pool that all replicas on the network share")
		}
		if c.context != "" && c.kubeconfig == "" {
			p.fail("context=%s is of a kubeconfig: name that, too", c.context)
		}
	}
	if !poolName.MatchString(c.pool) {
		p.fail("pool=%s: want at most 200 lower-case letters, digits, dots and hyphens", c.pool)
	}
	c.lease = p.duration("lease", defaultLease, minLease, maxLease)
	c.quarantine = p.duration("quarantine", defaultQuarantine, 0, maxLease)
	if text := p.one("probe", ""); text != "" {
		var err error
		if c.probe, err = strconv.Atoi(text); err != nil || c.probe < 1 || c.probe > maxProbe {
			p.fail("probe=%s: want how many free addresses are to be looked at ahead of need, from 1 to %d", text, maxProbe)
		}
	}
	p.network()
}

func (p *parser) duration(key string, absent, least, most time.Duration) time.Duration {
	text := p.one(key, "")
	if text == "" {
		return absent
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most || d%time.Second != 0 {
		p.fail("%s=%s: want whole seconds between %s and %s, such as 90m", key, text, least, most)
	}
	return d
}

// network reads what addresses there are.
func (p *parser) network() {
	c := &p.c
	var err error
	if c.cidr, err = netip.ParsePrefix(p.one("cidr", "")); err != nil || !c.cidr.Addr().Is4() || c.cidr != c.cidr.Masked() {
		p.fail("cidr=%s: want the IPv4 network of the clients, such as 192.0.2.0/24", p.one("cidr", ""))
		return
	}
	c.own = p.ranges("protected")
	own := func(a netip.Addr) { c.own = append(c.own, pool.Range{First: a, Last: a}) }
	p.server()
	own(c.server)
	if c.cidr.Bits() < 31 { // RFC 3021
		own(c.cidr.Addr())
		own(lastOf(c.cidr))
	}
	ranges, excluded := p.ranges("range"), p.ranges("exclude")
	if ranges == nil {
		p.fail("range is missing: give the addresses to choose from, such as range=FIRST-LAST")
	}
	if p.err == nil {
		if c.ranges, err = pool.NewRanges(ranges, append(excluded, c.own...)); err != nil {
			p.fail("range=%s: %w", strings.Join(p.values["range"], " range="), err)
		}
	}
}

// server reads who we are. Clients renew at that address, so it is in their network, unless a relay agent leads to it.
func (p *parser) server() {
	c, text := &p.c, p.one("server", "")
	var err error
	if c.server, err = netip.ParseAddr(text); err != nil || !c.server.Is4() || c.server.IsUnspecified() {
		p.fail("server=%s: want the IPv4 address at which clients reach this server", text)
	}
	relayed, err := strconv.ParseBool(p.one("relayed", "false"))
	if err != nil {
		p.fail("relayed=%s: want true or false", p.one("relayed", ""))
	}
	switch {
	case !c.cidr.Contains(c.server) && !relayed:
		p.fail("server=%s: it is not inside cidr=%s, so clients cannot renew; name the address of this server there, or add relayed=true if a relay agent and a route lead to it", text, c.cidr)
	case c.cidr.Bits() < 31 && (c.server == c.cidr.Addr() || c.server == lastOf(c.cidr)):
		p.fail("server=%s: it is the first or the last address of cidr=%s, which no host can have", text, c.cidr)
	}
}

func (p *parser) ranges(key string) []pool.Range {
	var list []pool.Range
	for _, text := range p.values[key] {
		r, err := pool.ParseRange(text)
		if err == nil && (!p.c.cidr.Contains(r.First) || !p.c.cidr.Contains(r.Last)) {
			err = errors.New("it is not inside cidr=" + p.c.cidr.String())
		}
		if err != nil {
			p.fail("%s=%s: %w: want an address or FIRST-LAST", key, text, err)
			continue
		}
		list = append(list, r)
	}
	return list
}

// family is the address family of every pool, as metrics, states and stores have it.
const family = "ipv4"

// named is the pool's name with its address family.
func (c config) named() string { return c.pool + "/" + family }

// same reports whether two configurations would write the same bindings.
func (c config) same(o config) bool {
	return c.store == o.store && c.pool == o.pool && c.file == o.file && c.namespace == o.namespace
}

func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for i := p.Bits(); i < len(bytes)*8; i++ {
		bytes[i/8] |= 1 << (7 - i%8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}
