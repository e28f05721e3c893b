package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
)

var errStopped = errors.New("the control plane is stopped")

// KillAPIServer sends SIGKILL to the API server and waits until it has ended.
func (cp *ControlPlane) KillAPIServer() error { return cp.kill(&cp.apiServer) }

// SignalEtcd sends etcd a signal, such as SIGSTOP.
func (cp *ControlPlane) SignalEtcd(signal syscall.Signal) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if !cp.etcd.running() {
		return errStopped
	}
	return cp.etcd.cmd.Process.Signal(signal)
}

// KillEtcd sends SIGKILL to etcd and waits until it has ended. Its data stays.
func (cp *ControlPlane) KillEtcd() error { return cp.kill(&cp.etcd) }

func (cp *ControlPlane) kill(p **process) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if err := (*p).kill(); err != nil {
		return err
	}
	*p = nil // await must not report it as failed
	return nil
}

// StartAPIServer starts the API server again after KillAPIServer, at the same address, and returns when it is
// ready.
func (cp *ControlPlane) StartAPIServer(ctx context.Context) error {
	if err := cp.restart(&cp.apiServer, cp.startAPIServer); err != nil {
		return err
	}
	return cp.waitForPath(ctx, "the API server to be ready again", "/readyz")
}

// StartEtcd starts etcd again after KillEtcd, with its data. It returns when etcd is healthy and, if the API
// server runs, when that is ready.
func (cp *ControlPlane) StartEtcd(ctx context.Context) error {
	if err := cp.restart(&cp.etcd, cp.startEtcd); err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	err := cp.await(ctx, "etcd to be healthy again", func(ctx context.Context) error {
		return probe(ctx, client, cp.etcdURL()+"/health")
	})
	if err != nil {
		return err
	}
	cp.mu.Lock()
	serving := cp.apiServer.running()
	cp.mu.Unlock()
	if !serving {
		return nil
	}
	return cp.waitForPath(ctx, "the API server to be ready again", "/readyz")
}

func (cp *ControlPlane) restart(p **process, start func() error) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.stopped {
		return errStopped
	}
	if (*p).running() {
		return fmt.Errorf("%s is already running", (*p).name)
	}
	return start()
}
