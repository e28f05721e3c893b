package cmd

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// progress is a line on a terminal that says what a command is at, and for how long; nothing where
// there is no terminal. It is gone when it stops.
type progress struct {
	out  io.Writer // nil: nobody looks
	done chan struct{}
	over sync.WaitGroup

	mu    sync.Mutex
	what  string
	since time.Time
}

// startProgress shows progress on a stream, if that is a terminal which can take a line back.
func startProgress(stream io.Writer) *progress {
	p := &progress{done: make(chan struct{})}
	file, ok := stream.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return p
	}
	p.out = file
	p.over.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-p.done:
				_, _ = fmt.Fprint(p.out, "\r\x1b[K") // there is nobody to tell
				return
			case <-tick.C:
				p.draw()
			}
		}
	})
	return p
}

// say says what the command is at now.
func (p *progress) say(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.what != what {
		p.what, p.since = what, time.Now()
	}
}

// draw writes the line again, cut at the terminal's edge.
func (p *progress) draw() {
	p.mu.Lock()
	line := []rune(fmt.Sprintf("%s, %s", p.what, time.Since(p.since).Round(time.Second)))
	p.mu.Unlock()
	if file, ok := p.out.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 && len(line) >= width {
			line = line[:width-1]
		}
	}
	fmt.Fprintf(p.out, "\r\x1b[K%s", string(line))
}

// stop takes the line away.
func (p *progress) stop() {
	close(p.done)
	p.over.Wait()
}
