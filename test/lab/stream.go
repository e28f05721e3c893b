package lab

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// A Stream is an open connection to a Backend. It sends numbers continually, whether or not echoes arrive, because a client that only
// reads does not detect a failed proxy.
type Stream struct {
	conn net.Conn
	done sync.WaitGroup

	mu     sync.Mutex
	err    error       // why the stream ended
	echoes []time.Time // times at which echoes arrived; the last one is the end, if the stream has ended
}

// NewStream sends on a connection, at an interval, until the stream ends or is closed.
func NewStream(conn net.Conn, interval time.Duration) *Stream {
	s := &Stream{conn: conn}
	s.done.Go(func() { s.end(s.send(interval)) })
	s.done.Go(func() { s.end(s.receive()) })
	return s
}

func (s *Stream) send(interval time.Duration) error {
	var number [8]byte
	for n := uint64(0); ; n++ {
		binary.BigEndian.PutUint64(number[:], n)
		if err := s.conn.SetWriteDeadline(time.Now().Add(WaitTimeout)); err != nil {
			return err
		}
		if _, err := s.conn.Write(number[:]); err != nil {
			return err
		}
		time.Sleep(interval)
	}
}

func (s *Stream) receive() error {
	var number [8]byte
	for n := uint64(0); ; n++ {
		if err := s.conn.SetReadDeadline(time.Now().Add(WaitTimeout)); err != nil {
			return err
		}
		if _, err := io.ReadFull(s.conn, number[:]); err != nil {
			return err
		}
		if got := binary.BigEndian.Uint64(number[:]); got != n {
			return fmt.Errorf("number %d was echoed as %d", n, got)
		}
		s.mu.Lock()
		s.echoes = append(s.echoes, time.Now())
		s.mu.Unlock()
	}
}

// end records the first error, and closes the connection.
func (s *Stream) end(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err, s.echoes = err, append(s.echoes, time.Now())
	}
	s.mu.Unlock()
	_ = s.conn.Close()
}

// Failure returns why the stream ended, or nil.
func (s *Stream) Failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Echoes returns the number of echoes so far.
func (s *Stream) Echoes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.echoes)
}

// LongestSilence returns the longest time since a time without an echo, up to the end of the stream if it has
// ended.
func (s *Stream) LongestSilence(since time.Time) (longest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := since
	for _, at := range s.echoes {
		if at.After(since) {
			longest, last = max(longest, at.Sub(last)), at
		}
	}
	if s.err == nil {
		longest = max(longest, time.Since(last))
	}
	return longest
}

// Duration returns for how long since a time the stream was open.
func (s *Stream) Duration(since time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return time.Since(since)
	}
	return s.echoes[len(s.echoes)-1].Sub(since)
}

// Close closes the connection. It may be called again.
func (s *Stream) Close() {
	_ = s.conn.Close()
	s.done.Wait()
}
