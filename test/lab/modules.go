package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// A module is a Go module whose files the lab reads.
type module struct{ path, version, sum string }

const (
	hypershiftModule = "github.com/openshift/hypershift"
	openshiftModule  = "github.com/openshift/api"
	metallbModule    = "go.universe.tf/metallb"
	multusModule     = "github.com/k8snetworkplumbingwg/network-attachment-definition-client"
	kubevirtModule   = "kubevirt.io/kubevirt"
	olmModule        = "github.com/operator-framework/api"
	gatewayModule    = "sigs.k8s.io/gateway-api"

	contourModule     = "github.com/projectcontour/contour"
	certManagerModule = "github.com/cert-manager/cert-manager"
)

// pinned returns the modules with the hashes that go.sum would have. Most are not in go.mod,
// because no package of them is compiled.
func pinned() []module {
	return []module{
		{hypershiftModule, "v0.1.81", "h1:qHzLzgi78tdAp8AtJ2EmAnu/e44tr1jRSTPiaGpO7Ww="},
		{openshiftModule, "v0.0.0-20260805160557-b61243060d5f", "h1:NU7ltJhtFhqAJC+77DcNk6jmIpsJ3a+mebZIceiPW+U="},
		{metallbModule, "v0.15.2", "h1:r7KDgJtk3KZe3qb36zRVrVCYHxLR03nPGT+qFXOomJM="},
		{multusModule, "v1.7.7", "h1:z4P744DR+PIpkjwXSEc6TvN3L6LVzmUquFgmNm8wSUc="},
		{kubevirtModule, "v1.8.2", "h1:qUnQPvFHlNqA4aQxvKCyX+mfgwE4mwELM82cOJ75ujE="},
		{olmModule, "v0.37.0", "h1:2XCMWitBnumtJTqzip6LQKUwpM2pXVlt3gkpdlkbaCE="},
		{gatewayModule, "v1.6.3", "h1:lKpJa5bGlraC/QeACvCpsHLdmO6y0iKfzVl6gzaFEYc="},
		{contourModule, "v1.33.0", "h1:Aewh+Yt5DY005CGvdxtpquZWmc6/6IsDTs1ze8CvtZk="},
		{certManagerModule, "v1.19.1", "h1:Txh8L/nLWTDcb7ZnXuXbTe15BxQnLbLirXmbNk0fGgY="},
	}
}

// ModuleDir returns the directory of a pinned Go module, such as github.com/openshift/hypershift, in the module
// cache. It downloads the module if it is missing. The files are read-only.
func ModuleDir(ctx context.Context, path string) (string, error) {
	for _, m := range pinned() {
		if m.path == path {
			return m.dir(ctx)
		}
	}
	return "", fmt.Errorf("module %s is not pinned", path)
}

func (m module) dir(ctx context.Context) (string, error) {
	if dir := os.Getenv("OOOI_LAB_MODULES"); dir != "" {
		return filepath.Join(dir, m.path+"@"+m.version), nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", m.path+"@"+m.version)
	cmd.WaitDelay = 10 * time.Second
	// Run outside of any module or workspace, whose settings would apply. GOFLAGS must not be empty, because
	// the go command would then read it from the user's go env.
	cmd.Dir = os.TempDir()
	cmd.Env = append(os.Environ(), "GO111MODULE=on", "GOWORK=off", "GOFLAGS=-mod=mod", "PWD="+cmd.Dir)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	runErr := cmd.Run()

	// The output is JSON also on failure, with the reason in Error.
	var info struct{ Dir, Sum, Error string }
	err := json.Unmarshal(stdout.Bytes(), &info)
	switch {
	case runErr != nil:
		return "", fmt.Errorf("downloading %s@%s (is the module proxy reachable?): %w: %s%s",
			m.path, m.version, errors.Join(runErr, ctx.Err()), info.Error, stderr.Bytes())
	case err != nil:
		return "", fmt.Errorf("downloading %s@%s: parsing the output of go mod download: %w", m.path, m.version, err)
	case info.Sum != m.sum:
		return "", fmt.Errorf("downloading %s@%s: hash is %s, want %s; do not use it", m.path, m.version, info.Sum, m.sum)
	}
	return info.Dir, nil
}
