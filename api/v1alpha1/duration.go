package v1alpha1

import (
	"fmt"
	"time"
)

// The text of a Duration is kept, where metav1.Duration would write 90s back as
// 1m30s, and would make an object with a bad one unreadable.

// Parse returns d as a time.Duration. It refuses what admission does, for
// objects that come from a file, and the empty duration.
func (d Duration) Parse() (time.Duration, error) {
	parsed, err := time.ParseDuration(string(d))
	if err != nil {
		return 0, fmt.Errorf("parse duration: %w", err)
	}
	if parsed < 0 {
		return 0, fmt.Errorf("duration %s is negative", d)
	}
	return parsed, nil
}

// Or returns d as a time.Duration, or otherwise where d is empty or cannot be
// parsed.
func (d Duration) Or(otherwise Duration) time.Duration {
	if parsed, err := d.Parse(); err == nil {
		return parsed
	}
	parsed, _ := otherwise.Parse()
	return parsed
}
