// Package verify tests a site as its VMs and pods use it: from a pod on the VLAN and from one in the pod network, both of
// which run for the duration of the test.
//
// A Scenario is a table entry: the requests of one of the clients, with a function for each that compares the outcome with
// what the site's objects define. To add one, append it in the file of its group, describe it in docs/reference/test.md,
// and add a fault that only this scenario finds to TestVerifyOnTheNode.
package verify
