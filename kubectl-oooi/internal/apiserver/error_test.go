package apiserver

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestErrorsNameWhatFailed covers what is between the client and the API server.
func TestErrorsNameWhatFailed(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	forbidding := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer forbidding.Close()
	other := httptest.NewTLSServer(http.NotFoundHandler())
	defer other.Close()
	for _, tc := range []struct {
		name   string
		config rest.Config
		want   []string
	}{
		{"API server", rest.Config{Host: "https://" + refused}, []string{"the API server at " + refused + " does not answer: connection refused"}},
		{"proxy", rest.Config{Host: "https://api.invalid", Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: refused})}, []string{
			"the proxy to the API server at api.invalid (HTTPS_PROXY, or proxy-url of the kubeconfig) does not answer: dial tcp " + refused, "connection refused",
		}},
		{"proxy that refuses", rest.Config{Host: "https://api.invalid", Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: strings.TrimPrefix(forbidding.URL, "http://")})}, []string{
			"connecting to the API server at api.invalid: Forbidden",
		}},
		{"credential plugin", rest.Config{Host: other.URL, ExecProvider: &clientcmdapi.ExecConfig{
			Command: "oooi-missing-plugin", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}}, []string{"connecting to the API server at ", "exec: executable oooi-missing-plugin not found"}},
		{"certificate", rest.Config{Host: other.URL}, []string{"connecting to the API server at ", "x509: "}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clients, err := kubernetes.NewForConfig(&tc.config)
			if err != nil {
				t.Fatal(err)
			}
			_, err = clients.Discovery().ServerVersion()
			if err = Error(t.Context(), err); err == nil {
				t.Fatal("the API server answered")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not contain %q", err, want)
				}
			}
		})
	}
}
