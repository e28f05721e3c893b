package control_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/kubeconfig"
	"github.com/densityops/oooi/test/lab"
)

// relay is an API server that forwards requests to the management cluster with the permissions of control. It can delay
// the responses, as a slow network does.
type relay struct {
	kubeconfig string

	mu      sync.Mutex
	open    map[string]int // open watches by path of the resource
	most    map[string]int // the most open watches at a time
	delayed chan struct{}  // closed when the responses continue; nil if they are not delayed
}

func (s *site) newRelay() *relay {
	s.Helper()
	config, err := kubeconfig.RESTConfig(s.controlKubeconfig(), "")
	lab.Must(s, err)
	transport, err := rest.TransportFor(config)
	lab.Must(s, err)
	target, err := url.Parse(config.Host)
	lab.Must(s, err)
	r := &relay{open: map[string]int{}, most: map[string]int{}, kubeconfig: filepath.Join(s.TempDir(), "kubeconfig")}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }, Transport: transport, FlushInterval: -1, ModifyResponse: r.count,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	s.Cleanup(func() {
		r.resume()
		server.CloseClientConnections()
		server.Close()
	})
	text := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: relay, contexts: [{name: relay, context: {cluster: relay, user: relay}}], users: [{name: relay, user: {}}], clusters: [{name: relay, cluster: {server: %q}}]}", server.URL)
	lab.Must(s, os.WriteFile(r.kubeconfig, []byte(text), 0o600))
	return r
}

// count counts a watch until its response ends.
func (r *relay) count(response *http.Response) error {
	path := ""
	if response.Request.URL.Query().Get("watch") != "" {
		path = response.Request.URL.Path
		r.mu.Lock()
		r.open[path]++
		r.most[path] = max(r.most[path], r.open[path])
		r.mu.Unlock()
	}
	response.Body = &relayedBody{ReadCloser: response.Body, relay: r, path: path}
	return nil
}

// delay delays all responses until resume is called.
func (r *relay) delay() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delayed = make(chan struct{})
}

func (r *relay) resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.delayed != nil {
		close(r.delayed)
		r.delayed = nil
	}
}

// relayedBody is the body of a response.
type relayedBody struct {
	io.ReadCloser

	relay *relay
	path  string // of the watched resource; empty for other requests
}

// Read implements io.Reader.
func (b *relayedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.relay.mu.Lock()
	delayed := b.relay.delayed
	b.relay.mu.Unlock()
	if delayed != nil {
		<-delayed
	}
	return n, err
}

// Close implements io.Closer.
func (b *relayedBody) Close() error {
	b.relay.mu.Lock()
	defer b.relay.mu.Unlock()
	if b.path != "" {
		b.relay.open[b.path]--
		b.path = ""
	}
	return b.ReadCloser.Close()
}

func TestEachKindIsWatchedOnce(t *testing.T) {
	s := newSite(t)
	s.applyCluster("proxy: {serverIP: 192.0.2.3}")
	api := s.newRelay()
	s.startControlWith(api.kubeconfig, api.kubeconfig)
	s.waitForCondition(&v1alpha1.ProxyServer{}, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNoReplica, "")
	s.waitForCondition(&v1alpha1.Infra{}, v1alpha1.ConditionReady, metav1.ConditionFalse, "ProxyNotReady", "")
	api.mu.Lock()
	defer api.mu.Unlock()
	for path, n := range api.most {
		if n != 1 || strings.HasSuffix(path, "/endpointslices") {
			t.Errorf("%d watches of %s", n, path)
		}
	}
	for _, resource := range []string{"infras", "proxyservers"} {
		if path := "/apis/hostedcluster.densityops.com/v1alpha1/" + resource; api.most[path] == 0 {
			t.Errorf("%s is not watched, only %v", path, api.most)
		}
	}
}

// TestObservedGenerationMatchesModel delays the watches that the model is built from. Meanwhile no status may claim
// to belong to a newer spec.
func TestObservedGenerationMatchesModel(t *testing.T) {
	s := newSite(t)
	s.applyCluster("proxy: {serverIP: 192.0.2.3}")
	api := s.newRelay()
	s.startControlWith(api.kubeconfig, s.controlKubeconfig())
	infra, proxy := &v1alpha1.Infra{}, &v1alpha1.ProxyServer{}
	s.waitForCondition(infra, v1alpha1.ConditionNetworkValid, metav1.ConditionTrue, "Valid", "")
	s.waitForCondition(proxy, v1alpha1.ConditionConfigurationValid, metav1.ConditionUnknown, v1alpha1.ReasonNoReplica, "")

	api.delay()
	infraBefore, proxyBefore := infra.DeepCopy(), proxy.DeepCopy()
	infra.Spec.InfraComponents.Proxy.ServerIP = "203.0.113.3"
	proxy.Spec.Backends = []v1alpha1.ProxyBackend{{Name: "late", Hostname: "late.example.com", Port: 443, TargetService: "none", TargetNamespace: s.namespace}}
	proxy.Spec.Backends[0].TargetPort.IntVal = 443
	for changed, before := range map[client.Object]client.Object{infra: infraBefore, proxy: proxyBefore} {
		lab.Must(t, s.client.Patch(t.Context(), changed, client.MergeFrom(before)))
	}
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) { // several probes and heartbeats
		s.conditions(infra)
		s.conditions(proxy)
		if infra.Status.ObservedGeneration != infraBefore.Generation || proxy.Status.ObservedGeneration != proxyBefore.Generation {
			t.Fatalf("control has not received the change, and reports generation %d of the Infra and %d of the ProxyServer: %+v %+v",
				infra.Status.ObservedGeneration, proxy.Status.ObservedGeneration, infra.Status.Conditions, proxy.Status.Conditions)
		}
	}
	api.resume()
	s.waitForCondition(infra, v1alpha1.ConditionNetworkValid, metav1.ConditionFalse, "InvalidAddress", "203.0.113.3")
	s.waitForCondition(proxy, v1alpha1.ConditionConfigurationValid, metav1.ConditionFalse, "ServiceNotFound", "spec.backends[0] late")
}
