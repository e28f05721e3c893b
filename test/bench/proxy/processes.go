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
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/densityops/oooi/test/bench/measure"
	"github.com/densityops/oooi/test/lab"
)

// startDeadline bounds a start, the reading of all objects included.
const startDeadline = 2 * time.Minute

// process is one that is measured.
type process struct {
	name  string
	cmd   *exec.Cmd
	log   string
	ended chan struct{} // closed when it has ended, with err set
	err   error
}

func (b *bench) startProcess(ctx context.Context, name string, cpu *int, command string, args ...string) (*process, error) {
	if cpu != nil {
		args = append([]string{"-c", strconv.Itoa(*cpu), command}, args...)
		command = "taskset"
	}
	p := &process{name: name, cmd: exec.CommandContext(ctx, command, args...), log: filepath.Join(b.dir, name+".log"), ended: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("making a log: %w", err)
	}
	defer func() { _ = log.Close() }() // the process has it, too
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// await returns when something succeeds.
func (p *process) await(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			err = fmt.Errorf("%s ended: %w", p.name, p.err)
		case <-ctx.Done():
			err = fmt.Errorf("waiting for %s: %w; last: %w", p.name, ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
			continue
		}
		said, readErr := os.ReadFile(p.log)
		return errors.Join(fmt.Errorf("%w; it said:\n%s", err, said), readErr)
	}
}

// stop ends the process and waits for it.
func (p *process) stop() {
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err == nil {
		<-p.ended
	}
}

// startXdsd runs xdsd as it is beside an Envoy.
func (b *bench) startXdsd(ctx context.Context) (*process, error) {
	const state, self = "127.0.0.1:9902", "clusters/" + cluster
	p, err := b.startProcess(ctx, "xdsd", nil, os.Getenv(xdsdPath), "serve", "--kubeconfig", b.management.Kubeconfig(),
		"--proxy-server", self, "--infra", self, "--hosted-cluster", self, "--socket", filepath.Join(b.dir, "ads.sock"),
		"--bind", envoyAddress, "--http", state)
	if err != nil {
		return nil, err
	}
	err = p.await(ctx, func(ctx context.Context) error {
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
		p.stop()
		return nil, err
	}
	return p, nil
}

// startEnvoy runs Envoy with what xdsd prints, on the CPU given with one thread, or on all.
func (b *bench) startEnvoy(ctx context.Context, cpu *int) (*lab.Envoy, error) {
	flags := []string{
		"bootstrap", "--proxy-server", "clusters/" + cluster, "--node-id", "bench",
		"--socket", filepath.Join(b.dir, "ads.sock"), "--admin-socket", filepath.Join(b.dir, "admin.sock"),
	}
	bootstrap, err := exec.CommandContext(ctx, os.Getenv(xdsdPath), flags...).Output()
	if err != nil {
		return nil, fmt.Errorf("xdsd bootstrap: %w", err)
	}
	args, err := exec.CommandContext(ctx, os.Getenv(xdsdPath), append(flags, "--args")...).Output()
	if err != nil {
		return nil, fmt.Errorf("xdsd bootstrap --args: %w", err)
	}
	config := lab.EnvoyConfig{Bootstrap: bootstrap, Args: append(strings.Fields(string(args)), "--log-level", "warning"), Binary: b.envoy, Logf: b.Progress, Unready: true}
	if cpu != nil {
		config.Args = append(config.Args, "--concurrency", "1")
		config.Binary = filepath.Join(b.dir, "envoy")
		script := fmt.Sprintf("#!/bin/sh\nexec taskset -c %d %q \"$@\"\n", *cpu, b.envoy)
		if err := os.WriteFile(config.Binary, []byte(script), 0o700); err != nil {
			return nil, fmt.Errorf("writing a script: %w", err)
		}
	}
	return lab.StartEnvoy(ctx, config)
}

// moveSelf has this process run on one CPU, or on all with nil, and returns the way back.
func moveSelf(cpu *int) (back func() error, err error) {
	if cpu == nil {
		return func() error { return nil }, nil
	}
	all, err := measure.AllowedCPUs()
	if err != nil {
		return nil, err
	}
	return func() error { return runOn(all) }, runOn([]int{*cpu})
}

// runOn sets the CPUs of every thread; those to come have their makers'.
func runOn(cpus []int) error {
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
			return fmt.Errorf("choosing CPUs: %w", err)
		}
	}
	return nil
}

// pause sleeps in the kernel. Go's own timers wake a process that has nothing else to do
// by the millisecond.
func pause(d time.Duration) {
	request := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&request, nil) // a signal that ends it early does no harm
}
