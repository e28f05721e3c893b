package manifests_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// promtool runs Prometheus' promtool in a folder. Building it takes minutes, so it is extracted from the
// Debian package; installing that would start a server.
func promtool(t *testing.T, folder string, args ...string) {
	t.Helper()
	tool, err := findPromtool(t)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	cmd := exec.CommandContext(t.Context(), tool, args...)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %q: %v\n%s", args, err, out)
	}
}

func findPromtool(t *testing.T) (string, error) {
	t.Helper()
	if tool, err := exec.LookPath("promtool"); err == nil {
		return tool, nil
	}
	cache, err := filepath.Abs(filepath.Join(root, ".lab"))
	if err != nil {
		return "", err
	}
	tool := filepath.Join(cache, "promtool")
	if _, err := os.Stat(tool); err == nil {
		return tool, nil
	}
	temp := t.TempDir()
	script := `cd "$0" && { apt-get download -qq prometheus || { apt-get update -qq && apt-get download -qq prometheus; }; } && dpkg -x prometheus_*.deb . && mkdir -p "$1" && cp usr/bin/promtool "$2.new.$$" && mv "$2.new.$$" "$2"`
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", script, temp, cache, tool).CombinedOutput(); err != nil {
		return "", errors.New("no promtool: neither in PATH nor from Debian's package prometheus: " + string(out))
	}
	return tool, nil
}
