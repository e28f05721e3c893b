// Package vm tests with virtual machines in QEMU: make vm-test. They take minutes to boot where there is no KVM, so these tests
// have a build tag of their own.
package vm
