package nametree

import (
	"github.com/miekg/dns"
)

// Within reports whether qname equals zone or is a name below it. Case does not matter in qname; zone must be in
// lower case, with a trailing dot. Within is dns.IsSubDomain without its allocations.
func Within(qname, zone string) bool {
	if zone == "." {
		return true
	}
	for off, end := 0, false; !end && len(qname)-off >= len(zone); off, end = dns.NextLabel(qname, off) {
		if len(qname)-off == len(zone) {
			return equalLower(qname[off:], zone)
		}
	}
	return false
}

// equalLower reports whether s equals lower, ignoring the case of s. Both must have the same length.
func equalLower(s, lower string) bool {
	for i := range len(s) {
		if toLower(s[i]) != lower[i] {
			return false
		}
	}
	return true
}

func toLower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
