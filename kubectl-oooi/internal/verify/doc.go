// Package verify tests a site as its VMs and pods use it: from a pod on the VLAN and from one in the pod network, both of
// which run for the duration of the test.
//
// A Scenario is a table entry, and a plan has its requests: the steps of a client, with checks that compare the outcome with what
// the site's objects define. To add one, add it to Scenarios and its steps to a plan, describe it in docs/reference/cli.md, and add
// a fault that only this scenario finds to TestVerifyOnTheNode.
package verify
