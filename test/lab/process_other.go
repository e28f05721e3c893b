//go:build unix && !linux

package lab

import "syscall"

// dieWithParent is for Stop alone to do here: there is no such signal.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
