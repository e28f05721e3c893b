package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// helperDir is an environment variable that makes this test binary a helper process, which starts a control
// plane in that folder and is then killed.
const helperDir = "LAB_TEST_HELPER_DIR"

func TestProcessesDieWithUs(t *testing.T) {
	if dir := os.Getenv(helperDir); dir != "" {
		cp, err := Start(t.Context(), Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("pids", cp.etcd.cmd.Process.Pid, cp.apiServer.cmd.Process.Pid)
		time.Sleep(time.Minute)
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	helper := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestProcessesDieWithUs$")
	helper.Env = append(os.Environ(), helperDir+"="+t.TempDir())
	helper.Stderr = os.Stderr
	stdout, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for lines := bufio.NewScanner(stdout); len(pids) == 0 && lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "pids "); ok {
			for f := range strings.FieldsSeq(rest) {
				pid, err := strconv.Atoi(f)
				if err != nil {
					t.Fatal(err)
				}
				pids = append(pids, pid)
			}
		}
	}
	if err := helper.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = helper.Wait() // killed
	if len(pids) != 2 {
		t.Fatalf("the helper did not start a control plane")
	}
	for _, pid := range pids {
		eventually(t, func() error { return checkEnded(pid) })
	}
}

// checkEnded returns an error unless a process has ended; it may be a zombie.
func checkEnded(pid int) error {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, state, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(state, "Z") {
		return nil
	}
	return fmt.Errorf("process %d still runs", pid)
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
	if err := r.cp.failure(); err != nil {
		t.Error(err)
	}
	if err := r.cp.Stop(); err != nil {
		t.Error(err)
	}
}

func TestPortTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	_, text, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}

	for _, component := range []string{etcd, apiServer} {
		t.Run(component, func(t *testing.T) {
			assets, err := FindAssets(t.Context(), t.Logf, etcd, apiServer)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			cp := &ControlPlane{config: Config{Dir: dir}.withDefaults(), assets: assets, dir: dir, launcher: newLauncher()}
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
			if component == etcd {
				free.etcd = port
			} else {
				free.apiServer = port
			}
			if err := cp.serveOn(t.Context(), free); !errors.Is(err, errPortTaken) {
				t.Errorf("got error %v", err)
			}
		})
	}
}
