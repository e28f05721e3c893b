package envoy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// A Getter requests a path of the admin interface, which may have a query, and returns the body of the response.
type Getter func(ctx context.Context, path string) ([]byte, error)

// A Header begins each report. Its metadata names Envoy's pod.
type Header struct {
	metav1.TypeMeta `json:",inline"`

	Metadata output.Metadata `json:"metadata"`
}

// NewHeader returns the header of a report about a pod's Envoy.
func NewHeader(kind, namespace, pod string) Header {
	return Header{metav1.TypeMeta{APIVersion: output.APIVersion, Kind: kind}, output.Metadata{Name: pod, Namespace: namespace}}
}

// Kinds of reports.
const (
	ConfigKind    = "EnvoyConfig"
	ListenersKind = "EnvoyListeners"
	RoutesKind    = "EnvoyRoutes"
	ClustersKind  = "EnvoyClusters"
	StatsKind     = "EnvoyStats"
	LogLevelsKind = "EnvoyLogLevels"
)

// A Config is the configuration dump of one Envoy.
type Config struct {
	Header `json:",inline"`

	// Config is the envoy.admin.v3.ConfigDump as Envoy prints it.
	Config json.RawMessage `json:"config"`
}

// Read reads the configuration dump, including endpoints.
func (c *Config) Read(ctx context.Context, get Getter) (err error) {
	c.Config, err = get(ctx, "/config_dump?include_eds")
	return err
}

// address is the used part of envoy.config.core.v3.Address.
type address struct {
	Socket struct {
		Address string `json:"address"`
		Port    uint16 `json:"port_value"`
	} `json:"socket_address"`
	Pipe struct {
		Path string `json:"path"`
	} `json:"pipe"`
}

// String returns ADDRESS:PORT, or the path of a Unix socket.
func (a address) String() string {
	if a.Pipe.Path != "" {
		return a.Pipe.Path
	}
	ip, err := netip.ParseAddr(a.Socket.Address)
	if err != nil {
		return fmt.Sprintf("%s:%d", a.Socket.Address, a.Socket.Port)
	}
	return netip.AddrPortFrom(ip, a.Socket.Port).String()
}

// decode requests a path and decodes the JSON response.
func decode[T any](ctx context.Context, get Getter, path string) (*T, error) {
	data, err := get(ctx, path)
	if err != nil {
		return nil, err
	}
	page := new(T)
	if err := json.Unmarshal(data, page); err != nil {
		path, _, _ = strings.Cut(path, "?")
		return nil, fmt.Errorf("decoding Envoy's response to %s: %w", path, err)
	}
	return page, nil
}

// A Row of a table is a part of one pod's report.
type Row[T any] struct {
	Pod  string
	Part T
}

// rows appends a row for each part to a list.
func rows[T any](list []Row[T], pod string, parts []T) []Row[T] {
	for _, part := range parts {
		list = append(list, Row[T]{pod, part})
	}
	return list
}

// podColumn returns the column of the pods' names.
func podColumn[T any]() output.Column[Row[T]] {
	return output.Column[Row[T]]{Title: "POD", Value: func(r Row[T]) string { return r.Pod }}
}
