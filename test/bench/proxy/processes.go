package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/densityops/oooi/test/bench/measure"
	"github.com/densityops/oooi/test/lab"
)

// start starts a measured process, on the given CPU or on all if cpu is nil.
func (b *bench) start(ctx context.Context, name string, cpu *int, command string, args ...string) (*measure.Process, error) {
	return measure.Start(name, filepath.Join(b.Dir, name+".log"), measure.Pinned(ctx, cpu, command, args...))
}

// aboveAnyRate is a limit of new connections that no measurement reaches, unlike the default.
const aboveAnyRate = "1000000"

// startXdsd starts xdsd serve as in a pod that setup deploys, and waits until it is ready.
func (b *bench) startXdsd(ctx context.Context) (*measure.Process, error) {
	const state, self = "127.0.0.1:9902", "clusters/" + cluster
	p, err := b.start(ctx, "xdsd", nil, measure.Binary(), "serve", "--kubeconfig", b.Management.Kubeconfig(),
		"--proxy-server", self, "--infra", self, "--hosted-cluster", self, "--socket", filepath.Join(b.Dir, "ads.sock"),
		"--bind", envoyAddress, "--http", state, "--pod", pod, "--connections-per-second", aboveAnyRate, "--admin-socket", b.adminSocket(), "--snapshot", filepath.Join(b.Dir, "proxy.json"))
	if err != nil {
		return nil, err
	}
	err = p.Await(ctx, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+state+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		if err := response.Body.Close(); err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
	if err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

func (b *bench) adminSocket() string { return filepath.Join(b.Dir, "admin.sock") }

// startEnvoy starts Envoy with the output of xdsd bootstrap: with one thread on the given CPU, or on all if cpu is nil.
func (b *bench) startEnvoy(ctx context.Context, cpu *int) (*lab.Envoy, error) {
	flags := []string{
		"bootstrap", "--proxy-server", "clusters/" + cluster, "--node-id", pod,
		"--socket", filepath.Join(b.Dir, "ads.sock"), "--admin-socket", b.adminSocket(),
	}
	bootstrap, err := exec.CommandContext(ctx, measure.Binary(), flags...).Output()
	if err != nil {
		return nil, fmt.Errorf("xdsd bootstrap: %w", err)
	}
	args, err := exec.CommandContext(ctx, measure.Binary(), append(flags, "--args")...).Output()
	if err != nil {
		return nil, fmt.Errorf("xdsd bootstrap --args: %w", err)
	}
	config, err := b.onOneCPU(lab.EnvoyConfig{Bootstrap: bootstrap, Args: append(strings.Fields(string(args)), "--log-level", "warning"), Logf: b.Progress, Unready: true}, cpu)
	if err != nil {
		return nil, err
	}
	return lab.StartEnvoy(ctx, config)
}

// onOneCPU returns the configuration with Envoy's binary, and with one thread on the given CPU, or all if cpu is nil.
func (b *bench) onOneCPU(config lab.EnvoyConfig, cpu *int) (lab.EnvoyConfig, error) {
	config.Binary = b.envoy
	if cpu == nil {
		return config, nil
	}
	config.Args = append(config.Args, "--concurrency", "1")
	config.Binary = filepath.Join(b.Dir, "envoy")
	script := fmt.Sprintf("#!/bin/sh\nexec taskset -c %d %q \"$@\"\n", *cpu, b.envoy)
	if err := os.WriteFile(config.Binary, []byte(script), 0o700); err != nil {
		return config, fmt.Errorf("writing a script: %w", err)
	}
	return config, nil
}

// pinSelf pins this process to one CPU. It does nothing if cpu is nil. restore undoes it.
func pinSelf(cpu *int) (restore func() error, err error) {
	if cpu == nil {
		return func() error { return nil }, nil
	}
	all, err := measure.AllowedCPUs()
	if err != nil {
		return nil, err
	}
	return func() error { return setAffinity(all) }, setAffinity([]int{*cpu})
}

// setAffinity sets the CPUs of all threads. New threads inherit them.
func setAffinity(cpus []int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("listing threads: %w", err)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err == nil {
			err = unix.SchedSetaffinity(id, &set)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("setting the CPU affinity: %w", err)
		}
	}
	return nil
}
