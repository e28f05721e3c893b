// Package views implements what hcpviews and hcpapps share: their handler, the properties of their Corefile blocks, the
// stores they read from, and the mapping of clients to views.
package views

import (
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/coredns/coredns/plugin"
	"github.com/miekg/dns"

	"github.com/densityops/oooi/internal/watch"
)

// Views whose clients and addresses come from Infra objects.
const (
	// VLAN is the view of the VMs of a hosted cluster.
	VLAN = "vlan"
	// Pod is the view of the cluster DNS and of pods.
	Pod = "pod"
)

// Config is the configuration of the source and the views in a Corefile block.
type Config struct {
	// Source is the configuration of the store.
	Source watch.Config
	// Views are the views that clients get by their address, in the order of the Corefile. If both Views and
	// Block are empty, Infra objects define the views.
	Views []View
	// Block is the view of all clients of the server block, or empty.
	Block string
	// Answers maps a view to the addresses that names resolve to in it, instead of the Infras' addresses.
	Answers map[string]Answer
	// Guarded are zones whose queries are never passed on without a view, in lower case and with a trailing dot: they
	// get SERVFAIL before the first snapshot, and REFUSED if the client lacks a view. Empty for all names.
	Guarded []string
	// Records is a file with additional records; empty for none.
	Records string
	// Bound contains the addresses in the bind directive of the server block.
	Bound []netip.Addr
}

// A View assigns clients to a view by their address.
type View struct {
	// Name is the name of the view, and CIDRs are the networks of its clients.
	Name  string
	CIDRs []netip.Prefix
}

// An Answer is what control-plane names resolve to in a view: addresses, or the cluster IPs of a Service.
type Answer struct {
	Addresses []netip.Addr
	// Service is "namespace/name", or empty if Addresses are set.
	Service string
}

// A Parser parses the arguments of a property.
type Parser func(args []string) error

// parser returns the parser of a property that hcpviews and hcpapps share, or nil for another property.
func (cfg *Config) parser(property string) Parser {
	switch property {
	case "kubeconfig":
		return cfg.parseKubeconfig
	case "manifests":
		return oneArgument(&cfg.Source.Manifests, "path", nil)
	case "snapshot":
		return oneArgument(&cfg.Source.File, "path", nil)
	case "infra":
		return objectNames(&cfg.Source.Scope.Infras)
	case "hostedcluster":
		return objectNames(&cfg.Source.Scope.HostedClusters)
	case "proxyserver":
		cfg.Source.Backends = true
		return objectNames(&cfg.Source.Scope.ProxyServers)
	case "records":
		return oneArgument(&cfg.Records, "path", nil)
	case "leases":
		return objectNames(&cfg.Source.Leases)
	case "management":
		return domainNames(&cfg.Source.Names.Management)
	case "domains":
		return domainNames(&cfg.Source.Names.Allowed)
	case "view":
		return cfg.parseView
	case "answer":
		return cfg.parseAnswer
	case "guard":
		return cfg.parseGuard
	default:
		return nil
	}
}

// resolvePaths makes relative paths relative to the root directive, as in other plugins.
func (cfg *Config) resolvePaths(root string) {
	for _, path := range []*string{&cfg.Source.Kubeconfig, &cfg.Source.Manifests, &cfg.Source.File, &cfg.Records} {
		if root != "" && *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(root, *path)
		}
	}
}

func (cfg *Config) parseKubeconfig(args []string) error {
	switch {
	case cfg.Source.Kubeconfig != "":
		return fmt.Errorf("specified twice")
	case len(args) == 0 || len(args) > 2:
		return fmt.Errorf("must have arguments FILE [CONTEXT], got %d", len(args))
	case len(args) == 2:
		cfg.Source.Context = args[1]
	}
	cfg.Source.Kubeconfig = args[0]
	return nil
}

// ObjectName returns the parser of a property with one argument NAMESPACE/NAME, which it stores in target.
func ObjectName(target *string) Parser { return oneArgument(target, "NAMESPACE/NAME", checkObjectName) }

