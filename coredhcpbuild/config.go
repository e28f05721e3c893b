package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/coredhcp/coredhcp/config"
	"github.com/coredhcp/coredhcp/handler"
	"github.com/coredhcp/coredhcp/plugins"
	"github.com/coredhcp/coredhcp/plugins/dns"
	"github.com/coredhcp/coredhcp/plugins/netmask"
	"github.com/coredhcp/coredhcp/plugins/router"
	"go.yaml.in/yaml/v3"

	"github.com/densityops/oooi/plugins/kubevirt"
	"github.com/densityops/oooi/plugins/leasedb"
)

// A configuration is a configuration of CoreDHCP with only server4, and the lines of its plugins in the file.
type configuration struct {
	*config.Config

	path    string
	content []byte
	lines   []int
}

// load reads and checks a configuration file. It returns an error, which names the line, for anything that CoreDHCP
// would silently ignore.
func load(path string) (*configuration, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	c := &configuration{path: path, content: data}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(doc.Content) == 0 {
		return nil, fmt.Errorf("%s: file is empty; server4 is required", path)
	}
	for key, value := range pairs(doc.Content[0]) {
		switch key.Value {
		case "server4":
			c.lines, err = c.checkServer(value, key.Value)
		case "server6":
			err = c.errorf(key, "server6: DHCPv6 is not served; remove this part, and let the VLAN's router announce IPv6 prefixes (SLAAC) or serve DHCPv6 "+
				"with another program")
		default:
			err = c.errorf(key, "unknown key %q; must be server4", key.Value)
		}
		if err != nil {
			return nil, err
		}
	}
	if doc.Content[0].Kind != yaml.MappingNode {
		return nil, c.errorf(doc.Content[0], "must be a mapping with the key server4")
	}
	if c.lines == nil {
		return nil, c.errorf(doc.Content[0], "server4 is missing")
	}
	if c.Config, err = config.Load(path); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	err = c.checkLeasedb()
	return c, err
}

// checkLeasedb checks the other plugins against leasedb, and adds the addresses of routers and DNS servers to leasedb's
// protected ones. Plugins cannot do this, because they cannot read each other's arguments.
func (c *configuration) checkLeasedb() error {
	at := slices.IndexFunc(c.Server4.Plugins, func(p config.PluginConfig) bool { return p.Name == leasedb.Plugin.Name })
	if at < 0 {
		return nil
	}
	for i, p := range c.Server4.Plugins[at:] {
		if p.Name == kubevirt.Plugin.Name { // leasedb would treat VMs as ordinary clients, whose leases expire
			return fmt.Errorf("%s:%d: kubevirt: must precede leasedb; move it up", c.path, c.lines[at+i])
		}
	}
	leases := &c.Server4.Plugins[at]
	cidr, inRanges, err := leasedb.Network(leases.Args...)
	if err != nil {
		return nil //nolint:nilerr // reported with its line when the plugin is set up
	}
	var all []error
	var addresses []netip.Addr
	for i, p := range c.Server4.Plugins {
		failed := func(format string, args ...any) {
			all = append(all, fmt.Errorf("%s:%d: %s: %s", c.path, c.lines[i], p.Name, fmt.Sprintf(format, args...)))
		}
		switch p.Name {
		case netmask.Plugin.Name:
			if mask := net.IP(net.CIDRMask(cidr.Bits(), cidr.Addr().BitLen())).String(); len(p.Args) == 1 && net.ParseIP(p.Args[0]) != nil && p.Args[0] != mask {
				failed("%s contradicts cidr=%s of leasedb; write %s", p.Args[0], cidr, mask)
			}
		case router.Plugin.Name, dns.Plugin.Name:
			for _, text := range p.Args {
				a, err := netip.ParseAddr(text)
				if err != nil || !cidr.Contains(a) {
					continue
				}
				if inRanges(a) {
					failed("%s is in a range of leasedb, and could be leased to a client; add exclude=%s to leasedb", a, a)
				}
				addresses = append(addresses, a)
			}
		}
	}
	leases.Args = leasedb.Protect(leases.Args, addresses)
	return errors.Join(all...)
}

