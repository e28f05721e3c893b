package lab

import (
	"errors"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOutages(t *testing.T) {
	cp := New(t, Config{Name: "outages", ControllerManager: true})
	kube := clientset(t, cp.RESTConfig())
	url := cp.ServerURL()
	create := func(name string) {
		t.Helper()
		if err := cp.Apply(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	checkExist := func(names ...string) {
		t.Helper()
		for _, name := range names {
			if _, err := kube.CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}

	create("first")
	if err := cp.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	if _, err := kube.CoreV1().ConfigMaps("default").Get(t.Context(), "first", metav1.GetOptions{}); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("without an API server: got error %v, want connection refused", err)
	}
	started := time.Now()
	if err := cp.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("API server back in %s", time.Since(started).Round(time.Millisecond))
	checkExist("first")

	create("second")
	if err := cp.KillEtcd(); err != nil {
		t.Fatal(err)
	}
	started = time.Now()
	if err := cp.StartEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("etcd back in %s", time.Since(started).Round(time.Millisecond))
	checkExist("first", "second")

	if err := errors.Join(cp.KillEtcd(), cp.KillAPIServer(), cp.KillEtcd()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(cp.StartEtcd(t.Context()), cp.StartAPIServer(t.Context())); err != nil {
		t.Fatal(err)
	}
	checkExist("first", "second")
	if cp.ServerURL() != url {
		t.Errorf("the API server's URL changed from %s to %s", url, cp.ServerURL())
	}
	if err := cp.StartEtcd(t.Context()); err == nil {
		t.Error("no error from starting etcd while it runs")
	}

	// The controller manager has survived the outages.
	namespace := cp.Namespace(t)
	eventually(t, func() error {
		_, err := kube.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
}
