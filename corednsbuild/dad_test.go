package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

const (
	loopback  = "00000000000000000000000000000001 01 80 10 80       lo\n"
	linkLocal = "fe8000000000000010d587fffe25a382 02 40 20 80     eth0\n"
	tentative = "fe80000000000000c45571fffeff20d8 03 40 20 c0     net1\n"
)

func TestHasTentative(t *testing.T) {
	for table, want := range map[string]bool{"": false, loopback: false, loopback + linkLocal: false, loopback + tentative + linkLocal: true} {
		if got := hasTentative(table); got != want {
			t.Errorf("hasTentative is %t for\n%s", got, table)
		}
	}
}

func TestWaitForDAD(t *testing.T) {
	table := filepath.Join(t.TempDir(), "if_inet6")
	waitForDAD(table, time.Hour) // no IPv6
	lab.Must(t, os.WriteFile(table, []byte(tentative), 0o600))
	waitForDAD(table, time.Millisecond) // returns after the timeout
	done := make(chan struct{})
	go func() {
		waitForDAD(table, time.Hour)
		close(done)
	}()
	lab.Must(t, os.WriteFile(table+".new", []byte(linkLocal), 0o600))
	select {
	case <-done:
		t.Error("waitForDAD returned while an address was tentative")
	case <-time.After(50 * time.Millisecond):
	}
	lab.Must(t, os.Rename(table+".new", table))
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Error("waitForDAD did not return after DAD")
	}
}
