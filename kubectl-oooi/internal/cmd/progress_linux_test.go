package cmd

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

func TestProgressNeedsATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	master, slave := lab.Terminal(t)
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
