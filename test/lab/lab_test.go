package lab

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

var management = Shared{
	Config: Config{Name: "management", ControllerManager: true, CRDs: []CRDSet{HyperShift, KubeVirt}},
}

func TestMain(m *testing.M) { Main(m, &management) }

func clientset(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// eventually calls try until it succeeds, for half a minute, because informers back off after an outage.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// goroutines returns the stacks of all goroutines by ID.
func goroutines() map[string]string {
	buf := make([]byte, 1<<20)
	stacks := map[string]string{}
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		fields := strings.Fields(stack)
		stacks[fields[1]] = stack
	}
	return stacks
}
