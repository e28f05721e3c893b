//go:build unix && !linux

package proxy_test

import "syscall"

// dieWithTest can do no more here than keep Ctrl-C from the process: its test ends it.
func dieWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
