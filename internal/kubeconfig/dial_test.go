package kubeconfig_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/densityops/oooi/internal/kubeconfig"
	"github.com/densityops/oooi/test/lab"
)

// A network connects clients with a server. It drops all packets while lost is set.
type network struct {
	conns chan net.Conn
	lost  atomic.Bool
}

// dial returns the client's end of a new connection; Accept returns the server's end.
func (n *network) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	n.conns <- end{server, n}
	return end{client, n}, nil
}

func (n *network) Accept() (net.Conn, error) {
	if conn, ok := <-n.conns; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (n *network) Close() error { close(n.conns); return nil }

func (n *network) Addr() net.Addr { return &net.TCPAddr{} }

// An end of a connection.
type end struct {
	net.Conn

	network *network
}

func (e end) Write(p []byte) (int, error) {
	if e.network.lost.Load() {
		return len(p), nil
	}
	return e.Conn.Write(p)
}

// watches answers each request with a response that does not end.
func watches(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// TestLostConnectionEnds checks that a watch ends within 15 s after the network began to drop all packets, and not while it only
// has no changes.
func TestLostConnectionEnds(t *testing.T) {
	other := httptest.NewTLSServer(nil)
	certificates := other.TLS.Certificates
	other.Close()
	synctest.Test(t, func(t *testing.T) {
		n := &network{conns: make(chan net.Conn)}
		server := &http.Server{Handler: http.HandlerFunc(watches), TLSConfig: &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS12}, ReadHeaderTimeout: time.Minute}
		go func() { _ = server.ServeTLS(n, "", "") }() // until Close
		defer func() { _ = server.Close() }()
		config := &rest.Config{Host: "https://192.0.2.1:6443", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
		kubeconfig.SetDial(config, "")
		config.Dial = n.dial
		client, err := rest.HTTPClientFor(config)
		lab.Must(t, err)
		defer client.CloseIdleConnections()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host, http.NoBody)
		lab.Must(t, err)
		response, err := client.Do(request)
		lab.Must(t, err)
		defer func() { _ = response.Body.Close() }()
		if response.ProtoMajor != 2 {
			t.Fatalf("the server speaks %s", response.Proto)
		}
		ended := make(chan time.Time, 1)
		go func() {
			_, _ = response.Body.Read(make([]byte, 1))
			ended <- time.Now()
		}()
		time.Sleep(time.Hour + time.Second) // the last ping was a second ago
		if len(ended) > 0 {
			t.Fatal("the watch ended although the connection works")
		}
		n.lost.Store(true)
		began := time.Now()
		if took := (<-ended).Sub(began); took > 15*time.Second {
			t.Errorf("the watch ended %s after the connection was lost", took)
		}
	})
}
