package cmd

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/densityops/oooi/test/lab"
)

// terminal opens a pseudoterminal of 20 columns, and returns the master and the slave.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	lab.Must(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	lab.Must(t, err)
	if slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR, 0); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = slave.Close() })
	lab.Must(t, unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 20}))
	return master, slave
}

// TestSetupDuringTheQuestion runs setup while teardown asks for confirmation: setup does not wait for the answer, and
// teardown does not delete the object that setup has created since.
func TestSetupDuringTheQuestion(t *testing.T) {
	s := newSite(t)
	s.Setup()
	master, slave := terminal(t)
	ask := func(meanwhile func()) (stderr string, code int) {
		t.Helper()
		var out, errors lab.Output
		done := make(chan int, 1)
		go func() {
			done <- Main(t.Context(), []string{"kubectl-oooi", "--kubeconfig", s.Kubeconfig, "teardown", "demo", "-n", s.Namespace}, genericiooptions.IOStreams{In: slave, Out: &out, ErrOut: &errors})
		}()
		lab.Poll(s, "teardown asks", func() bool { return strings.Contains(errors.String(), "[y/N]") })
		meanwhile()
		if _, err := master.WriteString("y\n"); err != nil {
			t.Fatal(err)
		}
		return errors.String(), <-done
	}
	var before []string
	_, code := ask(func() {
		s.Must(s.Client.Delete(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "demo-dns"}}))
		if stderr := s.Setup(); strings.Contains(stderr, "waiting") {
			t.Errorf("setup printed %s", stderr)
		}
		before = s.Everything()
	})
	if code != 1 {
		t.Errorf("teardown exited with %d", code)
	}
	s.Unchanged(before)
	if stderr, code := ask(func() {}); code != 0 || s.exists("Infra", "demo") {
		t.Errorf("teardown exited with %d, stderr %s", code, stderr)
	}
	s.expectNoLock()
}

func TestProgressNeedsATerminal(t *testing.T) {
	master, slave := terminal(t)
	c := &command{IOStreams: genericiooptions.IOStreams{ErrOut: slave}}
	for _, activity := range []string{"reading", "reading", "probing"} {
		c.progress(activity)
	}
	lines := bufio.NewScanner(master)
	for _, want := range []string{"reading", "probing"} {
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("printed %q, want %q", lines.Text(), want)
		}
	}
	var file bytes.Buffer
	(&command{IOStreams: genericiooptions.IOStreams{ErrOut: &file}}).progress("reading")
	if file.Len() > 0 {
		t.Errorf("progress printed %q to a stream that is no terminal", &file)
	}
}
