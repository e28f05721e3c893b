package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestProcessesDieWithUs(t *testing.T) {
	line := asHelper(t, func() string {
		cp, err := Start(t.Context(), Config{})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(cp.etcd.cmd.Process.Pid, " ", cp.apiServer.cmd.Process.Pid)
	})
	for pid := range strings.FieldsSeq(line) {
		Await(t, "process "+pid+" to end", func() string {
			stat, err := os.ReadFile("/proc/" + pid + "/stat")
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
				return ""
			}
			if _, state, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(state, "Z") {
				return ""
			}
			return fmt.Sprintf("%s, %v", stat, err)
		})
	}
}

// TestProcessesOutliveThreads checks that a control plane survives the end of the OS thread that it was
// started from.
func TestProcessesOutliveThreads(t *testing.T) {
	type result struct {
		cp  *ControlPlane
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this function
		cp, err := Start(t.Context(), Config{Logf: t.Logf})
		done <- result{cp, err}
	}()
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	time.Sleep(300 * time.Millisecond) // the kernel would kill the processes when the thread ends
	if err := errors.Join(r.cp.failure(), r.cp.Stop()); err != nil {
		t.Error(err)
	}
}

// TestApplyWaitsForAnAddress checks that Apply retries while the ClusterIP is allocated to another Service.
func TestApplyWaitsForAnAddress(t *testing.T) {
	cp := New(t, Config{})
	service := func(name string) []byte {
		return fmt.Appendf(nil, "{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: {clusterIP: 10.96.0.99, ports: [{port: 80}]}}", name)
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
	if err := errors.Join(cp.DeleteYAML(t.Context(), service("first")), <-applied); err != nil {
		t.Error(err)
	}
}

// TestPortTaken starts a control plane on ports that another process has taken after they were reserved.
func TestPortTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	port := int(netip.MustParseAddrPort(taken.Addr().String()).Port())
	for component, take := range map[string]func(*ports){etcd: func(p *ports) { p.etcd = port }, apiServer: func(p *ports) { p.apiServer = port }} {
		t.Run(component, func(t *testing.T) {
			binary, err := Build(t.Context(), t.Logf)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			cp := &ControlPlane{config: Config{Dir: dir}.withDefaults(), binary: binary, dir: dir, launcher: newLauncher()}
			defer func() {
				if err := cp.Stop(); err != nil {
					t.Error(err)
				}
			}()
			if err := errors.Join(cp.makeDir(), cp.makeCertificates()); err != nil {
				t.Fatal(err)
			}
			reserved, err := ReservePorts(t.Context(), "127.0.0.1", 3)
			if err != nil {
				t.Fatal(err)
			}
			free := ports{etcd: reserved.Numbers[0], etcdPeer: reserved.Numbers[1], apiServer: reserved.Numbers[2], reserved: reserved}
			take(&free)
			if err := cp.serveOn(t.Context(), free); !errors.Is(err, errPortTaken) {
				t.Errorf("got error %v", err)
			}
		})
	}
}

func TestReservedPortsAreExclusive(t *testing.T) {
	p, err := ReservePorts(t.Context(), "127.0.0.1", 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range p.Numbers {
		if other, ok := reserve(t.Context(), port); ok {
			_ = other.Close()
			t.Errorf("port %d is reserved twice", port)
		}
	}
	p.Release()
	for _, port := range p.Numbers {
		reservation, ok := reserve(t.Context(), port)
		if !ok {
			t.Fatalf("port %d stays reserved", port)
		}
		_ = reservation.Close()
	}
}
