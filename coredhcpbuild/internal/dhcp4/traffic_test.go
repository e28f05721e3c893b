package dhcp4

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestTraffic(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 11, 28, 12, minute, 30, 0, time.UTC) }
	c := &traffic{}
	for _, minute := range []int{0, 1, 1, 5, 10} {
		c.count("", at(minute))
	}
	c.count(dropSend, at(1))
	for minute, want := range map[int]string{10: "[{1 map[]} {1 map[]} {2 map[send_failed:1]}]", 14: "[{1 map[]} {1 map[]}]", 15: "[{1 map[]}]", 60: "[]"} {
		list := c.last(at(minute))
		slices.SortFunc(list, func(a, b Traffic) int { return cmp.Compare(a.Received, b.Received) })
		if got := fmt.Sprint(list); got != want {
			t.Errorf("minute %d: %s, want %s", minute, got, want)
		}
	}
}
