// Package control keeps the status of Infras and ProxyServers true: one leader in a
// management cluster sums up what the replicas report and what it finds out by asking.
//
// The verdicts are pure functions (proxystatus.go, infrastatus.go); the reconcilers
// gather what they judge and write what they say.
package control
