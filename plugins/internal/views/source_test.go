package views

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/plugins/internal/nametree"
	"github.com/densityops/oooi/test/lab"
)

func newTestSource(t *testing.T, properties string) *Source {
	t.Helper()
	s := NewSource(*config(t, properties), discard)
	s.Serve(&Handler{Part: nametree.ControlPlane, TTL: controlPlane[nametree.ControlPlane]})
	return s
}

func startSource(t *testing.T, s *Source) {
	t.Helper()
	lab.Must(t, s.Start())
}

func stopSource(t *testing.T, s *Source) {
	t.Helper()
	lab.Report(t, s.Stop())
}

func TestSourceAnswersFromStartToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSource(t, "manifests testdata/manifests")
		if s.Table() != nil {
			t.Error("the source has a table before its start")
		}
		startSource(t, s)
		if got := answerFor(s.Table(), "192.0.2.77", "blue"); got != "vlan 192.0.2.3" {
			t.Errorf("a client on the VLAN gets %q", got)
		}
		stopSource(t, s)
		stopSource(t, s) // no effect
		if got := answerFor(s.Table(), "192.0.2.77", "blue"); got != "vlan 192.0.2.3" {
			t.Errorf("a query in flight during the stop gets %q", got)
		}
		if len(shared.running()) != 0 {
			t.Error("the store still runs after its source stopped")
		}
	})
}

func TestStopBeforeStart(t *testing.T) {
	stopSource(t, newTestSource(t, "manifests testdata/manifests"))
}

func TestBlocksShareASnapshotFile(t *testing.T) {
	for _, tc := range []struct {
		name, vlan, pod string
		refused         bool
	}{
		{"the same file in both", "a.json", "a.json", false},
		{"a file in the first", "a.json", "", false},
		{"a file in the second", "", "a.json", false},
		{"different files", "a.json", "b.json", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				block := func(view, file string) *Source {
					if file != "" {
						file = "\nsnapshot " + filepath.Join(dir, file)
					}
					return newTestSource(t, "manifests testdata/manifests\nview "+view+file)
				}
				load := &startup{sources: []*Source{block(VLAN, tc.vlan), block(Pod, tc.pod)}}
				for _, s := range load.sources {
					defer stopSource(t, s)
				}
				if err := load.start(load.sources[0]); tc.refused {
					if err == nil || !strings.Contains(err.Error(), "a.json") || !strings.Contains(err.Error(), "b.json") {
						t.Errorf("error %v, want one that names both files", err)
					}
					return
				} else if err != nil {
					t.Fatal(err)
				}
				if n := len(shared.running()); n != 1 {
					t.Errorf("%d stores run, want one for both blocks", n)
				}
				for _, s := range load.sources {
					stopSource(t, s)
				}
				if _, err := os.Stat(filepath.Join(dir, "a.json")); err != nil {
					t.Errorf("the snapshot file was not written: %v", err)
				}
			})
		})
	}
}

func TestSourceWaitsForItsFirstSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "later")
		go func() {
			time.Sleep(reloadWait / 2)
			lab.Report(t, os.Mkdir(dir, 0o700))
		}()
		s := newTestSource(t, "manifests "+dir)
		startSource(t, s)
		if s.Table() == nil {
			t.Error("the source started without waiting for the snapshot")
		}
		stopSource(t, s)
	})
}

func TestSourceStartsWithoutASnapshotAfterTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "much-later")
		s := newTestSource(t, "manifests "+dir)
		before := time.Now()
		startSource(t, s)
		if waited := time.Since(before); waited != reloadWait {
			t.Errorf("the start took %s, want %s", waited, reloadWait)
		}
		if s.Table() != nil {
			t.Error("the source has a table without a snapshot")
		}
		lab.Must(t, os.Mkdir(dir, 0o700))
		time.Sleep(time.Second)
		synctest.Wait()
		if s.Table() == nil {
			t.Error("a snapshot after the start does not create a table")
		}
		stopSource(t, s)
	})
}

func TestSourcesInOneCorefileShareOneWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, first := range []bool{false, true} {
			checkCommonWait(t, first)
		}
	})
}

func checkCommonWait(t *testing.T, first bool) {
	t.Helper()
	before := time.Now()
	load := &startup{first: first}
	want := reloadWait
	if first {
		want = firstStartWait
	}
	for _, name := range []string{"one", "two", "three"} {
		load.sources = append(load.sources, newTestSource(t, "manifests "+filepath.Join(t.TempDir(), name)))
	}
	for _, s := range load.sources {
		lab.Must(t, load.start(s))
		defer stopSource(t, s)
	}
	if waited := time.Since(before); waited != want {
		t.Errorf("the start took %s, want %s", waited, want)
	}
	if n := len(shared.running()); n != len(load.sources) {
		t.Errorf("%d stores run, want %d", n, len(load.sources))
	}
}

func TestSerialIncreasesWithChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := newTestSource(t, "manifests "+dir)
		startSource(t, s)
		defer stopSource(t, s)
		if got := answerFor(s.Table(), "192.0.2.77", "blue"); got != "pod nothing" {
			t.Errorf("an empty directory gives %q", got)
		}
		time.Sleep(time.Minute)
		copyManifest(t, filepath.Join(dir, "blue.yaml"))
		time.Sleep(time.Second)
		synctest.Wait()
		first := serial(t, s)
		if now := uint32(time.Now().Unix()); first > now || first < now-1 {
			t.Errorf("the serial is %d at time %d", first, now)
		}
		s.update()
		if got := serial(t, s); got != first {
			t.Errorf("the serial changed from %d to %d without a change to the objects", first, got)
		}
		// Two changes in one second: the serial increases although the time does not.
		for range 2 {
			s.table.Store(nil) // no tree is reused
			s.update()
		}
		if got := serial(t, s); got <= first+1 {
			t.Errorf("after two more changes the serial is %[2]d, it was %[1]d", first, got)
		}
	})
}

func serial(t *testing.T, s *Source) uint32 {
	t.Helper()
	node, _ := s.Table().ClientView(addrs("192.0.2.77")[0]).Tree.Lookup("blue.example.com.")
	m := new(dns.Msg)
	node.Answer(m, "blue.example.com.", dns.TypeSOA)
	soa, ok := m.Answer[0].(*dns.SOA)
	if !ok {
		t.Fatalf("%s is not a SOA record", m.Answer[0])
	}
	return soa.Serial
}

func TestStartReturnsStoreErrors(t *testing.T) {
	s := NewSource(Config{Source: watch.Config{Kubeconfig: filepath.Join(t.TempDir(), "missing")}}, discard)
	if err := s.Start(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the error is %v", err)
	}
	stopSource(t, s)
}

// controlPlane are the TTLs of a server block with hcpviews only.
var controlPlane = nametree.TTLs{nametree.ControlPlane: 30}
