//go:build race

package dns_test

const raceDetector = true
