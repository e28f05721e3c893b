// Package doctor finds the cause of faults between VMs on the VLAN and their hosted control plane.
//
// A Collector reads facts from a cluster, and Load reads them from a bundle; they do not change afterwards.
// Checks are pure functions of facts, so they find the same faults in a bundle as in the cluster. A check
// declares which other checks must pass first, so that only the cause of a fault is reported. It also declares
// which kinds it reads: a check whose data cannot be read never passes.
//
// To add a check, register it in the file of its code's prefix, such as dns.go for OOOI-DNS-007, describe it in
// docs/reference/doctor.md, and add a fault that it finds to test/faults. TestEveryCheckIsComplete names what is
// missing.
package doctor
