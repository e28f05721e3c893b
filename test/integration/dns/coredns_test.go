package dns_test

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// coredns is a process with a Corefile. It can be killed and started again.
type coredns struct {
	*lab.Daemon

	path     string // of the Corefile
	words    map[string]string
	port     int
	ready    string // URLs of its plugins
	metrics  string
	profiles string
}

// newCoreDNS writes a Corefile, in which $DNS, $READY, $METRICS and $PPROF stand for
// ports and other words for what the test says. The process ends with the test.
func newCoreDNS(t *testing.T, corefile string, words map[string]string) *coredns {
	t.Helper()
	ports := freePorts(t, 4)
	c := &coredns{
		path: filepath.Join(t.TempDir(), "Corefile"),
		port: ports[0],
		words: map[string]string{
			"DNS": strconv.Itoa(ports[0]), "READY": strconv.Itoa(ports[1]), "METRICS": strconv.Itoa(ports[2]), "PPROF": strconv.Itoa(ports[3]),
		},
	}
	maps.Copy(c.words, words)
	c.ready = "http://127.0.0.1:" + c.words["READY"] + "/ready"
	c.metrics = "http://127.0.0.1:" + c.words["METRICS"] + "/metrics"
	c.profiles = "http://127.0.0.1:" + c.words["PPROF"] + "/debug/pprof/"
	c.configure(t, corefile)
	executable := network.Binary(t, "coredns")
	c.Daemon = lab.NewDaemon(t, "coredns -conf "+c.path, func() *exec.Cmd { return exec.Command(executable, "-conf", c.path) })
	return c
}

// startCoreDNS starts a new one.
func startCoreDNS(t *testing.T, corefile string, words map[string]string) *coredns {
	t.Helper()
	c := newCoreDNS(t, corefile, words)
	c.Start(t)
	return c
}

// configure replaces the Corefile.
func (c *coredns) configure(t *testing.T, corefile string) {
	t.Helper()
	text := os.Expand(corefile, func(word string) string {
		value, ok := c.words[word]
		if !ok {
			t.Fatalf("the Corefile has $%s, which nothing is said about", word)
		}
		return value
	})
	if err := os.WriteFile(c.path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// reload has the process read its Corefile again, and returns the error that it reports.
func (c *coredns) reload(t *testing.T) error {
	t.Helper()
	from := c.Log.Len()
	c.Signal(t, syscall.SIGUSR1)
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		said := c.Log.Since(from)
		if strings.Contains(said, "Reloading complete\n") {
			return nil
		}
		if _, failure, ok := strings.Cut(said, "[ERROR] SIGUSR1: "); ok && strings.HasSuffix(failure, "\n") {
			return errors.New(strings.TrimSpace(failure))
		}
		if time.Since(start) > lab.Patience {
			t.Fatalf("no end to a reload:\n%s", said)
		}
	}
}

// metric returns the sum of a metric's series that have all of these labels, each
// written name="value".
func (c *coredns) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	status, page := get(t, http.DefaultClient, c.metrics)
	if status != http.StatusOK {
		t.Fatalf("%s: status %d: %s", c.metrics, status, page)
	}
	return sum(t, page, name, labels...)
}

// isReady asks the ready plugin.
func (c *coredns) isReady(t *testing.T) bool {
	t.Helper()
	status, body := get(t, http.DefaultClient, c.ready)
	switch status {
	case http.StatusOK:
		return true
	case http.StatusServiceUnavailable:
		return false
	default:
		t.Fatalf("%s: status %d: %s", c.ready, status, body)
		return false
	}
}

// get reads a page.
func get(t *testing.T, client *http.Client, url string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true // whoever answers may be gone the next time
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(data)
}

// sum adds up the series of a metric on a page, as coredns.metric does.
func sum(t *testing.T, page, name string, labels ...string) float64 {
	t.Helper()
	total := 0.0
	for line := range strings.Lines(page) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		bare, _, labelled := strings.Cut(series, "{")
		if !labelled {
			bare, value, _ = strings.Cut(series, " ")
		}
		if bare != name || !containsAll(series, labels) {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("metric %s: %v", line, err)
		}
		total += number
	}
	return total
}

func containsAll(s string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(s, word) {
			return false
		}
	}
	return true
}

// freePorts finds ports that are a test's own until its end.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	ports, err := lab.ReservePorts(t.Context(), "127.0.0.1", n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ports.Release)
	return ports.Numbers
}

// repeated returns the warnings and errors that are there more than once.
func repeated(o *lab.Output) map[string]int {
	counts := map[string]int{}
	for line := range strings.Lines(o.String()) {
		if strings.HasPrefix(line, "[WARNING]") || strings.HasPrefix(line, "[ERROR]") {
			counts[line]++
		}
	}
	maps.DeleteFunc(counts, func(_ string, n int) bool { return n == 1 })
	return counts
}
