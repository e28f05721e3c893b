package dns_test

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/lab"
)

// reloadCorefile is a format of a Corefile with two views. Every reload changes its TTL.
const reloadCorefile = `.:$DNS {
		bind 127.0.0.2
		prometheus 127.0.0.1:$METRICS
		ready 127.0.0.1:$READY
		%[3]s
		hcpviews $DOMAIN {
			kubeconfig $KUBECONFIG
			view vlan
			ttl %[1]d
		}
		hcpapps $DOMAIN
		cache
		forward . $UPSTREAM
	}
	.:$DNS {
		bind 127.0.0.1
		prometheus 127.0.0.1:$METRICS
		hcpviews $DOMAIN {
			kubeconfig $KUBECONFIG
			view pod
		}
		hcpapps $DOMAIN
	}
	%[2]s`

func TestReloadsLeakNothingAndListNothingAgain(t *testing.T) {
	warmup, all := lab.Length(50, 100), lab.Length(200, 1000) // numbers of reloads
	const brokenEvery = 10
	cp := management.Get(t)
	apply(t, cp, blue.yaml()+green.yaml())
	guest := addHostedCluster(t, cp)
	api := newCountingProxy(t, cp.RESTConfig())
	before, guestBefore := stableWatches(t, cp), stableWatches(t, guest)
	corefile := func(ttl int, blocks, plugin string) string { return fmt.Sprintf(reloadCorefile, ttl, blocks, plugin) }
	c := startCoreDNS(t, corefile(3000, "", ""), map[string]string{
		"DOMAIN": domain, "KUBECONFIG": api.kubeconfig, "UPSTREAM": newUpstreamResolver(t).address,
		"MISSING": filepath.Join(t.TempDir(), "kubeconfig"),
	})
	questions := []question{
		{from: blueVM, to: "127.0.0.2", name: "api.blue." + domain, want: blue.proxy},
		{from: blueVM, to: "127.0.0.2", name: "shop.apps.blue." + domain, want: blueApps},
		{from: blueVM, to: "127.0.0.2", name: "www.example.org", want: upstreamAnswer},
		{from: pod, name: "api.blue." + domain, want: blue.pod},
	}
	c.await(t, questions...)
	openWatches := watches{"hostedclusters": 1, "infras": 1, "routes": 1, "services": 1, "secrets": 1}
	lab.Poll(t, "one watch of each resource for both blocks", func() bool { return maps.Equal(watchesOf(t, cp).since(before), openWatches) })
	requests := api.String()

	block := func(address, properties string) string {
		return ".:$DNS {\n bind " + address + "\n hcpviews {\n kubeconfig " + properties + "\n }\n hcpapps\n}"
	}
	broken := map[string]string{ // by a part of the error
		"unknown property 'no-such-word'": block("127.0.0.3", "$KUBECONFIG\n no-such-word"),
		"no such file or directory":       block("127.0.0.3", "$MISSING"),    // after other blocks have started
		"cannot assign requested address": block("192.0.2.1", "$KUBECONFIG"), // after all of them have
	}
	load := func(ttl int, plugin string) {
		t.Helper()
		c.configure(t, corefile(ttl, "", plugin))
		if err := c.reload(t); err != nil {
			t.Fatalf("reload %d: %v", ttl, err)
		}
		if got := c.ttl(t, questions[0]); got != ttl {
			t.Fatalf("after reload %d the TTL is %d", ttl, got)
		}
	}
	fail := func(ttl int) {
		t.Helper()
		for says, blocks := range broken {
			c.configure(t, corefile(3600, blocks, ""))
			if err := c.reload(t); err == nil || !strings.Contains(err.Error(), says) {
				t.Fatalf("reload of a broken Corefile: error %v, want %q", err, says)
			}
			if got := c.ttl(t, questions[0]); got != ttl {
				t.Fatalf("after a failed reload the TTL is %d, want %d", got, ttl)
			}
		}
	}
	started := time.Now()
	reload := func(from, to int) usage {
		t.Helper()
		for n := from; n <= to; n++ {
			load(n, "")
			if n%brokenEvery == 0 {
				fail(n)
			}
		}
		// The plugin pprof is loaded only for the measurement, because it leaks when a reload fails.
		load(to, "pprof 127.0.0.1:$PPROF")
		u := c.usage(t)
		t.Logf("%.0f s, %d reloads, %d failed reloads: %v", time.Since(started).Seconds(), to, to/brokenEvery*len(broken), u)
		return u
	}
	early := reload(1, warmup)
	reload(warmup+1, all)
	// Some hundred reloads detect a leak of a whole configuration each; a thousand detect smaller ones.
	lab.Await(t, "resource usage as after the first reloads", func() string { return c.usage(t).beyond(early, lab.Length(0.25, 0.05)) })
	c.expect(t, questions...)
	if got := watchesOf(t, cp).since(before); !maps.Equal(got, openWatches) {
		t.Errorf("%v watches are open, want %v", got, openWatches)
	}
	if got := watchesOf(t, guest).since(guestBefore); !maps.Equal(got, watches{"services": 1}) {
		t.Errorf("%v watches are open in the hosted cluster, want one of services", got)
	}
	if now := api.String(); now != requests {
		t.Errorf("reloads sent requests: %s before, %s after", requests, now)
	}
	if !c.isReady(t) {
		t.Error("not ready after the reloads")
	}
}

