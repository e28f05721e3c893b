package lab_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/test/lab"
)

var network = lab.Network{Ranges: []string{"198.18.0.0/24"}}

// management is at the same address in both labs of TestLabsRunSideBySide.
var management = lab.Shared{Config: lab.Config{Name: "management", Address: "198.18.0.1"}}

func TestMain(m *testing.M) {
	if code := network.Main(m, &management); code != 0 {
		os.Exit(code)
	}
}

// labFile is the environment variable with the file that a lab of TestLabsRunSideBySide creates when it runs.
const labFile = "OOOI_LAB_TEST_FILE"

// TestLabsRunSideBySide starts two labs with the same addresses, each in a process, as two runs of make test do. Each must have
// only its own objects while both run, and the machine's network must not change.
func TestLabsRunSideBySide(t *testing.T) {
	network.Need(t)
	machine := func() string {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "ip -oneline address; ip route show table all; cat /proc/net/tcp /proc/net/tcp6").Output()
		lab.Must(t, err)
		return string(out)
	}
	before := machine()
	dir := t.TempDir()
	var labs errgroup.Group
	for _, name := range []string{"one", "two"} {
		labs.Go(func() error {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLab$", "-test.v")
			cmd.Env = append(os.Environ(), "OOOI_LAB_INSIDE_NETWORK=", labFile+"="+filepath.Join(dir, name))
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "--- PASS: TestLab ") {
				t.Errorf("lab %s: %v\n%s", name, err, out)
			}
			return nil
		})
	}
	_ = labs.Wait() // reported above
	if now := machine(); now != before {
		t.Errorf("the machine's network was\n%s\nand is\n%s", before, now)
	}
}

// TestLab is one lab of TestLabsRunSideBySide.
func TestLab(t *testing.T) {
	file := os.Getenv(labFile)
	if file == "" {
		return
	}
	cp := management.Get(t)
	cp.MustApply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: lab-"+filepath.Base(file)+"}}")
	lab.Must(t, os.WriteFile(file, nil, 0o600))
	lab.Poll(t, "both labs to run", func() bool {
		running, err := os.ReadDir(filepath.Dir(file))
		return err == nil && len(running) == 2
	})
	list := &corev1.NamespaceList{}
	lab.Must(t, cp.Client(t).List(t.Context(), list))
	for _, ns := range list.Items {
		if strings.HasPrefix(ns.Name, "lab-") && ns.Name != "lab-"+filepath.Base(file) {
			t.Errorf("the lab has namespace %s of the other one", ns.Name)
		}
	}
}
