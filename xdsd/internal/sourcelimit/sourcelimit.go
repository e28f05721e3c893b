// Package sourcelimit limits the TCP connections of each source on a network interface, by nftables rules in the network
// namespace of the process. It requires the capability NET_ADMIN. The rules stay when the process ends.
package sourcelimit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Config are the limits of the sources on a network interface.
type Config struct {
	// Device is the network interface.
	Device string
	// Limits apply to each source outside Networks.
	Limits
	// Networks have other limits for their sources. If several contain a source, the most specific one applies.
	Networks []Network
	// Bits4 and Bits6 are prefix lengths: the addresses in one network of that length are one source.
	Bits4, Bits6 int
}

// Limits are the limits of one source; 0 means none.
type Limits struct {
	// Connections limits the open connections.
	Connections uint32 `json:"connections"`
	// PerSecond limits the new connections per second. Five times as many may arrive at once.
	PerSecond uint32 `json:"perSecond"`
}

// A Network has limits for its sources.
type Network struct {
	CIDR netip.Prefix
	Limits
}

// burst is how many seconds' connections may arrive at once.
const burst = 5

const (
	// maxSources is the number of sources that are counted. Those beyond are not limited.
	maxSources = 65535
	// maxLimited is the number of sources that State may name, and limitedFor how long it names them.
	maxLimited = 256
	limitedFor = 10 * time.Minute
)

// A Kind is one of the two limits of a source. It names a counter, and the sets of its sources in the kernel.
type Kind string

// Connections is the limit of open connections, Rate the limit of new connections per second.
const (
	Connections Kind = "connections"
	Rate        Kind = "rate"
)

// State has the counters of the rules.
type State struct {
	// Refused is the number of connections that were refused at each limit. A packet that repeats the request of a
	// connection counts again.
	Refused map[Kind]int64 `json:"refused"`
	// Sources are the clients that reached each limit within the last ten minutes, sorted: addresses, or networks if all
	// addresses in one are one client.
	Sources map[Kind][]string `json:"sources"`
}

// tablePrefix begins the names of oooi's tables. A hash of the rules follows, so that unchanged rules, with their
// counts, outlive the process.
const tablePrefix = "oooi-sources-"

// version changes with the rules that Apply writes for a Config.
const version = 2

func (c *Config) table() *nftables.Table {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %+v", version, *c))
	return &nftables.Table{Family: nftables.TableFamilyINet, Name: tablePrefix + hex.EncodeToString(sum[:6])}
}

// none reports whether no source is limited.
func (c *Config) none() bool { return c.Limits == Limits{} && len(c.Networks) == 0 }

// Apply limits the sources. Rules of another Config are replaced in one transaction; the same rules are kept. Without
// limits, there are no rules.
func (c *Config) Apply() error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("opening a connection to nftables: %w", err)
	}
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil && c.none() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing the tables of nftables: %w; the container needs the capability NET_ADMIN", err)
	}
	table := c.table()
	for _, t := range tables {
		switch {
		case t.Name == table.Name && !c.none():
			return nil
		case strings.HasPrefix(t.Name, tablePrefix):
			conn.DelTable(t)
		}
	}
	if !c.none() {
		conn.AddTable(table)
		err = c.addRules(&rules{Conn: conn, table: table})
	}
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		return fmt.Errorf("writing the rules of nftables: %w; the kernel needs nf_tables, nf_conntrack, nft_connlimit, nft_limit and nft_reject_inet", err)
	}
	return nil
}

