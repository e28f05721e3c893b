package neighbours

import "testing"

func TestLost(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "....": 0, "+..": 0, "..+": 0, "+++": 0, "+.+": 1, "..+.++..+.": 3, ".+.": 0,
	} {
		var answered []bool
		for _, c := range text {
			answered = append(answered, c == '+')
		}
		if got := lost(answered); got != want {
			t.Errorf("%q: %d are lost, want %d", text, got, want)
		}
	}
}

func TestPath(t *testing.T) {
	whole, none, part := Burst{Sent: 20, Replies: 20}, Burst{Sent: 20}, Burst{Sent: 20, Replies: 15, Lost: 4}
	for _, tc := range []struct {
		name           string
		bursts         path
		lost, failures int
	}{
		{"no burst", nil, 0, 0},
		{"an interruption", path{whole, part, whole}, 0, 0},
		{"losses at two times", path{part, whole, part}, 8, 0},
		{"silent after losses", path{none, none, part, part}, 8, 2},
		{"silent since the start", path{none, none, none}, 0, 3},
	} {
		if _, lost := tc.bursts.lost(); lost != tc.lost || tc.bursts.failures() != tc.failures {
			t.Errorf("%s: %d lost and %d failures, want %d and %d", tc.name, lost, tc.bursts.failures(), tc.lost, tc.failures)
		}
	}
}

func TestCertain(t *testing.T) {
	for failures, want := range [][2]bool{{false, false}, {false, false}, {false, true}, {false, true}, {false, true}, {false, true}, {true, true}} {
		if got := [2]bool{Certain(failures, false), Certain(failures, true)}; got != want {
			t.Errorf("after %d failures: %v, want %v", failures, got, want)
		}
	}
}
