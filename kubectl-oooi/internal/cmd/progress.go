package cmd

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// progress shows the current activity of a command and its duration in one line of a terminal, and erases the line
// when it stops. It shows nothing if the stream is not a terminal.
type progress struct {
	stream io.Writer
	out    io.Writer // nil if the stream is not a terminal
	done   chan struct{}
	wg     sync.WaitGroup

	mu       sync.Mutex
	activity string
	since    time.Time
}

// startProgress starts to show progress on a stream, if that is a terminal that can erase a line. The caller must
// call stop.
func startProgress(stream io.Writer) *progress {
	p := &progress{stream: stream, done: make(chan struct{})}
	file, ok := stream.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return p
	}
	p.out = file
	p.wg.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-p.done:
				_, _ = fmt.Fprint(p.out, "\r\x1b[K") // nothing can be reported on a terminal that fails
				return
			case <-tick.C:
				p.draw()
			}
		}
	})
	return p
}

// set sets the current activity. The duration starts again if it differs from the previous one.
func (p *progress) set(activity string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.activity != activity {
		p.activity, p.since = activity, time.Now()
	}
}

// print prints a line that stays.
func (p *progress) print(text string) {
	if p.out != nil {
		text = "\r\x1b[K" + text
	}
	_, _ = fmt.Fprintln(p.stream, text) // nothing can be reported on a stream that fails
}

// draw rewrites the line, cut to the width of the terminal.
func (p *progress) draw() {
	p.mu.Lock()
	line := []rune(fmt.Sprintf("%s, %s", p.activity, time.Since(p.since).Round(time.Second)))
	p.mu.Unlock()
	if file, ok := p.out.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 && len(line) >= width {
			line = line[:width-1]
		}
	}
	fmt.Fprintf(p.out, "\r\x1b[K%s", string(line))
}

// stop erases the line. No output follows after it returns.
func (p *progress) stop() {
	close(p.done)
	p.wg.Wait()
}
