package nametree

import (
	"github.com/miekg/dns"
)

// Within reports whether qname is zone or lies below it, label by label. Case does
// not matter in qname; zone is lower-case and has its trailing dot. It is
// dns.IsSubDomain without its allocations.
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

// equalLower reports whether s in lower case is lower. Both have one length.
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
