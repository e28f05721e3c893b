package envoy

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// Listeners are the listeners of one Envoy.
type Listeners struct {
	Header `json:",inline"`

	Listeners []Listener `json:"listeners"`
	// Port is the port of the only listener that Read returns; 0 for all.
	Port uint16 `json:"-"`
}

// States of a Listener.
const (
	active   = "active"
	warming  = "warming"  // waits for its configuration
	draining = "draining" // accepts no connections; Envoy closes the open ones
	rejected = "rejected" // Envoy has never received a valid configuration
)

// A Listener accepts connections on one port.
type Listener struct {
	Name string `json:"name"`
	Port uint16 `json:"port"`
	// Protocol is TCP or UDP.
	Protocol string `json:"protocol"`
	// Addresses are the addresses with the port.
	Addresses []string `json:"addresses"`
	// State is active, warming, draining or rejected.
	State string `json:"state"`
	// Error is why Envoy rejected an update of the listener; empty if the last update was accepted.
	Error        string        `json:"error,omitempty"`
	FilterChains []FilterChain `json:"filterChains"`
	// Connections is the number of open connections, or of UDP sessions.
	Connections int64 `json:"connections"`

	udpStats string // prefix of the stats of UDP sessions
}

// Values of Listener.Protocol.
const (
	tcp = "TCP"
	udp = "UDP"
)

// A FilterChain handles the connections that match it. A UDP listener has one filter chain for all datagrams.
type FilterChain struct {
	// Name is the owner and the name of a route, or another name that xdsd selects.
	Name string `json:"name"`
	// ServerNames are the names that match; empty for any.
	ServerNames []string `json:"serverNames,omitempty"`
	// TransportProtocol is tls or raw_buffer; empty for both.
	TransportProtocol string `json:"transportProtocol,omitempty"`
	// Cluster is the target of connections; empty if another filter than tcp_proxy handles them.
	Cluster string `json:"cluster,omitempty"`
	// Routes is the name of the HTTP route configuration; empty for other protocols.
	Routes string `json:"routes,omitempty"`
}

// listenerDump is the used part of envoy.admin.v3.ListenersConfigDump.DynamicListener.
type listenerDump struct {
	Name     string         `json:"name"`
	Active   *listenerState `json:"active_state"`
	Warming  *listenerState `json:"warming_state"`
	Draining *listenerState `json:"draining_state"`
	Error    struct {
		Details string         `json:"details"`
		Failed  listenerConfig `json:"failed_configuration"`
	} `json:"error_state"`
}

type listenerState struct {
	Listener listenerConfig `json:"listener"`
}

type listenerConfig struct {
	Name       string  `json:"name"`
	Address    address `json:"address"`
	Additional []struct {
		Address address `json:"address"`
	} `json:"additional_addresses"`
	FilterChains []chainDump `json:"filter_chains"`
	Matcher      matcherDump `json:"filter_chain_matcher"`
	Default      *chainDump  `json:"default_filter_chain"`
	Filters      []struct {
		Config udpDump `json:"typed_config"`
	} `json:"listener_filters"`
}

// udpDump is the used part of udp_proxy. Other listener filters lack a matcher.
type udpDump struct {
	StatPrefix string `json:"stat_prefix"`
	Matcher    struct {
		OnNoMatch struct {
			Action struct {
				Config struct {
					Cluster string `json:"cluster"`
				} `json:"typed_config"`
			} `json:"action"`
		} `json:"on_no_match"`
	} `json:"matcher"`
}

// setUDP sets the fields of a UDP listener. The name of its route is the last part of the prefix of its stats.
func (l *Listener) setUDP(d *udpDump) {
	cluster := d.Matcher.OnNoMatch.Action.Config.Cluster
	if cluster == "" {
		return
	}
	l.Protocol, l.udpStats = udp, "udp."+d.StatPrefix
	l.FilterChains = []FilterChain{{Name: d.StatPrefix[strings.LastIndex(d.StatPrefix, ";")+1:], Cluster: cluster}}
}

