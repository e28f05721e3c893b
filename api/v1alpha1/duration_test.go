package v1alpha1

import (
	"testing"
	"time"
)

func TestDurationParse(t *testing.T) {
	tests := []struct {
		text Duration
		want time.Duration
		ok   bool
	}{
		{"90s", 90 * time.Second, true},
		{"1h2m3s4ms", time.Hour + 2*time.Minute + 3*time.Second + 4*time.Millisecond, true},
		{"0s", 0, true},
		{"", 0, false},
		{"soon", 0, false},
		{"5", 0, false},
		{"-5s", 0, false},
	}
	for _, test := range tests {
		got, err := test.text.Parse()
		if got != test.want || (err == nil) != test.ok {
			t.Errorf("%q: got %s, %v", test.text, got, err)
		}
	}
}

func TestDurationOr(t *testing.T) {
	tests := []struct {
		name string
		text Duration
		want time.Duration
	}{
		{"set", "90s", 90 * time.Second},
		{"set to zero", "0s", 0},
		{"empty", "", 5 * time.Second},
		{"invalid", "soon", 5 * time.Second},
	}
	for _, test := range tests {
		if got := test.text.Or(DefaultProxyConnectTimeout); got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
}
