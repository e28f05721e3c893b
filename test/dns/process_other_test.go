//go:build unix && !linux

package dns_test

import "syscall"

// dieWithTest can do no more here than keep Ctrl-C from the process: its test ends it.
func dieWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
