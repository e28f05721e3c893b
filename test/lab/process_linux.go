package lab

import "syscall"

// dieWithParent has the kernel kill the process when we end, however we do,
// and keeps the terminal's Ctrl-C from it: Stop decides when it ends.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
