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

// terminal is both ends of one.
func terminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = ours.Close() })
	if err := unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR, 0); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = theirs.Close() })
	if err := unix.IoctlSetWinsize(int(theirs.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 20}); err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

func TestProgressIsForTerminals(t *testing.T) {
	t.Setenv("TERM", "xterm")
	ours, theirs := terminal(t)
	shown := make(chan string)
	go func() {
		var all bytes.Buffer
		buffer := make([]byte, 1<<10)
		for {
			n, err := ours.Read(buffer)
			all.Write(buffer[:n])
			if err != nil || strings.Contains(all.String(), "\x1b[Kreading the") && strings.HasSuffix(all.String(), "\r\x1b[K") {
				shown <- all.String()
				return
			}
		}
	}()
	p := startProgress(theirs)
	p.say("reading the whole of everything")
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
		t.Error("nothing was shown, or it was not taken away")
	}

	var file bytes.Buffer
	p = startProgress(&file)
	p.say("reading")
	time.Sleep(300 * time.Millisecond)
	p.stop()
	t.Setenv("TERM", "dumb")
	startProgress(theirs).stop()
	if file.Len() > 0 {
		t.Errorf("a file has %q", &file)
	}
}
