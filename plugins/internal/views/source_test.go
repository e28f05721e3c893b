package views

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/plugins/internal/nametree"
)

func sourceOf(t *testing.T, properties string) *Source {
	t.Helper()
	s := NewSource(*config(t, properties), discard)
	s.Serve(&Block{Handler: Handler{Part: nametree.ControlPlane}, TTL: controlPlane[nametree.ControlPlane]})
	return s
}

func startSource(t *testing.T, s *Source) {
	t.Helper()
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
}

func stopSource(t *testing.T, s *Source) {
	t.Helper()
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

func TestSourceAnswersFromStartToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sourceOf(t, "manifests testdata/manifests")
		if s.Table() != nil {
			t.Error("there is a table before the start")
		}
		startSource(t, s)
		if got := sees(s.Table(), "192.0.2.77", "blue"); got != "vlan 192.0.2.3" {
			t.Errorf("a client on the VLAN sees %q", got)
		}
		stopSource(t, s)
		stopSource(t, s) // the second time means nothing
		if got := sees(s.Table(), "192.0.2.77", "blue"); got != "vlan 192.0.2.3" {
			t.Errorf("a query that was under way at the stop sees %q", got)
		}
		if len(shared.running()) != 0 {
			t.Error("the store outlives its source")
		}
	})
}

func TestSourceThatNeverStartedStops(t *testing.T) {
	stopSource(t, sourceOf(t, "manifests testdata/manifests"))
}

func TestSourcesWithEqualConfigsShareAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vlan, pod := sourceOf(t, "manifests testdata/manifests\nview vlan"), sourceOf(t, "manifests testdata/manifests\nview pod")
		startSource(t, vlan)
		startSource(t, pod)
		if n := len(shared.running()); n != 1 {
			t.Errorf("%d stores run, want one for both blocks", n)
		}
		if got := sees(vlan.Table(), "192.0.2.77", "blue"); got != "vlan 192.0.2.3" {
			t.Errorf("the one block answers %q", got)
		}
		if got := sees(pod.Table(), "192.0.2.77", "blue"); got != "pod 10.96.0.10" {
			t.Errorf("the other block answers %q", got)
		}
		stopSource(t, vlan)
		stopSource(t, pod)
	})
}

func TestSourceWaitsForItsFirstSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "later")
		go func() {
			time.Sleep(startupWait / 2)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Error(err)
			}
		}()
		s := sourceOf(t, "manifests "+dir)
		startSource(t, s)
		if s.Table() == nil {
			t.Error("the source started without the snapshot that was to be had")
		}
		stopSource(t, s)
	})
}

func TestSourceStartsWithoutASnapshotInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "much-later")
		s := sourceOf(t, "manifests "+dir)
		before := time.Now()
		startSource(t, s)
		if waited := time.Since(before); waited != startupWait {
			t.Errorf("the start took %s, want %s", waited, startupWait)
		}
		if s.Table() != nil {
			t.Error("there is a table of nothing")
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s.Table() == nil {
			t.Error("what appeared after the start goes unnoticed")
		}
		stopSource(t, s)
	})
}

func TestSourcesOfOneCorefileWaitTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, first := range []bool{false, true} {
			waitTogether(t, first)
		}
	})
}

func waitTogether(t *testing.T, first bool) {
	t.Helper()
	before := time.Now()
	load := &startup{first: first}
	want := startupWait
	if first { // nobody answers meanwhile
		want = firstWait
	}
	for _, name := range []string{"one", "two", "three"} {
		load.sources = append(load.sources, sourceOf(t, "manifests "+filepath.Join(t.TempDir(), name)))
	}
	for _, s := range load.sources {
		if err := load.start(s); err != nil {
			t.Fatal(err)
		}
		defer stopSource(t, s)
	}
	if waited := time.Since(before); waited != want {
		t.Errorf("the start took %s, want %s", waited, want)
	}
	if n := len(shared.running()); n != len(load.sources) {
		t.Errorf("%d stores run, want %d", n, len(load.sources))
	}
}

func TestSourceFollowsChangesUnderAGrowingSerial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := sourceOf(t, "manifests "+dir)
		startSource(t, s)
		defer stopSource(t, s)
		if got := sees(s.Table(), "192.0.2.77", "blue"); got != "pod nothing" {
			t.Errorf("in an empty folder: %q", got)
		}
		time.Sleep(time.Minute)
		copyManifest(t, filepath.Join(dir, "blue.yaml"))
		time.Sleep(time.Second)
		synctest.Wait()
		first := serial(t, s)
		if now := uint32(time.Now().Unix()); first > now || first < now-1 {
			t.Errorf("the serial is %d at %d", first, now)
		}
		s.update()
		if got := serial(t, s); got != first {
			t.Errorf("without a change the serial %d is %d", first, got)
		}
		// Twice in one second: the serial grows though the time does not.
		for range 2 {
			s.table.Store(nil) // so that nothing is what it was
			s.update()
		}
		if got := serial(t, s); got <= first+1 {
			t.Errorf("after two more changes the serial %d is %d", first, got)
		}
	})
}

func serial(t *testing.T, s *Source) uint32 {
	t.Helper()
	node, _ := s.Table().Sight(addrs("192.0.2.77")[0]).Tree.Lookup("blue.example.com.")
	m := new(dns.Msg)
	node.Answer(m, "blue.example.com.", dns.TypeSOA)
	soa, ok := m.Answer[0].(*dns.SOA)
	if !ok {
		t.Fatalf("%s is no SOA", m.Answer[0])
	}
	return soa.Serial
}

func TestStartSaysWhatCannotBeOpened(t *testing.T) {
	s := NewSource(Config{Source: watch.Config{Kubeconfig: filepath.Join(t.TempDir(), "missing")}}, discard)
	if err := s.Start(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the error is %v", err)
	}
	stopSource(t, s)
}

// controlPlane are the parts of a block with hcpviews alone.
var controlPlane = nametree.TTLs{nametree.ControlPlane: 30}
