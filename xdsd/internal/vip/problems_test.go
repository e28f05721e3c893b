package vip

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/densityops/oooi/internal/problem"
)

func TestLeaseProblem(t *testing.T) {
	failed := errors.New("forbidden")
	var writes failureSeries
	now := start
	for range 20 {
		writes.add(now, failed)
		now = now.Add(time.Second)
	}
	if list := writes.problems(now); len(list) != 0 {
		t.Errorf("after 20 s: %+v", list)
	}
	for range 11 {
		writes.add(now, failed)
		now = now.Add(time.Second)
	}
	if list := writes.problems(now); len(list) != 1 || list[0].Code != problem.LeaseNotRenewable || !list[0].Since.Equal(start) || !slices.Equal(list[0].Evidence, []string{"forbidden"}) {
		t.Errorf("after 30 s: %+v", list)
	}
	if list := writes.problems(now.Add(maxRetry)); len(list) != 0 {
		t.Errorf("without another attempt: %+v", list)
	}
	writes.add(now, nil)
	if list := writes.problems(now); len(list) != 0 {
		t.Errorf("after a success: %+v", list)
	}
}
