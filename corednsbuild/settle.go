package main

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// flagTentative is that of an IPv6 address of which the kernel does not know yet whether it is
// the only one on its network.
const flagTentative = 0x40

// settle waits, for some seconds at most, until all our IPv6 addresses can be bound. Plugin bind
// takes every address of an interface, the link-local one too, and that of a new pod is tentative for
// more than a second: CoreDNS would end, and be started again later and later.
func settle(table string, patience time.Duration) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		addresses, err := os.ReadFile(table)
		if err != nil || !tentative(string(addresses)) { // without IPv6 there is no table
			return
		}
	}
}

// tentative looks at the flags, the last but one word of each line.
func tentative(addresses string) bool {
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