// Read returns the counters of c's rules.
func (c *Config) Read() (*State, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("opening a connection to nftables: %w", err)
	}
	state := &State{Refused: map[Kind]int64{}, Sources: map[Kind][]string{}}
	if c.none() {
		return state, nil
	}
	table := c.table()
	for _, kind := range []Kind{Connections, Rate} {
		o, err := conn.GetObject(&nftables.CounterObj{Table: table, Name: string(kind)})
		if err != nil {
			return nil, fmt.Errorf("reading a counter of nftables: %w", err)
		}
		if counter, ok := o.(*nftables.CounterObj); ok {
			state.Refused[kind] = int64(counter.Packets) //nolint:gosec // cannot overflow
		}
		var sources []netip.Prefix
		for _, f := range families {
			elements, err := conn.GetSetElements(&nftables.Set{Table: table, Name: f.limited(kind), KeyType: f.keyType})
			if err != nil {
				return nil, fmt.Errorf("reading a set of nftables: %w", err)
			}
			for _, e := range elements {
				if a, ok := netip.AddrFromSlice(e.Key); ok {
					sources = append(sources, netip.PrefixFrom(a, c.bits(f)))
				}
			}
		}
		slices.SortFunc(sources, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
		for _, s := range sources {
			text := s.String()
			if s.IsSingleIP() {
				text = s.Addr().String()
			}
			state.Sources[kind] = append(state.Sources[kind], text)
		}
	}
	return state, nil
}

// A family is an IP version.
type family struct {
	name         string
	protocol     byte // NFPROTO
	keyType      nftables.SetDatatype
	offset, size uint32 // of the source address in the IP header
}

var families = []*family{
	{"4", unix.NFPROTO_IPV4, nftables.TypeIPAddr, 12, 4},
	{"6", unix.NFPROTO_IPV6, nftables.TypeIP6Addr, 8, 16},
}

// bits returns the length of the networks of a family that are one source each.
func (c *Config) bits(f *family) int {
	if f.size == 16 {
		return c.Bits6
	}
	return c.Bits4
}

// limited returns the name of the set of sources that reached a limit.
func (f *family) limited(k Kind) string { return "limited_" + string(k) + f.name }

// source returns expressions that load the network of a length that contains the source address into register 1.
func (f *family) source(bits int) []expr.Any {
	mask := make([]byte, f.size)
	for i := range bits {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: f.offset, Len: f.size},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: f.size, Mask: mask, Xor: make([]byte, f.size)},
	}
}

// is returns expressions that match packets of the family.
func (f *family) is() []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{f.protocol}}}
}

// rules adds objects to a table.
type rules struct {
	*nftables.Conn

	table *nftables.Table
}

// chain adds a base chain that accepts packets by default.
func (r *rules) chain(name string, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
	return r.AddChain(&nftables.Chain{Table: r.table, Name: name, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: priority})
}

func (r *rules) rule(chain *nftables.Chain, exprs ...[]expr.Any) {
	r.AddRule(&nftables.Rule{Table: r.table, Chain: chain, Exprs: slices.Concat(exprs...)})
}

// set adds a set that rules fill with source addresses.
func (r *rules) set(f *family, name string, size uint32, timeout time.Duration) (*nftables.Set, error) {
	s := &nftables.Set{Table: r.table, Name: name, KeyType: f.keyType, Dynamic: true, Size: size, HasTimeout: timeout > 0, Timeout: timeout}
	return s, r.AddSet(s, nil)
}

// isDevice returns expressions that match packets that arrive on a device, or leave on it, or that do not.
func isDevice(key expr.MetaKey, op expr.CmpOp, device string) []expr.Any {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, device)
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: name}}
}

var accept = []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}

// addRules adds the rules of c.
func (c *Config) addRules(r *rules) error {
	// Only connections on the device are tracked, so that those to backends use no entries of the kernel's table.
	notrack := []expr.Any{&expr.Notrack{}}
	r.rule(r.chain("prerouting", nftables.ChainHookPrerouting, nftables.ChainPriorityRaw), isDevice(expr.MetaKeyIIFNAME, expr.CmpOpNeq, c.Device), notrack)
	r.rule(r.chain("output", nftables.ChainHookOutput, nftables.ChainPriorityRaw), isDevice(expr.MetaKeyOIFNAME, expr.CmpOpNeq, c.Device), notrack)

	input := r.chain("input", nftables.ChainHookInput, nftables.ChainPriorityFilter)
	r.rule(input, isDevice(expr.MetaKeyIIFNAME, expr.CmpOpNeq, c.Device), accept)
	r.rule(input, []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{unix.IPPROTO_TCP}}}, accept)
	const flagsOffset, fin, syn, rst, ack = 13, 0x01, 0x02, 0x04, 0x10
	r.rule(input, []expr.Any{ // only the first packet of a connection
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: flagsOffset, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{fin | syn | rst | ack}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{syn}},
	}, accept)
	for _, kind := range []Kind{Connections, Rate} {
		r.AddObj(&nftables.CounterObj{Table: r.table, Name: string(kind)})
		for _, f := range families {
			if _, err := r.set(f, f.limited(kind), maxLimited, limitedFor); err != nil {
				return err
			}
		}
	}
	networks := slices.Clone(c.Networks)
	slices.SortStableFunc(networks, func(a, b Network) int { return b.CIDR.Bits() - a.CIDR.Bits() })
	for i, n := range networks {
		f := families[0]
		if n.CIDR.Addr().Is6() {
			f = families[1]
		}
		inNetwork := slices.Concat(f.is(), f.source(n.CIDR.Bits()), []expr.Any{&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: n.CIDR.Masked().Addr().AsSlice()}})
		if err := c.limit(r, input, f, inNetwork, n.Limits, fmt.Sprintf("network%d", i)); err != nil {
			return err
		}
		r.rule(input, inNetwork, accept)
	}
	for _, f := range families {
		if err := c.limit(r, input, f, f.is(), c.Limits, "source"); err != nil {
			return err
		}
	}
	return nil
}