// oneArgument returns the parser of a property with one argument, which it stores in target. what names the argument
// in errors. check validates the argument; nil for no validation.
func oneArgument(target *string, what string, check func(string) error) Parser {
	return func(args []string) error {
		if *target != "" {
			return fmt.Errorf("specified twice")
		}
		if len(args) != 1 {
			return fmt.Errorf("must have one argument %s, got %d", what, len(args))
		}
		if check != nil {
			if err := check(args[0]); err != nil {
				return err
			}
		}
		*target = args[0]
		return nil
	}
}

func objectNames(list *[]string) Parser {
	return func(args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("must have one or more arguments NAMESPACE/NAME")
		}
		for _, arg := range args {
			if err := checkObjectName(arg); err != nil {
				return err
			}
			if !slices.Contains(*list, arg) {
				*list = append(*list, arg)
			}
		}
		slices.Sort(*list) // equal scopes in any order share one store
		return nil
	}
}

func domainNames(list *[]string) Parser {
	return func(args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("must have one or more domains")
		}
		for _, arg := range args {
			domain := strings.ToLower(strings.TrimSuffix(arg, "."))
			if _, ok := dns.IsDomainName(domain); !ok || domain == "" || strings.ContainsAny(domain, "*/:") {
				return fmt.Errorf("%q is not a domain", arg)
			}
			if !slices.Contains(*list, domain) {
				*list = append(*list, domain)
			}
		}
		slices.Sort(*list)
		return nil
	}
}

func checkObjectName(s string) error {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return fmt.Errorf("%q is not NAMESPACE/NAME", s)
	}
	return nil
}

func (cfg *Config) parseView(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("must have arguments NAME [CIDR ...]")
	}
	view := View{Name: args[0]}
	if cfg.Block == view.Name || slices.ContainsFunc(cfg.Views, func(v View) bool { return v.Name == view.Name }) {
		return fmt.Errorf("duplicate view %s", view.Name)
	}
	if len(args) == 1 {
		if cfg.Block != "" {
			return fmt.Errorf("view %s already applies to the whole block; remove view %s", cfg.Block, view.Name)
		}
		cfg.Block = view.Name
		return nil
	}
	for _, arg := range args[1:] {
		prefix, err := parsePrefix(arg)
		if err != nil {
			return err
		}
		for _, other := range cfg.Views {
			if slices.Contains(other.CIDRs, prefix) {
				return fmt.Errorf("%s is already in view %s", prefix, other.Name)
			}
		}
		view.CIDRs = append(view.CIDRs, prefix)
	}
	cfg.Views = append(cfg.Views, view)
	return nil
}

// parsePrefix parses a network, or an address as a network of that single address.
func parsePrefix(s string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(s); err == nil {
		return address.Unmap().Prefix(address.Unmap().BitLen())
	}
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		return prefix, fmt.Errorf("%q is not a network such as 192.0.2.0/24", s)
	}
	if prefix.Addr().Is4In6() {
		return prefix, fmt.Errorf("%q is an IPv4-mapped network, which matches no client; write it as IPv4", s)
	}
	return prefix.Masked(), nil
}

func (cfg *Config) parseAnswer(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("must have arguments NAME ADDRESS or NAME service NAMESPACE/NAME")
	}
	name, args := args[0], args[1:]
	if _, ok := cfg.Answers[name]; ok {
		return fmt.Errorf("view %s already has an answer", name)
	}
	var answer Answer
	if args[0] == "service" {
		if len(args) != 2 {
			return fmt.Errorf("must have arguments NAME service NAMESPACE/NAME")
		}
		if err := checkObjectName(args[1]); err != nil {
			return err
		}
		answer.Service = args[1]
	} else {
		for _, arg := range args {
			address, err := netip.ParseAddr(arg)
			if err != nil || address.Zone() != "" || address.IsUnspecified() {
				return fmt.Errorf("%q is not an IP address that clients can use", arg)
			}
			if address = address.Unmap(); !slices.Contains(answer.Addresses, address) {
				answer.Addresses = append(answer.Addresses, address)
			}
		}
	}
	if cfg.Answers == nil {
		cfg.Answers = map[string]Answer{}
	}
	cfg.Answers[name] = answer
	return nil
}

func (cfg *Config) parseGuard(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("must have one or more zones")
	}
	if err := checkZones(args); err != nil {
		return err
	}
	for _, arg := range args {
		cfg.Guarded = append(cfg.Guarded, plugin.Host(arg).NormalizeExact()...)
	}
	return nil
}

