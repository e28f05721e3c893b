package main

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// flagTentative is IFA_F_TENTATIVE: duplicate address detection (DAD) of the IPv6 address is not finished.
const flagTentative = 0x40

// waitForDAD waits until no IPv6 address in table, a file such as /proc/net/if_inet6, is tentative, or until the
// timeout. The bind plugin binds every address of an interface, including the link-local one, which in a new pod is
// tentative for more than a second. CoreDNS would fail to bind it and exit, and the kubelet would restart it with
// increasing back-off.
func waitForDAD(table string, timeout time.Duration) {
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		addresses, err := os.ReadFile(table)
		if err != nil || !hasTentative(string(addresses)) { // without IPv6 the file does not exist
			return
		}
	}
}

// hasTentative reports whether an address has flagTentative. The flags are the fifth field of each line.
func hasTentative(addresses string) bool {
	for line := range strings.Lines(addresses) {
		words := strings.Fields(line)
		if len(words) < 6 {
			continue
		}
		if flags, err := strconv.ParseUint(words[4], 16, 32); err == nil && flags&flagTentative != 0 {
			return true
		}
	}
	return false
}