// routersAndResolvers returns the addresses of routers and DNS servers that clients get.
func (c *configuration) routersAndResolvers() []netip.Addr {
	var list []netip.Addr
	for _, p := range c.Server4.Plugins {
		if p.Name != dns.Plugin.Name && p.Name != router.Plugin.Name {
			continue
		}
		for _, text := range p.Args {
			if a, err := netip.ParseAddr(text); err == nil {
				list = append(list, a)
			}
		}
	}
	return list
}

func (c *configuration) errorf(at *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", c.path, at.Line, fmt.Sprintf(format, args...))
}

// pairs iterates over keys and values of a mapping. Other nodes have none.
func pairs(n *yaml.Node) func(func(key, value *yaml.Node) bool) {
	return func(yield func(key, value *yaml.Node) bool) {
		if n.Kind != yaml.MappingNode {
			return
		}
		for pair := range slices.Chunk(n.Content, 2) {
			if !yield(pair[0], pair[1]) {
				return
			}
		}
	}
}

// checkServer checks server4 and returns the lines of its plugins.
func (c *configuration) checkServer(n *yaml.Node, name string) ([]int, error) {
	if n.Kind != yaml.MappingNode {
		return nil, c.errorf(n, "%s: must be a mapping with listen and plugins", name)
	}
	var lines []int
	for key, value := range pairs(n) {
		switch key.Value {
		case "listen", "interface":
			if err := c.checkListen(value, name+"."+key.Value); err != nil {
				return nil, err
			}
		case "plugins":
			for _, item := range value.Content {
				if err := c.checkPlugin(item); err != nil {
					return nil, err
				}
				lines = append(lines, item.Line)
			}
		default:
			return nil, c.errorf(key, "%s: unknown key %q; must be listen, interface or plugins", name, key.Value)
		}
	}
	if len(lines) == 0 {
		return nil, c.errorf(n, "%s.plugins: must be a list of at least one plugin", name)
	}
	return lines, nil
}

func (c *configuration) checkListen(n *yaml.Node, name string) error {
	for _, item := range append([]*yaml.Node{n}, n.Content...) {
		if item.Kind == yaml.MappingNode || item != n && item.Kind != yaml.ScalarNode {
			return c.errorf(item, "%s: must be an address such as \"%%net1\", or a list of addresses", name)
		}
	}
	return nil
}

// checkPlugin checks one entry of the list of plugins. CoreDHCP would treat a list or mapping of arguments as no
// arguments.
func (c *configuration) checkPlugin(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode || len(n.Content) != 2 {
		return c.errorf(n, "must be one plugin, as \"name: arguments\"")
	}
	name, args := n.Content[0], n.Content[1]
	if plugins.RegisteredPlugins[name.Value] == nil {
		return c.errorf(name, "unknown plugin %q; must be one of %s", name.Value, names())
	}
	if args.Kind != yaml.ScalarNode {
		return c.errorf(args, "%s: arguments must be one string, such as \"key=value key=value\", not a list or mapping", name.Value)
	}
	return nil
}

func names() string {
	var list []string
	for _, p := range known() {
		list = append(list, p.Name)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// each calls f for each plugin, with a configuration of this plugin only, and adds file, line and plugin to its
// error.
func (c *configuration) each(f func(single *config.Config, p config.PluginConfig) error) error {
	var all []error
	for i, p := range c.Server4.Plugins {
		single := &config.Config{Server4: &config.ServerConfig{Plugins: []config.PluginConfig{p}}}
		err := f(single, p)
		if err != nil && !strings.HasPrefix(err.Error(), p.Name+":") { // oooi's plugins add their names themselves
			err = fmt.Errorf("%s: %w", p.Name, err)
		}
		if err != nil {
			all = append(all, fmt.Errorf("%s:%d: %w", c.path, c.lines[i], err))
		}
	}
	return errors.Join(all...)
}

// handlers sets up the plugins in order, up to the first one that fails.
func (c *configuration) handlers() (list []handler.Handler4, err error) {
	failed := false
	err = c.each(func(single *config.Config, _ config.PluginConfig) error {
		if failed {
			return nil
		}
		more, _, err := plugins.LoadPlugins(single)
		list, failed = append(list, more...), err != nil
		return err
	})
	return list, err
}