// checkZones returns an error for zones that CoreDNS would silently ignore or never match.
func checkZones(args []string) error {
	for _, arg := range args {
		zones := plugin.Host(arg).NormalizeExact()
		if _, ok := dns.IsDomainName(arg); !ok || len(zones) == 0 || !dns.IsFqdn(zones[0]) {
			return fmt.Errorf("%q is not a zone", arg)
		}
	}
	return nil
}

// check returns an error if properties contradict each other, or if a view lacks addresses.
func (cfg *Config) check() error {
	if cfg.Source.Kubeconfig != "" && cfg.Source.Manifests != "" {
		return fmt.Errorf("kubeconfig and manifests are mutually exclusive")
	}
	if cfg.Block != "" && len(cfg.Views) > 0 {
		return fmt.Errorf("view %s applies to the whole block; add the CIDRs of its clients, or remove view %s", cfg.Block, cfg.Views[0].Name)
	}
	names := cfg.viewNames()
	for name := range cfg.Answers {
		if !slices.Contains(names, name) {
			return fmt.Errorf("answer %s: unknown view %s; the views of the block are %s", name, name, strings.Join(names, " and "))
		}
	}
	scope := cfg.Source.Scope
	for _, name := range names {
		_, answered := cfg.Answers[name]
		switch {
		case answered && name == VLAN && cfg.Block == "" && len(cfg.Views) == 0:
			return fmt.Errorf("answer %s: the block does not select the clients of the view; add 'view %s' for the whole block, or 'view %s CIDR'", name, VLAN, VLAN)
		case answered && name != Pod && len(scope.Infras)+len(scope.HostedClusters) == 0:
			return fmt.Errorf("answer %s: the block does not select hosted clusters for the view; add 'hostedcluster NAMESPACE/NAME' or 'infra NAMESPACE/NAME'", name)
		case !answered && len(scope.HostedClusters) > 0 && len(scope.Infras) == 0:
			return fmt.Errorf("view %s lacks addresses, because with hostedcluster alone no Infra is read; add 'infra NAMESPACE/NAME' or 'answer %s ADDRESS'",
				name, name)
		case !answered && name != Pod && name != VLAN:
			return fmt.Errorf("view %s lacks addresses; add 'answer %s ADDRESS', or rename the view to %s or %s", name, name, VLAN, Pod)
		}
	}
	cfg.readAnswers()
	return nil
}

// readAnswers adds the namespaces of the Services in answers to the source, unless it reads their Services anyway.
func (cfg *Config) readAnswers() {
	scope := &cfg.Source.Scope
	for _, name := range slices.Sorted(maps.Keys(cfg.Answers)) {
		namespace, _, isService := strings.Cut(cfg.Answers[name].Service, "/")
		if isService && !scope.IncludesServices(namespace) {
			scope.ServiceNamespaces = append(scope.ServiceNamespaces, namespace)
		}
	}
}

// usesSharedSource reports whether the block configures neither a source nor views.
func (cfg *Config) usesSharedSource() bool {
	source := cfg.Source
	source.Apps = nil
	return reflect.DeepEqual(source, watch.Config{}) && cfg.Records == "" && cfg.Block == "" && len(cfg.Views)+len(cfg.Answers) == 0
}

// viewNames returns the names of the block's views.
func (cfg *Config) viewNames() []string {
	switch {
	case cfg.Block != "":
		return []string{cfg.Block}
	case len(cfg.Views) > 0:
		names := make([]string, len(cfg.Views))
		for i, v := range cfg.Views {
			names[i] = v.Name
		}
		return names
	default:
		return []string{VLAN, Pod}
	}
}

// definesOnlyPods reports whether the block assigns CIDRs to view pod and none to view vlan. If so, the clients of
// view vlan are defined by Infras.
func (cfg *Config) definesOnlyPods() bool {
	named := func(name string) bool {
		return slices.ContainsFunc(cfg.Views, func(v View) bool { return v.Name == name })
	}
	return named(Pod) && !named(VLAN)
}

// answersDiffer reports whether two clients of the block can get different answers for one name, because the view
// depends on the client's address.
func (cfg *Config) answersDiffer() bool {
	return cfg.Block == "" || cfg.Block == VLAN && cfg.Answers[VLAN].empty()
}

func (a Answer) empty() bool { return len(a.Addresses) == 0 && a.Service == "" }
