package lab

import "syscall"

// dieWithParent returns attributes with which the kernel kills the process when its parent ends for any
// reason. A process group of its own protects it from Ctrl-C, so that Stop decides when it ends.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
