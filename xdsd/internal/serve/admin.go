package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Admin is Envoy's admin interface, a Unix socket.
type Admin struct{ client *http.Client }

// adminTimeout bounds one request.
const adminTimeout = 5 * time.Second

// NewAdmin asks at a socket.
func NewAdmin(socket string) *Admin {
	return &Admin{&http.Client{Timeout: adminTimeout, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}}}
}

// Healthy returns how many endpoints of each cluster Envoy connects to.
func (a *Admin) Healthy(ctx context.Context) (map[string]int32, error) {
	body, err := a.ask(ctx, http.MethodGet, "/clusters?format=json")
	if err != nil {
		return nil, fmt.Errorf("reading the health of endpoints from Envoy: %w", err)
	}
	// The part of envoy.admin.v3.Clusters that says so.
	var all struct {
		Statuses []struct {
			Name  string `json:"name"`
			Hosts []struct {
				Health struct {
					FailedCheck   bool   `json:"failed_active_health_check"`
					FailedOutlier bool   `json:"failed_outlier_check"`
					EDS           string `json:"eds_health_status"`
				} `json:"health_status"`
			} `json:"host_statuses"`
		} `json:"cluster_statuses"`
	}
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, fmt.Errorf("reading what Envoy says of endpoints: %w", err)
	}
	healthy := map[string]int32{}
	for _, c := range all.Statuses {
		healthy[c.Name] = 0
		for _, h := range c.Hosts {
			if !h.Health.FailedCheck && !h.Health.FailedOutlier && (h.Health.EDS == "" || h.Health.EDS == "HEALTHY") {
				healthy[c.Name]++
			}
		}
	}
	return healthy, nil
}

// SetLogLevel has each of Envoy's loggers write from a level on, and tells whether any
// did not.
func (a *Admin) SetLogLevel(ctx context.Context, level v1alpha1.LogLevel) (changed bool, err error) {
	body, err := a.ask(ctx, http.MethodPost, "/logging") // which only lists
	if err != nil {
		return false, fmt.Errorf("reading Envoy's log level: %w", err)
	}
	for line := range strings.Lines(string(body)) {
		// "active loggers:", and for each "  name: level"
		if _, now, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && now != string(level) {
			changed = true
		}
	}
	if !changed {
		return false, nil
	}
	if _, err := a.ask(ctx, http.MethodPost, "/logging?level="+url.QueryEscape(string(level))); err != nil {
		return false, fmt.Errorf("setting Envoy's log level to %s: %w", level, err)
	}
	return true, nil
}

func (a *Admin) ask(ctx context.Context, method, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://envoy"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := a.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(response.Status)
	}
	return io.ReadAll(response.Body)
}
