// Package vm tests with QEMU virtual machines: make vm-test. Without KVM they take minutes to boot, so the
// tests have a build tag.
package vm
