package output

// Result is the result of a check or of a test scenario.
type Result string

// Results, as commands print them.
const (
	Passed Result = "pass"
	Failed Result = "fail"
	Warned Result = "warn"
	// Skipped means that data could not be read, or that there was nothing to do.
	Skipped Result = "skip"
	// Broken means that the check or the scenario could not be performed.
	Broken Result = "error"
)
