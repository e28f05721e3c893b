package proxy_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"testing"
	"time"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/lab"
)

// daemon is an xdsd serve. It can be killed and started again.
type daemon struct {
	*lab.Daemon

	args []string
	http string // host:port of its state
}

// newDaemon ends with the test.
func newDaemon(t *testing.T, http string, args ...string) *daemon {
	t.Helper()
	d := &daemon{args: append([]string{"serve", "--http", http}, args...), http: http}
	d.Daemon = lab.NewDaemon(t, "xdsd", func() *exec.Cmd { return exec.Command(network.Binary(t, "xdsd"), d.args...) })
	return d
}

// state is what of /state matters here.
type state struct {
	Store struct {
		At    time.Time `json:"at"`
		Since time.Time `json:"since"`
	} `json:"store"`
	ProxyServers []*model.ProxyServer `json:"proxyServers"`
	Served       []struct {
		Name   string `json:"name"`
		Envoys []struct {
			Current bool `json:"current"`
			Nack    any  `json:"lastNACK"`
		} `json:"envoys"`
	} `json:"served"`
	Problems []model.Problem `json:"problems"`
}

// follows reports whether the API server is followed without a gap until now.
func (s state) follows() bool { return !s.Store.Since.IsZero() && !s.Store.Since.Before(s.Store.At) }

// state returns the state, and as what it was written. Before the daemon answers at all
// there is none.
func (d *daemon) state(t *testing.T) (s state, text string) {
	t.Helper()
	_, text, err := d.get(t, "/state")
	if err != nil {
		return s, ""
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatalf("%v in the state: %s", err, text)
	}
	return s, text
}

// get reads a page of the daemon.
func (d *daemon) get(t *testing.T, path string) (status int, body string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.http+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true // the daemon may be gone the next time
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, string(data), err
}

// current waits until an Envoy has acknowledged everything.
func (d *daemon) current(t *testing.T) {
	t.Helper()
	lab.Poll(t, "Envoy to acknowledge everything", func() bool {
		s, _ := d.state(t)
		return len(s.Served) == 1 && len(s.Served[0].Envoys) == 1 && s.Served[0].Envoys[0].Current
	})
}
