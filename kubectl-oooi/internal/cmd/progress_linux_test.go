package cmd

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openTerminal opens a pseudoterminal of 20 columns, and returns the master and the slave.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR, 0); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = slave.Close() })
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 20}); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

func TestProgressNeedsATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	master, slave := openTerminal(t)
	shown := make(chan string)
	go func() {
		var all bytes.Buffer
		buffer := make([]byte, 1<<10)
		for {
			n, err := master.Read(buffer)
			all.Write(buffer[:n])
			if err != nil || strings.Contains(all.String(), "\x1b[Kreading the") && strings.HasSuffix(all.String(), "\r\x1b[K") {
				shown <- all.String()
				return
			}
		}
	}()
	p := startProgress(slave)
	p.set("reading the whole of everything")
	time.Sleep(300 * time.Millisecond)
	p.stop()
	select {
	case got := <-shown:
		for line := range strings.SplitSeq(got, "\r\x1b[K") {
			if len(line) > 19 {
				t.Errorf("%q is longer than the terminal is wide", line)
			}
		}
	case <-time.After(10 * time.Second):
		t.Error("the progress was not shown, or not erased")
	}

	var file bytes.Buffer
	p = startProgress(&file)
	p.set("reading")
	time.Sleep(300 * time.Millisecond)
	p.stop()
	t.Setenv("TERM", "dumb")
	startProgress(slave).stop()
	if file.Len() > 0 {
		t.Errorf("progress wrote %q to a stream that is no terminal", &file)
	}
}
