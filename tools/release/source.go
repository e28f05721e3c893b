package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A source is a checkout of the repository.
type source struct {
	root   string
	commit string
	// time is the commit's time or, if set, SOURCE_DATE_EPOCH. Files and images use no other time.
	time  time.Time
	dirty bool
	tags  []string
	// worktree is set if git worktree created the checkout.
	worktree bool
}

func readSource(ctx context.Context, root string) (*source, error) {
	s := &source{root: root}
	out, err := s.git(ctx, "log", "-1", "--format=%H %ct")
	if err != nil {
		return nil, err
	}
	commit, seconds, _ := strings.Cut(strings.TrimSpace(out), " ")
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds = epoch
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("reading SOURCE_DATE_EPOCH: %w", err)
	}
	s.commit, s.time = commit, time.Unix(n, 0).UTC()
	changes, err := s.git(ctx, "status", "--porcelain")
	if err != nil {
		return nil, err
	}
	s.dirty = changes != ""
	folders, err := s.git(ctx, "rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir")
	if err != nil {
		return nil, err
	}
	own, common, _ := strings.Cut(strings.TrimSpace(folders), "\n")
	s.worktree = own != common
	tags, err := s.git(ctx, "tag", "--points-at", "HEAD")
	s.tags = strings.Fields(tags)
	return s, err
}

// check returns an error if the checkout is not a release with the version; version is empty for a snapshot.
func (s *source) check(version string) error {
	switch {
	case s.worktree:
		return errors.New("the go command derives no version from the commit in a git worktree; build in a clone: git clone " + s.root + " FOLDER")
	case s.dirty:
		return errors.New("the working tree has changes, so the version would not identify what is built; commit or stash them")
	case version != "" && !slices.Contains(s.tags, version):
		return fmt.Errorf("commit %s lacks tag %s; create it with: git tag -s %s", s.commit[:12], version, version)
	}
	return nil
}

func (s *source) git(ctx context.Context, args ...string) (string, error) {
	return output(exec.CommandContext(ctx, "git", append([]string{"-C", s.root}, args...)...)) //nolint:gosec // no shell
}

// A binary is a program that was built for a platform.
type binary struct {
	name, system, arch string
	content            []byte
	// info has the binary's modules, and the version of the commit.
	info *debug.BuildInfo
}

// goBuild builds a main package for a platform. The go command records the version of the commit's tag in it or, without
// a tag, a version that is derived from the commit.
func (s *source) goBuild(ctx context.Context, pkg, name, system, arch, ldflags string) (b binary, err error) {
	dir, err := os.MkdirTemp("", "oooi-release-")
	if err != nil {
		return binary{}, fmt.Errorf("building %s: %w", pkg, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, name)
	//nolint:gosec // no shell
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags=grpcnotrace", "-buildvcs=true", "-ldflags", "-s -w "+ldflags, "-o", path, pkg)
	cmd.Dir = s.root
	// User settings must not change the result.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=")
	if _, err := output(cmd); err != nil {
		return binary{}, fmt.Errorf("building %s for %s/%s: %w", pkg, system, arch, err)
	}
	b = binary{name: name, system: system, arch: arch}
	if b.content, err = os.ReadFile(path); err != nil {
		return binary{}, fmt.Errorf("building %s: %w", pkg, err)
	}
	if b.info, err = buildinfo.Read(bytes.NewReader(b.content)); err != nil {
		return binary{}, fmt.Errorf("reading the modules of %s: %w", name, err)
	}
	return b, nil
}

// output runs a command. Its error contains the command's stderr.
func output(cmd *exec.Cmd) (string, error) {
	out, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, exit.Stderr)
	case err != nil:
		return "", fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return string(out), nil
}
