package lab

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Terminal opens a pseudoterminal of 20 columns, and returns the master and the slave.
func Terminal(tb testing.TB) (master, slave *os.File) {
	tb.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		tb.Skip(err)
	}
	tb.Cleanup(func() { _ = master.Close() })
	Must(tb, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	Must(tb, err)
	if slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR, 0); err != nil {
		tb.Skip(err)
	}
	tb.Cleanup(func() { _ = slave.Close() })
	Must(tb, unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 20}))
	return master, slave
}
