package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

func TestUnprivilegedUser(t *testing.T) {
	cp := management.Get(t)
	namespace := cp.Namespace(t)
	path, err := cp.UserKubeconfig("jane", "viewers")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	jane := clientset(t, config)
	if _, err := jane.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("got error %v, want Forbidden", err)
	}

	err = cp.ApplyYAML(t.Context(), fmt.Appendf(nil, `
apiVersion: v1
kind: List
items:
- apiVersion: rbac.authorization.k8s.io/v1
  kind: RoleBinding
  metadata: {name: viewers, namespace: %s}
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: viewers}]
`, namespace))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, err := jane.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
		return err
	})
}

func TestStopLeavesNothing(t *testing.T) {
	before := goroutines()
	cp, err := Start(t.Context(), Config{ControllerManager: true, Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	if err := cp.ApplyYAML(t.Context(), []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}")); err != nil {
		t.Error(err)
	}
	var pids []int
	for _, p := range []*process{cp.etcd, cp.apiServer, cp.controllerManager} {
		pids = append(pids, p.cmd.Process.Pid)
	}
	if err := errors.Join(cp.Stop(), cp.Stop()); err != nil {
		t.Error(err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d still exists: %v", pid, err)
		}
	}
	if _, err := os.Stat(cp.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder %s still exists: %v", cp.Dir(), err)
	}
	if err := cp.StartAPIServer(t.Context()); !errors.Is(err, errStopped) {
		t.Errorf("starting after Stop: %v", err)
	}
	eventually(t, func() error {
		for id, stack := range goroutines() {
			if _, old := before[id]; !old {
				return fmt.Errorf("leaked goroutine:\n%s", stack)
			}
		}
		return nil
	})
}

func TestRestartInDirKeepsData(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cp")
	for run := range 2 {
		cp, err := Start(t.Context(), Config{Dir: dir, Logf: t.Logf})
		if err != nil {
			t.Fatal(err)
		}
		kube := clientset(t, cp.RESTConfig())
		_, err = kube.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
		if found := err == nil; found != (run == 1) {
			t.Errorf("run %d: ConfigMap found: %t (%v)", run, found, err)
		}
		if err := cp.Apply(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}); err != nil {
			t.Error(err)
		}
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestStartFails(t *testing.T) {
	t.Run("a process ends", func(t *testing.T) {
		_, err := Start(t.Context(), Config{Name: "broken", Logf: t.Logf, APIServerFlags: []string{"--no-such-flag"}})
		for _, want := range []string{"control plane broken", "kube-apiserver ended: exit status 1", "unknown flag: --no-such-flag", "kube-apiserver.log"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("no %q in error: %v", want, err)
			}
		}
	})
	t.Run("the context ends", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if _, err := Start(ctx, Config{Logf: t.Logf}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v", err)
		}
	})
	t.Run("invalid ServiceCIDR", func(t *testing.T) {
		if _, err := Start(t.Context(), Config{Logf: t.Logf, ServiceCIDR: "10.0.0.0"}); err == nil || !strings.Contains(err.Error(), "ServiceCIDR") {
			t.Errorf("got error %v", err)
		}
	})
}

// TestApplyWaitsForAnAddress checks that Apply retries while the ClusterIP is allocated to another Service.
func TestApplyWaitsForAnAddress(t *testing.T) {
	cp := management.Get(t)
	namespace := cp.Namespace(t)
	service := func(name string) []byte {
		return fmt.Appendf(nil, "{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: %s}, spec: {clusterIP: 10.96.0.99, ports: [{port: 80}]}}", name, namespace)
	}
	if err := cp.ApplyYAML(t.Context(), service("first")); err != nil {
		t.Fatal(err)
	}
	applied := make(chan error, 1)
	go func() { applied <- cp.ApplyYAML(t.Context(), service("second")) }()
	select {
	case err := <-applied:
		t.Fatalf("the second Service was created with the address of the first: %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	if err := cp.DeleteYAML(t.Context(), service("first")); err != nil {
		t.Fatal(err)
	}
	if err := <-applied; err != nil {
		t.Error(err)
	}
}

func TestSchedulerIsRestarted(t *testing.T) {
	cp := New(t, Config{Name: "kept", Scheduler: true, ControllerManager: true})
	scheduler := func() *process {
		cp.mu.Lock()
		defer cp.mu.Unlock()
		return cp.scheduler
	}
	first := scheduler()
	if err := first.kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if now := scheduler(); now == first || !now.running() {
			return errors.New("the scheduler was not restarted")
		}
		return nil
	})
	if err := cp.Stop(); err != nil {
		t.Fatal(err)
	}
	if scheduler().running() {
		t.Error("the scheduler runs after Stop")
	}
}
