package model

import (
	"fmt"
	"iter"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of a domain name without its root label (RFC 1035 section 2.3.4).
const (
	maxName  = 253
	maxLabel = 63
)

// cleanName returns a domain name in lower case and without a trailing dot. It returns an error if a label
// does not conform to RFC 1123 (underscores are allowed), or if the name is a wildcard. It rejects names
// under "invalid" (RFC 6761 section 6.4), because the proxy uses such a name internally.
func cleanName(s string) (string, error) {
	name := strings.TrimSuffix(s, ".")
	if name == "" || len(name) > maxName {
		return "", fmt.Errorf("%q is not a domain name: length is %d; must be from 1 to %d", s, len(name), maxName)
	}
	for label := range strings.SplitSeq(name, ".") {
		if err := checkLabel(label); err != nil {
			return "", fmt.Errorf("%q is not a domain name: %w", s, err)
		}
	}
	// Converted after the check, because the lower case of some non-ASCII letters is ASCII.
	name = strings.ToLower(name)
	if within(name, "invalid") {
		return "", fmt.Errorf("%q is in the reserved domain \"invalid\" (RFC 6761)", s)
	}
	return name, nil
}

func checkLabel(label string) error {
	if label == "" || len(label) > maxLabel {
		return fmt.Errorf("label %q has length %d; must be from 1 to %d", label, len(label), maxLabel)
	}
	if label[0] == '-' || label[len(label)-1] == '-' {
		return fmt.Errorf("label %q begins or ends with a hyphen", label)
	}
	for _, c := range label {
		if c >= utf8.RuneSelf {
			return fmt.Errorf("label %q contains %q: write internationalized names in ASCII (xn--)", label, c)
		}
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return fmt.Errorf("label %q contains %q", label, c)
		}
	}
	return nil
}

// within reports whether name is domain or a subdomain of it.
func within(name, domain string) bool {
	rest, ok := strings.CutSuffix(name, domain)
	return ok && (rest == "" || rest[len(rest)-1] == '.')
}

// MatchHost returns the route that Envoy selects for a name: the route of the name itself, else of the longest
// matching wildcard ("*." and a domain, or "*"), else nil. host returns the host of a route.
func MatchHost[R any](routes []R, host func(*R) string, name string) *R {
	var found *R
	for i := range routes {
		r := &routes[i]
		if host(r) == name {
			return r
		}
		domain, wild := strings.CutPrefix(host(r), "*")
		if wild && strings.HasSuffix(name, domain) && (found == nil || len(host(found)) < len(host(r))) {
			found = r
		}
	}
	return found
}

// splitHost returns the host of "host" or "host:port", without brackets, and the port, 0 if there is none or
// it is invalid.
func splitHost(s string) (string, int32) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return strings.Trim(s, "[]"), 0
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return host, 0
	}
	return host, int32(n)
}

func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// nameAndParents yields a name and all its parent domains: for "a.b", "a.b" and "b".
func nameAndParents(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name != "" && yield(name) {
			_, name, _ = strings.Cut(name, ".")
		}
	}
}

// reservedIPv4 is the network of addresses that no host has (RFC 1112, section 4), with the limited broadcast address.
var reservedIPv4 = netip.PrefixFrom(netip.AddrFrom4([4]byte{240}), 4)

// isReachable reports whether clients on other hosts can connect to an address of its kind.
func isReachable(address netip.Addr) bool {
	return address.IsValid() && address.Zone() == "" && !address.IsUnspecified() && !address.IsLoopback() &&
		!address.IsMulticast() && !address.IsLinkLocalUnicast() && !reservedIPv4.Contains(address)
}

func sortedAddrs(list []netip.Addr) []netip.Addr {
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}