// ttl returns the TTL of the first answer to a question.
func (c *coredns) ttl(t *testing.T, q question) int {
	t.Helper()
	reply, err := c.exchange(t.Context(), q, q.message())
	if err != nil {
		t.Fatal(err)
	}
	if len(reply.Answer) == 0 {
		t.Fatalf("%s: no answer, rcode %s", q, dns.RcodeToString[reply.Rcode])
	}
	return int(reply.Answer[0].Header().Ttl)
}

// usage is the resource usage of a process.
type usage struct{ heap, goroutines, files float64 }

func (u usage) String() string {
	return fmt.Sprintf("heap %.0f kB, %.0f goroutines, %.0f open files", u.heap/1024, u.goroutines, u.files)
}

// usage measures the resource usage. It returns minimums of several samples, because connections and
// finalizers end with a delay.
func (c *coredns) usage(t *testing.T) usage {
	t.Helper()
	least := usage{math.Inf(1), math.Inf(1), math.Inf(1)}
	for range 20 { // until connections and finalizers have ended
		status, profile := get(t, http.DefaultClient, c.profiles+"heap?gc=1&debug=1")
		if status != http.StatusOK {
			t.Fatalf("%s: status %d: %s", c.profiles, status, profile)
		}
		_, rest, _ := strings.Cut(profile, "# HeapAlloc = ")
		text, _, _ := strings.Cut(rest, "\n")
		heap, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("no HeapAlloc in the heap profile: %v", err)
		}
		least.heap = min(least.heap, heap)
		time.Sleep(20 * time.Millisecond)
	}
	// Metrics are read after the heap, because compressing them allocates half a megabyte that survives two
	// garbage collections.
	for range 20 {
		least.goroutines = min(least.goroutines, c.metric(t, "go_goroutines"))
		least.files = min(least.files, c.metric(t, "process_open_fds"))
		time.Sleep(50 * time.Millisecond)
	}
	return least
}

// beyond returns a description of a resource of which u uses more than before by more than share, or "".
func (u usage) beyond(before usage, share float64) string {
	for what, pair := range map[string][2]float64{
		"heap": {before.heap, u.heap}, "goroutines": {before.goroutines, u.goroutines}, "files": {before.files, u.files},
	} {
		if pair[1] > pair[0]*(1+share) {
			return fmt.Sprintf("%s: %.0f before, %.0f after", what, pair[0], pair[1])
		}
	}
	return ""
}
