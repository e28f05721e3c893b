package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

var errStopped = errors.New("the control plane is stopped")

// KillAPIServer ends the API server as a crash would.
func (cp *ControlPlane) KillAPIServer() error { return cp.kill(&cp.apiServer) }

// KillEtcd ends etcd as a crash would. Its data stays.
func (cp *ControlPlane) KillEtcd() error { return cp.kill(&cp.etcd) }

func (cp *ControlPlane) kill(p **process) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if err := (*p).kill(); err != nil {
		return err
	}
	*p = nil // no failure, but meant
	return nil
}

// StartAPIServer starts the API server again, where it was, after
// KillAPIServer, and returns when it is ready.
func (cp *ControlPlane) StartAPIServer(ctx context.Context) error {
	if err := cp.restart(&cp.apiServer, cp.startAPIServer); err != nil {
		return err
	}
	return cp.waitForPath(ctx, "the API server to be ready again", "/readyz")
}

// StartEtcd starts etcd again, with its data, after KillEtcd. It returns when
// etcd serves and, if the API server runs, that is ready.
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
		return fmt.Errorf("%s is running", (*p).name)
	}
	return start()
}
