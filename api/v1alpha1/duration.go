package v1alpha1

import (
	"fmt"
	"time"
)

// A Duration keeps its text as written: metav1.Duration would change 90s to 1m30s, and an invalid value would
// make the whole object undecodable.

// Parse returns d as a time.Duration. It returns an error if d is empty, negative or not a Go duration.
func (d Duration) Parse() (time.Duration, error) {
	parsed, err := time.ParseDuration(string(d))
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration, such as 1h30m", string(d))
	}
	if parsed < 0 {
		return 0, fmt.Errorf("duration %s is negative", d)
	}
	return parsed, nil
}

// Or returns d as a time.Duration, or fallback if d is empty or invalid. It returns 0 if fallback is invalid, too.
func (d Duration) Or(fallback Duration) time.Duration {
	if parsed, err := d.Parse(); err == nil {
		return parsed
	}
	parsed, _ := fallback.Parse()
	return parsed
}
