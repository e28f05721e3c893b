package lab

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// Output is an io.Writer that keeps all output of a process. Its methods are safe for concurrent use.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

// Len returns the number of bytes written so far.
func (o *Output) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Len()
}

// Since returns the output from a byte offset on.
func (o *Output) Since(offset int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.buf.Bytes()[offset:])
}

// String returns all output.
func (o *Output) String() string { return o.Since(0) }

// Tail returns the last 8 KiB of the output.
func (o *Output) Tail() string {
	const size = 8 << 10
	return o.Since(max(0, o.Len()-size))
}

// Lines returns the lines that contain all words.
func (o *Output) Lines(words ...string) []string {
	var found []string
	for line := range strings.Lines(o.String()) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			found = append(found, line)
		}
	}
	return found
}
