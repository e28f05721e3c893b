package dns_test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// coredns is a coredns process with a Corefile. It can be killed and restarted.
type coredns struct {
	*lab.Daemon

	port           int
	ready, metrics string // URLs
}

// startCoreDNS starts coredns with a Corefile, in which $DNS, $READY and $METRICS are replaced by ports, and other variables by the
// values in variables.
func startCoreDNS(t *testing.T, corefile string, variables map[string]string) *coredns {
	t.Helper()
	ports, err := lab.ReservePorts(t.Context(), "127.0.0.1", 3)
	lab.Must(t, err)
	t.Cleanup(ports.Release)
	http := func(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }
	c := &coredns{port: ports.Numbers[0], ready: http(ports.Numbers[1]) + "/ready", metrics: http(ports.Numbers[2]) + "/metrics"}
	values := map[string]string{"DNS": strconv.Itoa(ports.Numbers[0]), "READY": strconv.Itoa(ports.Numbers[1]), "METRICS": strconv.Itoa(ports.Numbers[2])}
	maps.Copy(values, variables)
	text := os.Expand(corefile, func(variable string) string {
		value, ok := values[variable]
		if !ok {
			t.Fatalf("unknown variable $%s in the Corefile", variable)
		}
		return value
	})
	path := lab.WriteFile(t, text, t.TempDir(), "Corefile")
	executable := network.Binary(t, "coredns")
	c.Daemon = lab.NewDaemon(t, "coredns -conf "+path, func() *exec.Cmd { return exec.Command(executable, "-conf", path) })
	c.Start(t)
	return c
}

// metric returns the value of a metric, as lab.Metric.
func (c *coredns) metric(t *testing.T, metric string) float64 {
	t.Helper()
	_, page := lab.Get(t, c.metrics)
	return lab.Metric(t, page, metric)
}

// isReady requests the readiness endpoint.
func (c *coredns) isReady(t *testing.T) bool {
	t.Helper()
	status, body := lab.Get(t, c.ready)
	if status != http.StatusOK && status != http.StatusServiceUnavailable {
		t.Fatalf("%s: status %d: %s", c.ready, status, body)
	}
	return status == http.StatusOK
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
