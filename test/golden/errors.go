package golden

import "testing"

// Errors is Transcript for a function that only returns an error: the output of a line is the error, or "ok".
func Errors(tb testing.TB, file string, run func(line string) error) {
	tb.Helper()
	Transcript(tb, file, func(line string) []string {
		if err := run(line); err != nil {
			return []string{err.Error()}
		}
		return []string{"ok"}
	})
}
