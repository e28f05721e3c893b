package snapshotfile_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/densityops/oooi/internal/snapshotfile"
	"github.com/densityops/oooi/test/lab"
)

type content struct {
	snapshotfile.Header

	Names []string `json:"names"`
}

// source has the content of a File.
type source struct {
	mu       sync.Mutex
	names    []string
	outdated bool
}

func (s *source) add(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = append(s.names, name)
}

func (s *source) setOutdated(outdated bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outdated = outdated
}

// file returns a File of a source that has content once it has a name.
func (s *source) file(path string, log *slog.Logger) *snapshotfile.File {
	return &snapshotfile.File{
		Path: path, Objects: "names", Interval: 2 * time.Second, Log: log,
		Changes: func() (uint64, bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return uint64(len(s.names)), len(s.names) > 0
		},
		Current: func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return !s.outdated
		},
		Content: func() snapshotfile.Content {
			s.mu.Lock()
			defer s.mu.Unlock()
			return &content{snapshotfile.Header{Written: time.Now().UTC()}, s.names}
		},
	}
}

func valid() error { return nil }

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "dir")
		path := filepath.Join(dir, "snapshot.json")
		lab.Must(t, os.Mkdir(dir, 0o700))
		var log strings.Builder
		s := &source{}
		f := s.file(path, slog.New(slog.NewTextHandler(&log, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { f.Run(ctx) })
		var written time.Time
		// expect waits, and compares the names in the file, and whether it was written in the meantime.
		expect := func(after time.Duration, names string, changed bool) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			c := &content{}
			if err := snapshotfile.Read(path, c, valid); err != nil && names != "" {
				t.Errorf("%s: %v", names, err)
			}
			if got := strings.Join(c.Names, " "); got != names || c.Written.Equal(written) == changed {
				t.Errorf("the file has the names %q of %s, want %q", got, c.Written, names)
			}
			written = c.Written
		}
		expect(time.Hour, "", false)
		s.add("one")
		expect(600*time.Millisecond, "one", true)
		s.add("two")
		expect(1500*time.Millisecond, "one", false)
		expect(time.Second, "one two", true)
		expect(299*time.Second, "one two", false)
		expect(2*time.Second, "one two", true)
		s.setOutdated(true)
		expect(time.Hour, "one two", false)
		s.setOutdated(false)
		expect(600*time.Millisecond, "one two", true)

		lab.Must(t, os.Rename(dir, dir+".away"))
		s.add("three")
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := f.Failure(); !strings.Contains(got, path) {
			t.Errorf("the failure is %q", got)
		}
		if n := strings.Count(log.String(), "names would be missing or outdated"); n != 1 {
			t.Errorf("the failure is logged %d times: %s", n, &log)
		}
		lab.Must(t, os.Rename(dir+".away", dir))
		expect(3*time.Second, "one two three", true)
		if got := f.Failure(); got != "" {
			t.Errorf("after a successful write the failure is %q", got)
		}

		s.add("four")
		cancel()
		group.Wait()
		expect(0, "one two three four", true)
		if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
			t.Errorf("the directory has %v, %v; want one file", files, err)
		}
	})
}

func TestMuchContentIsWrittenLessFrequently(t *testing.T) {
	for name, tc := range map[string]struct{ encoding, interval time.Duration }{
		"little":    {time.Millisecond, 2 * time.Second},
		"much":      {10 * time.Millisecond, 5 * time.Second},
		"very much": {100 * time.Millisecond, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &source{}
				f := s.file(filepath.Join(t.TempDir(), "snapshot.json"), slog.New(slog.DiscardHandler))
				f.MaxInterval = 10 * time.Second
				var writes []time.Time
				read := f.Content
				f.Content = func() snapshotfile.Content {
					writes = append(writes, time.Now())
					time.Sleep(tc.encoding)
					s.add("next")
					return read()
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				s.add("first")
				f.Run(ctx)
				if got := writes[2].Sub(writes[1]) - tc.encoding; got != tc.interval {
					t.Errorf("the second write follows after %s, want %s", got, tc.interval)
				}
			})
		})
	}
}

func TestLoad(t *testing.T) {
	for _, tc := range []struct{ name, text, err string }{
		{"valid", `{"version":1,"names":["one"],"later":true}`, ""},
		{"damaged", `{"version":1`, "decoding"},
		{"empty", "", "decoding"},
		{"null", "null", "version 0"},
		{"another version", `{"version":2,"names":["one"]}`, "version 2"},
		{"refused by the check", `{"version":1}`, "no names"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "snapshot.json")
			lab.Must(t, os.WriteFile(path, []byte(tc.text), 0o600))
			var log strings.Builder
			c := &content{}
			ok := (&source{}).file(path, slog.New(slog.NewTextHandler(&log, nil))).Load(c, func() error {
				if len(c.Names) == 0 {
					return errors.New("no names")
				}
				return nil
			})
			if ok != (tc.err == "") || !strings.Contains(log.String(), tc.err) {
				t.Errorf("loaded is %t, the log has %q", ok, &log)
			}
			if aside, err := os.ReadFile(path + ".unusable"); tc.err != "" && (err != nil || string(aside) != tc.text) {
				t.Errorf("the renamed file has %q: %v", aside, err)
			}
		})
	}
}

func TestWithoutAFile(t *testing.T) {
	for name, path := range map[string]string{"no path": "", "no file": filepath.Join(t.TempDir(), "snapshot.json")} {
		var log strings.Builder
		f := (&source{names: []string{"one"}}).file(path, slog.New(slog.NewTextHandler(&log, nil)))
		if f.Load(&content{}, valid) || log.Len() > 0 {
			t.Errorf("%s: the file is loaded, or an error is logged: %s", name, &log)
		}
	}
}
