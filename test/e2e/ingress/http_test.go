//go:build e2e

package e2eingress_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/densityops/oooi/test/lab"
)

// nodePort is the port of every backend.
const nodePort = 30080

// startServer starts a backend that responds with its name. At /echo it echoes WebSocket messages
// after its name.
func startServer(t *testing.T, address, name string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
	mux.Handle("/echo", websocket.Server{Handler: func(conn *websocket.Conn) {
		var text string
		for websocket.Message.Receive(conn, &text) == nil {
			if websocket.Message.Send(conn, name+" "+text) != nil {
				return
			}
		}
	}})
	lab.ServeHTTP(t, net.JoinHostPort(address, strconv.Itoa(nodePort)), mux)
}

// browser is an HTTP client for one host.
type browser struct {
	host string
	tls  *tls.Config
	http *http.Client
}

// newBrowser returns a browser that only trusts the authorities in PEM.
func newBrowser(t *testing.T, host string, authorities []byte) *browser {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authorities) {
		t.Fatalf("no certificate in %q", authorities)
	}
	b := &browser{host: host, tls: &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12}}
	b.http = &http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{
			// No DNS resolves the host.
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				_, port, err := net.SplitHostPort(address)
				if err != nil {
					return nil, err
				}
				return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(entry, port))
			},
			TLSClientConfig:   b.tls,
			DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return b
}

// answer is the response to a request.
type answer struct {
	status         int
	location, body string
}

// get requests the root of the host.
func (b *browser) get(ctx context.Context, scheme string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+b.host+"/", http.NoBody)
	if err != nil {
		return answer{}, err
	}
	response, err := b.http.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header.Get("Location"), string(body)}, err
}

// checkServes returns an error unless a backend serves the host by HTTPS.
func (b *browser) checkServes(ctx context.Context, backend string) error {
	got, err := b.get(ctx, "https")
	if err != nil {
		return err
	}
	if got.status != http.StatusOK || got.body != backend {
		return fmt.Errorf("response %+v", got)
	}
	return nil
}

// webSocket opens a WebSocket.
func (b *browser) webSocket(ctx context.Context, path string) (*websocket.Conn, error) {
	config, err := websocket.NewConfig("wss://"+b.host+path, "https://"+b.host)
	if err != nil {
		return nil, err
	}
	raw, err := (&tls.Dialer{Config: b.tls}).DialContext(ctx, "tcp", net.JoinHostPort(entry, "443"))
	if err != nil {
		return nil, err
	}
	err = raw.SetDeadline(time.Now().Add(5 * time.Second))
	if err == nil {
		var conn *websocket.Conn
		if conn, err = websocket.NewClient(config, raw); err == nil {
			return conn, nil
		}
	}
	return nil, errors.Join(err, raw.Close())
}

// checkEchoes returns an error unless a backend echoes over a WebSocket.
func (b *browser) checkEchoes(ctx context.Context, backend string) error {
	conn, err := b.webSocket(ctx, "/echo")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for _, text := range []string{"hello", strings.Repeat("long ", 10_000)} {
		if err := websocket.Message.Send(conn, text); err != nil {
			return err
		}
		var got string
		if err := websocket.Message.Receive(conn, &got); err != nil {
			return err
		}
		if got != backend+" "+text {
			return fmt.Errorf("echo of %d bytes is %.40q", len(text), got)
		}
	}
	return nil
}
