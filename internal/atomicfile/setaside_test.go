package atomicfile_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/atomicfile"
)

func TestSetAside(t *testing.T) {
	for _, tc := range []struct {
		name     string
		earlier  string // content of an earlier PATH.unusable
		readable bool   // whether the file could be read
	}{
		{name: "first unusable file", readable: true},
		{name: "second unusable file", earlier: "old", readable: true},
		{name: "file that cannot be read"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.json")
			aside := path + ".unusable"
			for name, content := range map[string]string{path: "bad", aside: tc.earlier} {
				if content == "" {
					continue
				}
				if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			why := errors.New("decoding: unexpected end")
			if !tc.readable {
				why = fmt.Errorf("reading: %w", &os.PathError{Op: "read", Path: path, Err: os.ErrPermission})
			}
			var log strings.Builder
			atomicfile.SetAside(slog.New(slog.NewTextHandler(&log, nil)), path, why)
			if !strings.Contains(log.String(), path) || !strings.Contains(log.String(), why.Error()) {
				t.Errorf("the log does not name the file and the reason: %s", &log)
			}
			kept := path
			if tc.readable {
				kept = aside
			}
			if content, err := os.ReadFile(kept); err != nil || string(content) != "bad" {
				t.Errorf("%s has %q: %v", kept, content, err)
			}
		})
	}
}
