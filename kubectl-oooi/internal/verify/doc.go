// Package verify tests a site from the clients' side: from a pod on the VLAN and a pod in the pod network, which run for the
// duration of the test.
//
// A Scenario is a table entry. A plan has its requests: a client's steps, with checks that compare the outcome with the site's
// objects. To add one, add it to Scenarios and its steps to a plan, describe it in docs/reference/cli.md, and add
// a fault that only this scenario finds to TestVerifyOnTheNode.
package verify