// matcherDump is xdsd's matcher, which selects filter chains by name: a map by transport protocol, with a map by server
// name, and a list of suffixes for other names.
type matcherDump struct {
	Tree struct {
		Protocols struct {
			Map map[string]struct {
				actionDump `json:",inline"`

				Matcher struct {
					Tree struct {
						Names struct {
							Map map[string]actionDump `json:"map"`
						} `json:"exact_match_map"`
					} `json:"matcher_tree"`
					Other struct {
						Matcher struct {
							List struct {
								Matchers []struct {
									Predicate struct {
										Single struct {
											Value struct {
												Suffix string `json:"suffix"`
											} `json:"value_match"`
										} `json:"single_predicate"`
									} `json:"predicate"`
									OnMatch actionDump `json:"on_match"`
								} `json:"matchers"`
							} `json:"matcher_list"`
						} `json:"matcher"`
					} `json:"on_no_match"`
				} `json:"matcher"`
			} `json:"map"`
		} `json:"exact_match_map"`
	} `json:"matcher_tree"`
}

type actionDump struct {
	Action struct {
		Config struct {
			Chain string `json:"value"`
		} `json:"typed_config"`
	} `json:"action"`
}

// setMatches sets the matched names and protocols of filter chains without criteria, from the listener's matcher.
func (d *matcherDump) setMatches(chains []FilterChain) {
	byName := make(map[string]*FilterChain, len(chains))
	for i := range chains {
		byName[chains[i].Name] = &chains[i]
	}
	set := func(on actionDump, protocol string, names ...string) {
		if c := byName[on.Action.Config.Chain]; c != nil {
			c.TransportProtocol, c.ServerNames = protocol, names
		}
	}
	for protocol, on := range d.Tree.Protocols.Map {
		set(on.actionDump, protocol)
		for name, on := range on.Matcher.Tree.Names.Map {
			set(on, protocol, name)
		}
		for _, m := range on.Matcher.Other.Matcher.List.Matchers {
			set(m.OnMatch, protocol, "*"+m.Predicate.Single.Value.Suffix)
		}
	}
}

type chainDump struct {
	Name string `json:"name"`
	// Match is set by earlier versions of xdsd, which send no matcher.
	Match struct {
		ServerNames []string `json:"server_names"`
		Protocol    string   `json:"transport_protocol"`
	} `json:"filter_chain_match"`
	Filters []struct {
		Config struct {
			Cluster string `json:"cluster"` // of tcp_proxy
			Routes  struct {
				Name string `json:"route_config_name"`
			} `json:"rds"` // of http_connection_manager
		} `json:"typed_config"`
	} `json:"filters"`
}

func (c *chainDump) chain() FilterChain {
	f := FilterChain{Name: c.Name, ServerNames: c.Match.ServerNames, TransportProtocol: c.Match.Protocol}
	for i := range c.Filters {
		f.Cluster = cmp.Or(f.Cluster, c.Filters[i].Config.Cluster)
		f.Routes = cmp.Or(f.Routes, c.Filters[i].Config.Routes.Name)
	}
	return f
}

func (d *listenerDump) listener() Listener {
	l := Listener{Name: d.Name, Protocol: tcp, State: active, Error: d.Error.Details, FilterChains: []FilterChain{}}
	state := d.Active
	if state == nil {
		l.State, state = warming, d.Warming
	}
	if state == nil {
		l.State, state = draining, d.Draining
	}
	if state == nil {
		l.Name, l.State = cmp.Or(l.Name, d.Error.Failed.Name), rejected
		l.configure(&d.Error.Failed)
		l.FilterChains = []FilterChain{} // filter chains get no connections
		return l
	}
	l.configure(&state.Listener)
	return l
}

// configure sets the fields that depend on the configuration.
func (l *Listener) configure(c *listenerConfig) {
	l.setAddresses(c.Address)
	for _, a := range c.Additional {
		l.Addresses = append(l.Addresses, a.Address.String())
	}
	for i := range c.FilterChains {
		l.FilterChains = append(l.FilterChains, c.FilterChains[i].chain())
	}
	c.Matcher.setMatches(l.FilterChains)
	if c.Default != nil {
		l.FilterChains = append(l.FilterChains, c.Default.chain())
	}
	for i := range c.Filters {
		l.setUDP(&c.Filters[i].Config)
	}
}

func (l *Listener) setAddresses(first address, more ...address) {
	l.Port, l.Addresses = first.Socket.Port, []string{first.String()}
	for _, a := range more {
		l.Addresses = append(l.Addresses, a.String())
	}
}

