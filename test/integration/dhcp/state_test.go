package dhcp_test

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// get requests a path of the server's HTTP endpoint. It returns 0 if the server does not respond.
func (s *server) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	status, text := s.Get(t, path)
	return status, string(text)
}

// state has the fields of /state that the tests use.
type state struct {
	Ready    bool     `json:"ready"`
	Waiting  []string `json:"waiting"`
	Kubevirt struct {
		Synced  bool      `json:"synced"`
		AsOf    time.Time `json:"asOf"`
		Clients []struct {
			MAC       string `json:"mac"`
			Interface string `json:"interface"`
			Hostname  string `json:"hostname"`
		} `json:"clients"`
		Duplicates map[string][]string `json:"duplicates"`
		Problems   map[string]string   `json:"problems"`
	} `json:"kubevirt"`
	Heard []heardMessage `json:"heard"`
}

type heardMessage struct {
	Server string   `json:"server"`
	Type   string   `json:"type"`
	MACs   []string `json:"macs"`
}

func (s *server) state(t *testing.T) (st state) {
	t.Helper()
	_, text := s.get(t, "/state")
	if err := json.Unmarshal([]byte(text), &st); err != nil {
		t.Fatalf("%v in the state: %s", err, text)
	}
	return st
}

// awaitClient waits until the server knows the client with a MAC address by the name of its interface, or
// until it does not know it if the name is "".
func (s *server) awaitClient(t *testing.T, mac, as string) {
	t.Helper()
	lab.Poll(t, mac+" to be client "+strconv.Quote(as), func() bool {
		for _, c := range s.state(t).Kubevirt.Clients {
			if c.MAC == mac {
				return c.Interface == as
			}
		}
		return as == ""
	})
}

// awaitRelease waits until the server has received a RELEASE.
func (s *server) awaitRelease(t *testing.T) {
	t.Helper()
	lab.Poll(t, "the RELEASE to arrive", func() bool { return s.Metric(t, `coredhcp_dhcp4_received_total{type="RELEASE"}`) == 1 })
}
