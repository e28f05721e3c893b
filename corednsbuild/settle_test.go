package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

const (
	loopback  = "00000000000000000000000000000001 01 80 10 80       lo\n"
	linkLocal = "fe8000000000000010d587fffe25a382 02 40 20 80     eth0\n"
	newcomer  = "fe80000000000000c45571fffeff20d8 03 40 20 c0     net1\n"
)

func TestATentativeAddressIsFoundAmongOthers(t *testing.T) {
	for table, want := range map[string]bool{"": false, loopback: false, loopback + linkLocal: false, loopback + newcomer + linkLocal: true} {
		if got := tentative(table); got != want {
			t.Errorf("tentative is %t of\n%s", got, table)
		}
	}
}

func TestCoreDNSWaitsForItsAddresses(t *testing.T) {
	table := filepath.Join(t.TempDir(), "if_inet6")
	settle(table, time.Hour) // there is no IPv6
	if err := os.WriteFile(table, []byte(newcomer), 0o600); err != nil {
		t.Fatal(err)
	}
	settle(table, time.Millisecond) // and not for ever
	done := make(chan struct{})
	go func() {
		settle(table, time.Hour)
		close(done)
	}()
	if err := os.WriteFile(table+".new", []byte(linkLocal), 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
		t.Error("it has not waited")
	case <-time.After(50 * time.Millisecond):
	}
	if err := os.Rename(table+".new", table); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Error("it waits for ever")
	}
}
