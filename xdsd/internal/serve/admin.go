package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/xdsd/internal/bootstrap"
	"github.com/densityops/oooi/xdsd/internal/message"
)

// Admin is a client of Envoy's admin interface.
type Admin struct{ client *http.Client }

// adminTimeout limits one request.
const adminTimeout = 5 * time.Second

// NewAdmin returns a client of the admin interface on a Unix socket.
func NewAdmin(socket string) *Admin {
	return &Admin{&http.Client{Timeout: adminTimeout, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}}}
}

// clusterStats are stats of a cluster.
type clusterStats struct {
	// healthy is the number of endpoints that Envoy considers healthy.
	healthy int32
	// failures are the numbers of failed connections and failed health checks since Envoy started.
	failures failureCounts
}

// clusters returns stats by envoy.StatName of the cluster. A stat that is missing is 0. It reads a few stats of each cluster:
// the page /clusters, which has each endpoint, costs Envoy's main thread many times as much.
func (a *Admin) clusters(ctx context.Context) (map[string]clusterStats, error) {
	const healthy, failedConnections = "membership_healthy", "upstream_cx_connect_fail"
	filter := `^cluster\..*\.(` + healthy + `|` + failedConnections + `|` + regexp.QuoteMeta(message.HealthCheckFailureStat) + `)$`
	stats, err := a.stats(ctx, "usedonly", filter)
	if err != nil {
		return nil, fmt.Errorf("reading the health of endpoints from Envoy: %w", err)
	}
	all := map[string]clusterStats{}
	for _, s := range stats {
		cluster, stat, _ := strings.Cut(strings.TrimPrefix(s.Name, "cluster."), ".")
		c := all[cluster]
		switch stat {
		case healthy:
			c.healthy = int32(s.Value) //nolint:gosec // a number of endpoints
		case failedConnections:
			c.failures.connections = s.Value
		case message.HealthCheckFailureStat:
			c.failures.healthChecks = s.Value
		}
		all[cluster] = c
	}
	return all, nil
}

// A stat is a counter or a gauge.
type stat struct {
	Name  string
	Value int64
}

// stats returns the counters and gauges whose names match a regular expression. query selects among them, as documented for
// Envoy's page /stats. A proxy with many backends has thousands, and its text costs a fraction of its JSON.
func (a *Admin) stats(ctx context.Context, query, filter string) ([]stat, error) {
	body, err := a.request(ctx, http.MethodGet, "/stats?"+query+"&filter="+url.QueryEscape(filter))
	if err != nil {
		return nil, err
	}
	var list []stat
	for line := range strings.Lines(string(body)) {
		name, text, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if value, err := strconv.ParseInt(text, 10, 64); ok && err == nil { // histograms and texts have other values
			list = append(list, stat{name, value})
		}
	}
	return list, nil
}

// Version returns Envoy's version, such as "1.35.3".
func (a *Admin) Version(ctx context.Context) (string, error) {
	body, err := a.request(ctx, http.MethodGet, "/server_info")
	if err != nil {
		return "", fmt.Errorf("reading Envoy's version: %w", err)
	}
	var info struct {
		// Version is "revision/version/status/type/TLS library".
		Version string `json:"version"`
	}
	err = json.Unmarshal(body, &info)
	parts := strings.Split(info.Version, "/")
	if err != nil || len(parts) < 2 {
		return "", errors.Join(fmt.Errorf("reading Envoy's version: unexpected version %q", info.Version), err)
	}
	return parts[1], nil
}

// Quit makes Envoy exit.
func (a *Admin) Quit(ctx context.Context) error {
	if _, err := a.request(ctx, http.MethodPost, "/quitquitquit"); err != nil {
		return fmt.Errorf("stopping Envoy: %w", err)
	}
	return nil
}

// SetLogLevel sets the level of all of Envoy's loggers.
func (a *Admin) SetLogLevel(ctx context.Context, level v1alpha1.LogLevel) error {
	if _, err := a.request(ctx, http.MethodPost, "/logging?level="+url.QueryEscape(string(level))); err != nil {
		return fmt.Errorf("setting Envoy's log level to %s: %w", level, err)
	}
	return nil
}

// SetAccessLog enables or disables the access log.
func (a *Admin) SetAccessLog(ctx context.Context, enabled bool) error {
	percent := "0"
	if enabled {
		percent = "100"
	}
	if _, err := a.request(ctx, http.MethodPost, "/runtime_modify?"+message.AccessLogKey+"="+percent); err != nil {
		return fmt.Errorf("setting Envoy's access log: %w", err)
	}
	return nil
}

// Connections returns the number of open client connections, except those to the listeners for metrics and health.
func (a *Admin) Connections(ctx context.Context) (int64, error) {
	stats, err := a.stats(ctx, "type=Gauges", `^listener\..*\.downstream_cx_active$`)
	if err != nil {
		return 0, fmt.Errorf("reading the number of connections from Envoy: %w", err)
	}
	var sum int64
	for _, s := range stats { // one for each listener, and one for each of its threads
		listener, _, _ := strings.Cut(strings.TrimPrefix(s.Name, "listener."), ".")
		own := slices.Contains([]string{"admin", bootstrap.MetricsListener, bootstrap.HealthListener}, listener)
		if !own && !strings.Contains(s.Name, ".worker_") {
			sum += s.Value
		}
	}
	return sum, nil
}

// adminPages are the pages that WritePage requests, with their methods. All of Envoy's other pages with the method POST
// change more than log levels.
var adminPages = map[string]string{
	"/clusters": http.MethodGet, "/config_dump": http.MethodGet, "/listeners": http.MethodGet, "/stats": http.MethodGet,
	"/logging": http.MethodPost, // also without parameters, when it only lists the levels
}

// WritePage writes a page of the admin interface to w. The path may have a query. It returns an error without a request
// if the page is none of adminPages, and may have written a part of the page before it returns another error.
func (a *Admin) WritePage(ctx context.Context, w io.Writer, path string) error {
	page, err := url.ParseRequestURI(path)
	if err != nil || page.IsAbs() || adminPages[page.Path] == "" {
		return fmt.Errorf("page %q: want one of %s", path, strings.Join(slices.Sorted(maps.Keys(adminPages)), ", "))
	}
	body, err := a.open(ctx, adminPages[page.Path], page.Path+"?"+page.RawQuery)
	if err == nil {
		_, err = io.Copy(w, body)
		err = errors.Join(err, body.Close())
	}
	if err != nil {
		return fmt.Errorf("reading %s from Envoy: %w", page.Path, err)
	}
	return nil
}

// request returns the body of a response with status 200, and an error for any other status.
func (a *Admin) request(ctx context.Context, method, path string) ([]byte, error) {
	body, err := a.open(ctx, method, path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	return io.ReadAll(body)
}

// open returns the body of a response with status 200, which the caller must close. For any other status it returns an
// error with the first line of the body.
func (a *Admin) open(ctx context.Context, method, path string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://envoy"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := a.client.Do(request)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		if failed.Timeout() {
			return nil, fmt.Errorf("no response within %s", adminTimeout)
		}
		return nil, failed.Err // without the URL, whose host does not exist
	}
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer func() { _ = response.Body.Close() }()
		first, _ := bufio.NewReader(io.LimitReader(response.Body, 200)).ReadString('\n') // the status is reported even without a body
		return nil, errors.New(strings.TrimSuffix(response.Status+": "+strings.TrimSpace(first), ": "))
	}
	return response.Body, nil
}
