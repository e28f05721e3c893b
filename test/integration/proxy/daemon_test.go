package proxy_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/lab"
)

// daemon is an xdsd serve process. It can be killed and restarted.
type daemon struct {
	*lab.Daemon
	lab.Pages
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
	status, body := d.Get(t, "/state")
	if status == 0 {
		return s, ""
	}
	if err := json.Unmarshal(body, &s); err != nil {
		t.Fatalf("%v in the state: %s", err, body)
	}
	return s, string(body)
}

// awaitCurrent waits until the only Envoy has acknowledged its current configuration.
func (d *daemon) awaitCurrent(t *testing.T) {
	t.Helper()
	lab.Poll(t, "Envoy to acknowledge everything", func() bool {
		s, _ := d.state(t)
		return len(s.Served) == 1 && len(s.Served[0].Envoys) == 1 && s.Served[0].Envoys[0].Current
	})
}
