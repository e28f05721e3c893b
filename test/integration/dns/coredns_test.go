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

// coredns is a coredns process with a Corefile. It can be killed and restarted.
type coredns struct {
	*lab.Daemon

	path      string // path of the Corefile
	variables map[string]string
	port      int
	ready     string // URLs of its plugins ready, prometheus and pprof
	metrics   string
	profiles  string
}

// newCoreDNS writes a Corefile and returns a coredns that is not started. In the Corefile, $DNS, $READY,
// $METRICS and $PPROF are replaced by ports, and other variables by the values in variables.
func newCoreDNS(t *testing.T, corefile string, variables map[string]string) *coredns {
	t.Helper()
	ports := freePorts(t, 4)
	c := &coredns{
		path: filepath.Join(t.TempDir(), "Corefile"),
		port: ports[0],
		variables: map[string]string{
			"DNS": strconv.Itoa(ports[0]), "READY": strconv.Itoa(ports[1]), "METRICS": strconv.Itoa(ports[2]), "PPROF": strconv.Itoa(ports[3]),
		},
	}
	maps.Copy(c.variables, variables)
	c.ready = "http://127.0.0.1:" + c.variables["READY"] + "/ready"
	c.metrics = "http://127.0.0.1:" + c.variables["METRICS"] + "/metrics"
	c.profiles = "http://127.0.0.1:" + c.variables["PPROF"] + "/debug/pprof/"
	c.configure(t, corefile)
	executable := network.Binary(t, "coredns")
	c.Daemon = lab.NewDaemon(t, "coredns -conf "+c.path, func() *exec.Cmd { return exec.Command(executable, "-conf", c.path) })
	return c
}

// startCoreDNS is newCoreDNS for a process that is started.
func startCoreDNS(t *testing.T, corefile string, variables map[string]string) *coredns {
	t.Helper()
	c := newCoreDNS(t, corefile, variables)
	c.Start(t)
	return c
}

// configure replaces the Corefile.
func (c *coredns) configure(t *testing.T, corefile string) {
	t.Helper()
	text := os.Expand(corefile, func(variable string) string {
		value, ok := c.variables[variable]
		if !ok {
			t.Fatalf("unknown variable $%s in the Corefile", variable)
		}
		return value
	})
	if err := os.WriteFile(c.path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// reload makes the process reload its Corefile, and returns the error that it logs.
func (c *coredns) reload(t *testing.T) error {
	t.Helper()
	from := c.Log.Len()
	c.Signal(t, syscall.SIGUSR1)
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		log := c.Log.Since(from)
		if strings.Contains(log, "Reloading complete\n") {
			return nil
		}
		if _, failure, ok := strings.Cut(log, "[ERROR] SIGUSR1: "); ok && strings.HasSuffix(failure, "\n") {
			return errors.New(strings.TrimSpace(failure))
		}
		if time.Since(start) > lab.WaitTimeout {
			t.Fatalf("reload did not finish:\n%s", log)
		}
	}
}

// metric returns the sum of a metric's series that have all of labels, each in the form name="value".
func (c *coredns) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	status, page := get(t, http.DefaultClient, c.metrics)
	if status != http.StatusOK {
		t.Fatalf("%s: status %d: %s", c.metrics, status, page)
	}
	return sum(t, page, name, labels...)
}

// isReady requests the readiness endpoint.
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

// get requests a URL.
func get(t *testing.T, client *http.Client, url string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true // the server may be restarted between requests
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

// sum returns the sum of a metric's series on a page, like coredns.metric.
func sum(t *testing.T, page, name string, labels ...string) float64 {
	t.Helper()
	total := 0.0
	for line := range strings.Lines(page) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		base, _, labelled := strings.Cut(series, "{")
		if !labelled {
			base, value, _ = strings.Cut(series, " ")
		}
		if base != name || !containsAll(series, labels) {
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

func containsAll(s string, substrings []string) bool {
	for _, substring := range substrings {
		if !strings.Contains(s, substring) {
			return false
		}
	}
	return true
}

// freePorts reserves ports until the end of the test.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	ports, err := lab.ReservePorts(t.Context(), "127.0.0.1", n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ports.Release)
	return ports.Numbers
}

// repeated returns the warnings and errors that were logged more than once, with their counts.
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
