package dhcp_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// get requests a path of the server's HTTP endpoint.
func (s *server) get(t *testing.T, path string) (status int, body string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.http+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true // the server may be restarted between requests
	client := &http.Client{Timeout: 5 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, string(data), err
}

// awaitReady waits until the server is ready.
func (s *server) awaitReady(t *testing.T) {
	t.Helper()
	lab.Poll(t, "coredhcp to be ready", func() bool {
		status, _, err := s.get(t, "/readyz")
		return err == nil && status == http.StatusOK
	})
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
	Selections []struct {
		Server string   `json:"server"`
		MACs   []string `json:"macs"`
	} `json:"selections"`
	Heard []heardMessage `json:"heard"`
}

type heardMessage struct {
	Server string   `json:"server"`
	Type   string   `json:"type"`
	MACs   []string `json:"macs"`
}

func (s *server) state(t *testing.T) (st state) {
	t.Helper()
	_, text, err := s.get(t, "/state")
	if err != nil {
		t.Fatal(err)
	}
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

// metric returns the value of a series, or 0 if it does not exist.
func (s *server) metric(t *testing.T, series string) float64 {
	t.Helper()
	_, text, err := s.get(t, "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if name != series {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatal(err)
		}
		return number
	}
	return 0
}

// awaitRelease waits until the server has received a RELEASE.
func (s *server) awaitRelease(t *testing.T) {
	t.Helper()
	lab.Poll(t, "the RELEASE to arrive", func() bool { return s.metric(t, `coredhcp_dhcp4_received_total{type="RELEASE"}`) == 1 })
}
