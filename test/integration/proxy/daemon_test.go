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

// daemon is an xdsd serve process. It can be killed and restarted.
type daemon struct {
	*lab.Daemon

	args []string
	http string // host:port of its HTTP endpoint
}

// newDaemon returns a daemon that is not started.
func newDaemon(t *testing.T, http string, args ...string) *daemon {
	t.Helper()
	d := &daemon{args: append([]string{"serve", "--http", http}, args...), http: http}
	d.Daemon = lab.NewDaemon(t, "xdsd", func() *exec.Cmd { return exec.Command(network.Binary(t, "xdsd"), d.args...) })
	return d
}

// state has the fields of /state that the tests use.
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

// inSync reports whether all watches of the daemon are connected, so that its snapshot is current.
func (s state) inSync() bool { return !s.Store.Since.IsZero() && !s.Store.Since.Before(s.Store.At) }

// state returns the state, parsed and as text. Both are empty if the daemon does not respond.
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

// get requests a path of the daemon's HTTP endpoint.
func (d *daemon) get(t *testing.T, path string) (status int, body string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.http+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true // the daemon may be restarted between requests
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, string(data), err
}

// awaitCurrent waits until the only Envoy has acknowledged its current configuration.
func (d *daemon) awaitCurrent(t *testing.T) {
	t.Helper()
	lab.Poll(t, "Envoy to acknowledge everything", func() bool {
		s, _ := d.state(t)
		return len(s.Served) == 1 && len(s.Served[0].Envoys) == 1 && s.Served[0].Envoys[0].Current
	})
}
