//go:build unix && !linux

package lab

import "syscall"

// dieWithParent only creates a process group: there is no parent death signal on this system, so only Stop
// ends the process.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