// readListeners reads the listeners that xdsd configures, without their connections.
func readListeners(ctx context.Context, get Getter) ([]Listener, error) {
	dump, err := decode[struct {
		Configs []listenerDump `json:"configs"`
	}](ctx, get, "/config_dump?resource=dynamic_listeners")
	if err != nil {
		return nil, err
	}
	list := make([]Listener, 0, len(dump.Configs))
	for i := range dump.Configs {
		l := dump.Configs[i].listener()
		// Envoy lists a rejected listener again without a name.
		if again := dump.Configs[i].Name == ""; !again || !slices.ContainsFunc(list, func(o Listener) bool { return o.Name == l.Name }) {
			list = append(list, l)
		}
	}
	return list, nil
}

// Read reads the listeners, sorted by port: the listeners that xdsd configures, and the bootstrap configuration's
// listeners without filter chains.
func (l *Listeners) Read(ctx context.Context, get Getter) error {
	list, err := readListeners(ctx, get)
	if err != nil {
		return err
	}
	bound, err := decode[struct {
		Statuses []struct {
			Name       string    `json:"name"`
			Local      address   `json:"local_address"`
			Additional []address `json:"additional_local_addresses"`
		} `json:"listener_statuses"`
	}](ctx, get, "/listeners?format=json")
	if err != nil {
		return err
	}
	stats, err := decode[statsDump](ctx, get, `/stats?format=json&filter=^(listener%5C..*%5C.downstream_cx_active|udp%5C..*%5C.downstream_sess_active)$`)
	if err != nil {
		return err
	}
	for _, s := range bound.Statuses {
		if !slices.ContainsFunc(list, func(l Listener) bool { return l.Name == s.Name }) {
			more := Listener{Name: s.Name, Protocol: tcp, State: active, FilterChains: []FilterChain{}}
			more.setAddresses(s.Local, s.Additional...)
			list = append(list, more)
		}
	}
	for i := range list {
		list[i].Connections = stats.connections(&list[i])
	}
	slices.SortStableFunc(list, func(a, b Listener) int { return cmp.Compare(a.Port, b.Port) })
	l.Listeners = slices.DeleteFunc(list, func(one Listener) bool { return l.Port != 0 && one.Port != l.Port })
	return nil
}

// connections returns the number of open connections or sessions of a listener. Stats are named after the
// stat_prefix, which only a static listener has, or the first address.
func (p *statsDump) connections(l *Listener) int64 {
	prefixes := []string{l.Name}
	if len(l.Addresses) > 0 {
		prefixes = append(prefixes, strings.ReplaceAll(l.Addresses[0], ":", "_"))
	}
	for _, s := range p.Stats {
		for _, prefix := range prefixes {
			if l.udpStats == "" && s.Name == "listener."+prefix+".downstream_cx_active" || l.udpStats != "" && s.Name == l.udpStats+".downstream_sess_active" {
				n, _ := s.Value.Int64() // a gauge is a number
				return n
			}
		}
	}
	return 0
}

// ListenersTable returns a table with a row for each listener.
func ListenersTable(reports []*Listeners, wide bool) *output.Table {
	var list []Row[Listener]
	for _, r := range reports {
		list = rows(list, r.Metadata.Name, r.Listeners)
	}
	return output.NewTable([]output.Column[Row[Listener]]{
		podColumn[Listener](),
		{Title: "PORT", Value: func(r Row[Listener]) string { return strconv.Itoa(int(r.Part.Port)) }},
		{Title: "NAME", Value: func(r Row[Listener]) string { return r.Part.Name }},
		{Title: "ADDRESSES", Value: func(r Row[Listener]) string { return strings.Join(r.Part.Addresses, ",") }},
		{Title: "STATE", Value: func(r Row[Listener]) string { return r.Part.State }},
		{Title: "CONNECTIONS", Value: func(r Row[Listener]) string { return strconv.FormatInt(r.Part.Connections, 10) }},
		{Title: "FILTER-CHAINS", Value: func(r Row[Listener]) string { return r.Part.chains(wide) }},
		{Title: "ERROR", Value: func(r Row[Listener]) string { return r.Part.Error }, Wide: true},
	}, list, wide)
}

// chains returns the number of filter chains or, if names is set, their names.
func (l *Listener) chains(names bool) string {
	if !names {
		return fmt.Sprint(len(l.FilterChains))
	}
	list := make([]string, len(l.FilterChains))
	for i := range l.FilterChains {
		list[i] = l.FilterChains[i].Name
	}
	return strings.Join(list, ",")
}
