package lab

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// Output keeps what a process writes. Its methods may be called meanwhile.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write is io.Writer's.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

// Len returns how many bytes there are.
func (o *Output) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Len()
}

// Since returns what came after an offset.
func (o *Output) Since(offset int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.buf.Bytes()[offset:])
}

// String returns all of it.
func (o *Output) String() string { return o.Since(0) }

// Tail returns the end of it.
func (o *Output) Tail() string {
	const size = 8 << 10
	return o.Since(max(0, o.Len()-size))
}

// Lines returns the lines with all of these words.
func (o *Output) Lines(words ...string) []string {
	var found []string
	for line := range strings.Lines(o.String()) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			found = append(found, line)
		}
	}
	return found
}
