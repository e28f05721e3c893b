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
	lab.Pages // of the plugin prometheus

	port  int
	ready lab.Pages // of the plugin ready
}

// startCoreDNS starts coredns with a Corefile, in which $DNS, $READY and $METRICS are replaced by ports, and other variables by the
// values in variables.
func startCoreDNS(t *testing.T, corefile string, variables map[string]string) *coredns {
	t.Helper()
	ports, err := lab.ReservePorts(t.Context(), "127.0.0.1", 3)
	lab.Must(t, err)
	t.Cleanup(ports.Release)
	pages := func(port int) lab.Pages { return lab.Pages(fmt.Sprintf("127.0.0.1:%d", port)) }
	c := &coredns{port: ports.Numbers[0], ready: pages(ports.Numbers[1]), Pages: pages(ports.Numbers[2])}
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

// isReady requests the readiness endpoint.
func (c *coredns) isReady(t *testing.T) bool {
	t.Helper()
	status, body := c.ready.Get(t, "/ready")
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
