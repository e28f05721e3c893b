package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// New starts a control plane for one test, and fails the test if it does not become ready. It stops when the
// test ends; if the test failed, the ends of its logs are printed.
func New(tb testing.TB, config Config) *ControlPlane {
	tb.Helper()
	if config.Logf == nil {
		config.Logf = tb.Logf
	}
	cp, err := Start(tb.Context(), config)
	Must(tb, err)
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Log(cp.Logs())
		}
		Report(tb, cp.Stop())
	})
	return cp
}

// Shared is a control plane that the tests of a package share. The first Get starts it:
//
//	var management = lab.Shared{
//		Config: lab.Config{Name: "management", CRDs: []lab.CRDSet{lab.HyperShift, lab.Oooi}},
//	}
//
//	func TestMain(m *testing.M) { lab.Main(m, &management) }
//
//	func TestSomething(t *testing.T) {
//		cp := management.Get(t)
//		namespace := cp.Namespace(t)
//		...
//	}
type Shared struct {
	Config Config
	// Prepare, if set, is called once after the control plane has started.
	Prepare func(context.Context, *ControlPlane) error

	mu  sync.Mutex
	cp  *ControlPlane
	err error
}

// Get returns the control plane. If its start failed, every call fails its test.
func (s *Shared) Get(tb testing.TB) *ControlPlane {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cp == nil && s.err == nil {
		s.cp, s.err = Start(tb.Context(), s.Config)
		if s.err == nil && s.Prepare != nil {
			s.err = s.Prepare(tb.Context(), s.cp)
		}
	}
	if s.err != nil {
		tb.Fatal(s.err)
	}
	return s.cp
}

// prepare builds and downloads what the control plane needs.
func (s *Shared) prepare(ctx context.Context) error {
	_, buildErr := Build(ctx, s.Config.Logf)
	_, crdsErr := CRDs(ctx, s.Config.CRDs...)
	return errors.Join(buildErr, crdsErr)
}

// testGCPercent is the GC percentage of test processes. It reduces their processor time by a tenth, and uses
// more memory.
const testGCPercent = 400

// Main is the TestMain of a package whose tests share control planes. It runs the tests and stops the control
// planes.
func Main(m *testing.M, shared ...*Shared) {
	debug.SetGCPercent(testGCPercent)
	m.Run()
	for _, s := range shared {
		s.stop()
	}
}

func (s *Shared) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cp == nil {
		return
	}
	if err := s.cp.Stop(); err != nil {
		s.Config.Logf.printf("%v", err)
	}
}

// Namespace creates a namespace for one test, with a unique name derived from the test's name, and deletes it
// when the test ends.
func (cp *ControlPlane) Namespace(tb testing.TB) string {
	tb.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: uniqueName(tb.Name())}}
	Must(tb, cp.Apply(tb.Context(), ns))
	tb.Cleanup(func() {
		// The test's context is done by now.
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		if err := cp.Delete(ctx, ns); err != nil {
			tb.Errorf("deleting the test's namespace: %v", err)
		}
	})
	return ns.Name
}

var nonLabelCharacters = regexp.MustCompile(`[^a-z0-9]+`)

// uniqueName converts a name to a DNS label with a random suffix.
func uniqueName(name string) string {
	label := strings.Trim(nonLabelCharacters.ReplaceAllString(strings.ToLower(name), "-"), "-")
	label = strings.Trim(label[:min(len(label), 50)], "-")
	return label + "-" + strings.ToLower(rand.Text()[:6])
}
