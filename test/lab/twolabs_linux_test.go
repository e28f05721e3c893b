package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// labOfTwo names the lab that a copy of this test binary is. Its folder has a file for each lab that is set up.
const labOfTwo, labsDir = "OOOI_LAB_OF_TWO", "OOOI_LABS_DIR"

// vlanOfTwo has the first three bytes of addresses in both labs.
const vlanOfTwo = "198.18.77"

// TestTwoLabsAtOnce runs TestLabOfTwo in two networks at the same time, as tests of two packages, or two checkouts, do.
func TestTwoLabsAtOnce(t *testing.T) {
	if err := FindTools("nft", "ip"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*WaitTimeout)
	defer cancel()
	results := make(chan error)
	for _, name := range []string{"a", "b"} {
		go func() {
			cmd := exec.CommandContext(ctx, self, "-test.run=^TestLabOfTwo$", "-test.v")
			cmd.Env = append(os.Environ(), labOfTwo+"="+name, labsDir+"="+dir)
			cmd.SysProcAttr = NetworkNamespace(os.Geteuid() != 0)
			out, err := cmd.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("lab %s: %w\n%s", name, err, out)
			}
			results <- err
		}()
	}
	if err := errors.Join(<-results, <-results); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", "ip route show table all; nft list tables").CombinedOutput()
	if err != nil || strings.Contains(string(out), vlanOfTwo) || strings.Contains(string(out), "lab_of_two") {
		t.Errorf("routes and rules of a lab are on the machine, error %v:\n%s", err, out)
	}
}

// TestLabOfTwo is one of two labs that have the same names, addresses and ports.
func TestLabOfTwo(t *testing.T) {
	name, other := os.Getenv(labOfTwo), map[string]string{"a": "b", "b": "a"}[os.Getenv(labOfTwo)]
	if name == "" {
		t.Skip("TestTwoLabsAtOnce runs this test")
	}
	if err := SetUpNetwork([]string{vlanOfTwo + ".0/24", "10.96.0.0/16"}); err != nil {
		t.Fatal(err)
	}
	cp := New(t, Config{Name: "management", Address: "10.96.0.77"})
	cp.MustApply(t, Namespaces("lab-"+name))
	TCPBackend(t, vlanOfTwo+".13:443", name)
	// Packets to the same port are rejected in one lab only.
	if name == "b" {
		(*Namespace)(nil).Run(t, "nft", "add table inet lab_of_two; add chain inet lab_of_two in { type filter hook input priority 0; }; add rule inet lab_of_two in tcp dport 444 reject with tcp reset")
	}
	TCPBackend(t, vlanOfTwo+".13:444", name)

	if err := os.WriteFile(filepath.Join(os.Getenv(labsDir), name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	Poll(t, "the other lab to be set up", func() bool {
		_, err := os.Stat(filepath.Join(os.Getenv(labsDir), other))
		return err == nil
	})
	for port, served := range map[string]bool{"443": true, "444": name == "a"} {
		if got, err := greetingOf(t, vlanOfTwo+".13:"+port); (err == nil) != served || served && got != name {
			t.Errorf("port %s in lab %s: backend %q, error %v", port, name, got, err)
		}
	}
	if err := cp.Client(t).Get(t.Context(), client.ObjectKey{Name: "lab-" + name}, &corev1.Namespace{}); err != nil {
		t.Error(err)
	}
	if err := cp.Client(t).Get(t.Context(), client.ObjectKey{Name: "lab-" + other}, &corev1.Namespace{}); err == nil {
		t.Errorf("the API server of lab %s has an object of the other lab", name)
	}
}

// greetingOf returns the name of the backend at an address.
func greetingOf(t *testing.T, address string) (string, error) {
	t.Helper()
	dialer := net.Dialer{Timeout: 10 * time.Second}
	conn, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	return Greeting(t.Context(), conn)
}