// limit adds rules with limits for the sources in packets that match. name is part of the names of their sets.
func (c *Config) limit(r *rules, chain *nftables.Chain, f *family, match []expr.Any, limits Limits, name string) error {
	bits := c.bits(f)
	if limits.PerSecond > 0 {
		over := &expr.Limit{Type: expr.LimitTypePkts, Rate: uint64(limits.PerSecond), Over: true, Unit: expr.LimitTimeSecond, Burst: burst * limits.PerSecond}
		set, err := r.set(f, name+"_rate"+f.name, maxSources, time.Minute)
		if err != nil {
			return err
		}
		// A client repeats a dropped request after a second.
		r.rule(chain, match, f.source(bits), r.count(set, unix.NFT_DYNSET_OP_UPDATE, over), r.refuse(f, Rate), []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}})
	}
	if limits.Connections > 0 {
		over := &expr.Connlimit{Count: limits.Connections, Flags: expr.NFT_CONNLIMIT_F_INV}
		set, err := r.set(f, name+"_connections"+f.name, maxSources, 0) // the kernel removes sources without connections
		if err != nil {
			return err
		}
		r.rule(chain, match, f.source(bits), r.count(set, unix.NFT_DYNSET_OP_ADD, over), r.refuse(f, Connections),
			[]expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}})
	}
	return nil
}

// count returns an expression that counts for the source in register 1, and matches if it is over a limit.
func (*rules) count(set *nftables.Set, operation uint32, over expr.Any) []expr.Any {
	return []expr.Any{&expr.Dynset{SrcRegKey: 1, SetName: set.Name, SetID: set.ID, Operation: operation, Exprs: []expr.Any{over}}}
}

// refuse returns expressions that count a refused connection and remember its source, which is in register 1.
func (r *rules) refuse(f *family, kind Kind) []expr.Any {
	const counter = 1 // NFT_OBJECT_COUNTER
	return []expr.Any{
		&expr.Objref{Type: counter, Name: string(kind)},
		&expr.Dynset{SrcRegKey: 1, SetName: f.limited(kind), Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: limitedFor},
	}
}

// Validate returns an error that names an invalid field.
func (c *Config) Validate() error {
	switch {
	case c.Bits4 < 1 || c.Bits4 > 32:
		return fmt.Errorf("prefix length %d: must be from 1 to 32", c.Bits4)
	case c.Bits6 < 1 || c.Bits6 > 128:
		return fmt.Errorf("IPv6 prefix length %d: must be from 1 to 128", c.Bits6)
	}
	for i, n := range c.Networks {
		if !n.CIDR.IsValid() || n.CIDR != n.CIDR.Masked() || n.CIDR.Addr().Is4In6() {
			return fmt.Errorf("network %s: must be a network without host bits, such as 192.0.2.0/24", n.CIDR)
		}
		if slices.ContainsFunc(c.Networks[:i], func(other Network) bool { return other.CIDR == n.CIDR }) {
			return errors.New("network " + n.CIDR.String() + ": duplicate")
		}
	}
	return nil
}
