package apps_test

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/densityops/oooi/test/integration/internal/tenant"
	"github.com/densityops/oooi/test/lab"
)

// partition makes one API server look like the API servers of many hosted clusters: at a cluster's port, lists of all namespaces have
// only the objects of that cluster's Infra. Without it control would delete the objects of the other clusters, which it expects only in
// their own hosted clusters.
type partition struct {
	*testing.T
	server    *url.URL
	ca        *lab.CA
	transport http.RoundTripper
}

func newPartition(t *testing.T, cp *lab.ControlPlane) *partition {
	t.Helper()
	server, err := url.Parse(cp.ServerURL())
	lab.Must(t, err)
	transport, err := rest.TransportFor(cp.RESTConfig()) // with the administrator's certificate
	lab.Must(t, err)
	return &partition{T: t, server: server, ca: lab.NewCA(t), transport: transport}
}

// listen serves a hosted cluster on all addresses, and returns the port.
func (p *partition) listen(cluster string) (port string) {
	p.Helper()
	listener, err := net.Listen("tcp", ":0")
	lab.Must(p, err)
	silent := log.New(io.Discard, "", 0) // control ends after the servers
	proxy := &httputil.ReverseProxy{Transport: p.transport, FlushInterval: -1, ErrorLog: silent, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(p.server)
		name := cluster + "-apps"
		switch path.Base(r.Out.URL.Path) {
		case "serviceaccounts", "roles", "rolebindings":
			name += "-reader"
		case "services":
		default:
			return
		}
		if query := r.Out.URL.Query(); query.Has("labelSelector") {
			query.Set("fieldSelector", "metadata.name="+name)
			r.Out.URL.RawQuery = query.Encode()
		}
	}}
	s := httptest.NewUnstartedServer(proxy)
	_ = s.Listener.Close()
	s.Listener, s.TLS = listener, &tls.Config{Certificates: []tls.Certificate{p.ca.Certificate(p, tenant.HostedName)}}
	s.EnableHTTP2, s.Config.ErrorLog = true, silent
	s.StartTLS()
	p.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	_, port, _ = net.SplitHostPort(listener.Addr().String()) // a listener's address has a port
	return port
}

// kubeconfig returns the administrator's kubeconfig of all hosted clusters.
func (p *partition) kubeconfig() []byte {
	p.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["hosted"] = &clientcmdapi.Cluster{Server: "https://" + tenant.HostedName + ":6443", CertificateAuthorityData: p.ca.PEM()}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: "unused"} // the partition authenticates
	config.Contexts["admin"] = &clientcmdapi.Context{Cluster: "hosted", AuthInfo: "admin"}
	config.CurrentContext = "admin"
	data, err := clientcmd.Write(*config)
	lab.Must(p, err)
	return data
}
