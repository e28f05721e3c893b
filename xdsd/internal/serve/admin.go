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

// Stats that are part of a status, in addition to those in package message.
const (
	healthyStat    = "membership_healthy"
	connectStat    = "upstream_cx_connect_fail"
	overflowStat   = "upstream_cx_overflow"
	heapFullStat   = "overload.envoy.overload_actions.stop_accepting_connections.active"
	portLimitStat  = "downstream_cx_overflow"
	totalLimitStat = "downstream_global_cx_overflow"
)

// clusterCounters are the counters of clusters by the names of their stats.
var clusterCounters = map[string]v1alpha1.LimitName{
	connectStat: failedConnections, message.HealthCheckFailureStat: failedHealthChecks,
	overflowStat: v1alpha1.LimitBackendConnections, message.PendingOverflowStat: v1alpha1.LimitBackendPendingConnections,
}

// statusStats matches the stats that are part of a status. /clusters, which lists each endpoint, costs Envoy's main
// thread many times as much.
var statusStats = `^(cluster\..*\.(` + strings.Join(append(slices.Sorted(maps.Keys(clusterCounters)), healthyStat), "|") + `)|` +
	`listener\..*\.(` + portLimitStat + `|` + totalLimitStat + `)|listener_local_ratelimit\..*\.rate_limited|` + heapFullStat + `)$`

// read returns the number of endpoints that Envoy considers healthy, by envoy.StatName of the cluster, and counters since Envoy
// started. One that is missing is 0. The counter of the heap's limit is -1 while Envoy accepts no connections.
func (a *Admin) read(ctx context.Context) (healthy map[string]int32, counters map[counter]int64, err error) {
	healthy, counters = map[string]int32{}, map[counter]int64{}
	err = a.stats(ctx, "usedonly", statusStats, func(name string, value int64) {
		kind, rest, _ := strings.Cut(name, ".")
		if kind == "cluster" { // its name lacks a dot
			cluster, stat, _ := strings.Cut(rest, ".")
			if stat == healthyStat {
				healthy[cluster] = int32(value) //nolint:gosec // a number of endpoints
			} else {
				counters[counter{name: clusterCounters[stat], upstream: cluster}] = value
			}
			return
		}
		// ADDRESS_PORT of listeners, port-PORT of their rate limits; the metrics and admin listeners lack a port.
		last := strings.LastIndex(rest, ".")
		subject := rest[:last]
		number, notPort := strconv.ParseUint(subject[strings.LastIndexAny(subject, "_-")+1:], 10, 16)
		port := int32(number)
		switch stat := rest[last+1:]; {
		case name == heapFullStat && value > 0:
			counters[counter{name: v1alpha1.LimitHeap}] = -1
		case notPort != nil:
		case stat == portLimitStat:
			counters[counter{name: v1alpha1.LimitPortConnections, port: port}] = value
		case stat == totalLimitStat:
			counters[counter{name: v1alpha1.LimitConnections}] += value
		default:
			counters[counter{name: v1alpha1.LimitConnectionRate, port: port}] = value
		}
	})
	if err != nil {
		return nil, nil, fmt.Errorf("reading the health of endpoints from Envoy: %w", err)
	}
	return healthy, counters, nil
}

// stats calls each with the counters and gauges whose names match a regular expression. query selects among them, as
// documented for Envoy's /stats. A proxy with many backends has thousands, and its text costs a fraction of its JSON.
func (a *Admin) stats(ctx context.Context, query, filter string, each func(name string, value int64)) error {
	body, err := a.open(ctx, http.MethodGet, "/stats?"+query+"&filter="+url.QueryEscape(filter))
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		name, text, ok := strings.Cut(lines.Text(), ": ")
		if value, err := strconv.ParseInt(text, 10, 64); ok && err == nil { // histograms and texts have other values
			each(name, value)
		}
	}
	return errors.Join(lines.Err(), body.Close())
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
	var sum int64
	err := a.stats(ctx, "type=Gauges", `^listener\..*\.downstream_cx_active$`, func(name string, value int64) { // gauges of listeners and of their worker threads
		listener, _, _ := strings.Cut(strings.TrimPrefix(name, "listener."), ".")
		own := slices.Contains([]string{"admin", bootstrap.MetricsListener, bootstrap.HealthListener}, listener)
		if !own && !strings.Contains(name, ".worker_") {
			sum += value
		}
	})
	if err != nil {
		return 0, fmt.Errorf("reading the number of connections from Envoy: %w", err)
	}
	return sum, nil
}

// adminPaths are the admin endpoints that WriteResponse requests, with their methods. Envoy's other POST endpoints
// change more than log levels.
var adminPaths = map[string]string{
	"/clusters": http.MethodGet, "/config_dump": http.MethodGet, "/listeners": http.MethodGet, "/stats": http.MethodGet,
	"/logging": http.MethodPost, // also without parameters, when it only lists the levels
}

// WriteResponse writes the response of an admin endpoint to w. The path may have a query. It returns an error without a
// request if the path is not in adminPaths. On another error, it may have written part of the response.
func (a *Admin) WriteResponse(ctx context.Context, w io.Writer, path string) error {
	u, err := url.ParseRequestURI(path)
	if err != nil || u.IsAbs() || adminPaths[u.Path] == "" {
		return fmt.Errorf("path %q: must be one of %s", path, strings.Join(slices.Sorted(maps.Keys(adminPaths)), ", "))
	}
	body, err := a.open(ctx, adminPaths[u.Path], u.Path+"?"+u.RawQuery)
	if err == nil {
		_, err = io.Copy(w, body)
		err = errors.Join(err, body.Close())
	}
	if err != nil {
		return fmt.Errorf("reading %s from Envoy: %w", u.Path, err)
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
		return nil, failed.Err // without the URL, whose host is a placeholder
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
