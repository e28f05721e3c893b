package proxy_test

import "syscall"

// dieWithTest has the kernel kill the process when the tests end, however they do.
func dieWithTest() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
