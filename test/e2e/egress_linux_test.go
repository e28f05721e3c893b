//go:build e2e

package e2e_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
	releasetest "github.com/densityops/oooi/test/release"
)

// Names and addresses outside of the cluster. No node, pod or VLAN has an address in their network.
const (
	outsideRegistry, unlisted       = "registry.example.com", "unlisted.outside.example" // the registry has the release image
	registryServer, parentAddress   = "203.0.113.10:443", "203.0.113.20:3128"
	outsideNetwork                  = "203.0.113.0/24"
	pulledRepository, pulledVersion = "tools", "v1"
)

// closedInfra returns an Infra of a VLAN without a router, whose VMs reach nothing but the registry. more are additional fields of egress.
func closedInfra(more string) string {
	return infraOn(demo, fmt.Sprintf(`
spec:
  networkConfig: {gateway: null}
  infraComponents: {dns: {forward: Deny}}
  egress: {hosts: [%s], allowAddresses: [%s]%s}`, outsideRegistry, outsideNetwork, more))
}

// An ociIndex is the index of an OCI image layout or of an image.
type ociIndex struct {
	Manifests []struct{ MediaType, Digest string }
}

// readIndex returns the type and the digest of the only image of a layout.
func readIndex(t *testing.T, layout string) (mediaType, digest string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(layout, "index.json"))
	lab.Must(t, err)
	var index ociIndex
	lab.Must(t, json.Unmarshal(content, &index))
	if len(index.Manifests) != 1 {
		t.Fatalf("%d images in %s", len(index.Manifests), content)
	}
	return index.Manifests[0].MediaType, index.Manifests[0].Digest
}

// serveRegistry serves one of the test's images from a registry until the end of the test. It returns the image's digest, and its size
// in bytes.
func (s *site) serveRegistry(t *testing.T, image string) (digest string, size uint64) {
	t.Helper()
	archive, err := lab.ImageArchive(image)
	lab.Must(t, err)
	layout := t.TempDir()
	releasetest.Run(t, layout, nil, "tar", "-xf", archive)
	mediaType, digest := readIndex(t, layout)
	blob := func(digest string) string {
		return filepath.Join(layout, "blobs", "sha256", strings.TrimPrefix(digest, "sha256:"))
	}
	files, err := filepath.Glob(blob("*"))
	lab.Must(t, err)
	for _, file := range files {
		info, err := os.Stat(file)
		lab.Must(t, err)
		size += uint64(info.Size())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/{$}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v2/"+pulledRepository+"/manifests/{reference}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", mediaType)
		http.ServeFile(w, r, blob(digest))
	})
	mux.HandleFunc("GET /v2/"+pulledRepository+"/blobs/{digest}", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, blob(r.PathValue("digest")))
	})
	listener, err := net.Listen("tcp", registryServer)
	lab.Must(t, err)
	server := httptest.NewUnstartedServer(mux)
	_, server.Listener = server.Listener.Close(), listener
	server.TLS = &tls.Config{Certificates: []tls.Certificate{s.ca.Certificate(t, outsideRegistry)}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return digest, size
}

// pull pulls the registry's image by name on a VM, with the library that CRI-O uses, and returns the image's digest.
func (s *site) pull(t *testing.T, v *vm) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.WaitTimeout)
	defer cancel()
	to := filepath.Join(t.TempDir(), "image")
	cmd := v.namedCommand(ctx, t, "skopeo", "--insecure-policy", "copy", "--preserve-digests", "--src-cert-dir", filepath.Dir(s.roots),
		"docker://"+outsideRegistry+"/"+pulledRepository+":"+pulledVersion, "oci:"+to+":"+pulledVersion)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + v.Dir} // without proxy settings
	started := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("pulling an image: %v\n%s", err, out)
	}
	t.Logf("pulling the image took %s", time.Since(started))
	_, digest := readIndex(t, to)
	return digest
}

// egressReports are the output of 'kubectl oooi egress -o json'.
type egressReports struct {
	Items []struct {
		Names []struct {
			Name, Host                     string
			Queries, Connections, Failures uint64
			Received                       uint64
			Clients                        []struct{ VM string }
		}
	}
}

// TestEgress pulls images on a VLAN without a router, on which DNS forwards nothing: directly, and through a proxy of the site.
func TestEgress(t *testing.T) {
	lab.NeedNode(t, "skopeo")
	s := newSite(t)
	digest, size := s.serveRegistry(t, toolsImage)
	registry, _, _ := net.SplitHostPort(registryServer)
	for _, name := range []string{outsideRegistry, unlisted} {
		upstreamAddresses.Store(name+".", registry)
		t.Cleanup(func() { upstreamAddresses.Delete(name + ".") })
	}
	s.setup(t, closedInfra(""))
	vm := s.boot(t, "worker-1", "02:00:00:00:50:71")
	if routes := vm.Run(t, "ip", "route"); !regexp.MustCompile(`^198\.18\.50\.0/24 dev eth0 [^\n]*\n$`).MatchString(routes) {
		t.Errorf("the VM has routes besides the VLAN's:\n%s", routes)
	}
	if conn, err := vm.dial(t.Context(), "tcp", registryServer); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("connecting to the registry without the proxy: %v, %v", conn, err)
	}
	if got := s.pull(t, vm); got != digest {
		t.Errorf("the VM pulled %s, want %s", got, digest)
	}
	refused := vm.Run(t, "dig", "@"+vm.dns, "+time=5", unlisted)
	took := regexp.MustCompile(`Query time: (\d+) msec`).FindStringSubmatch(refused)
	if !strings.Contains(refused, "status: NXDOMAIN") || took == nil {
		t.Fatalf("DNS on the VLAN answers a name that is not listed with\n%s", refused)
	}
	if ms, _ := strconv.Atoi(took[1]); ms > 1000 {
		t.Errorf("NXDOMAIN took %d ms", ms)
	}
	t.Logf("NXDOMAIN took %s ms", took[1])
	s.checkEgressReport(t, size)
	// The cluster's DNS belongs to another test.
	s.oooi(t, "-n", "clusters", "doctor", "demo", "-o", "wide", "--fail-on", "warn", "--strict", "--wait", "2m", "--skip", "OOOI-DNS-004")
	s.oooi(t, "-n", "clusters", "test", "demo", "--only", "egress")

	const credentials = "Basic dTpw"
	var tunnels atomic.Int64
	lab.ConnectProxy(t, parentAddress, func(r *http.Request) string {
		if r.Host != outsideRegistry+":443" || r.Header.Get("Proxy-Authorization") != credentials {
			t.Errorf("the proxy of the site got %s %s with %q", r.Method, r.Host, r.Header.Get("Proxy-Authorization"))
			return ""
		}
		tunnels.Add(1)
		return registryServer
	})
	upstreamAddresses.Delete(outsideRegistry + ".") // the proxy of the site resolves the name
	s.cp.MustApply(t, "{apiVersion: v1, kind: Secret, metadata: {name: parent-proxy, namespace: clusters}, stringData: {authorization: "+credentials+"}}")
	s.setup(t, closedInfra(fmt.Sprintf(", parentProxy: {url: 'http://%s', secretRef: {name: parent-proxy}}", parentAddress)))
	if got := s.pull(t, vm); got != digest || tunnels.Load() == 0 {
		t.Errorf("by the proxy of the site the VM pulled %s, want %s, by %d connections", got, digest, tunnels.Load())
	}
}

// checkEgressReport waits until 'kubectl oooi egress' shows the pull of an image and the name that is not listed.
func (s *site) checkEgressReport(t *testing.T, size uint64) {
	t.Helper()
	lab.Await(t, "the report of names", func() string { // connections count when they end
		out := lab.Execute(t, time.Minute, s.binary, "--kubeconfig", s.cp.Kubeconfig(), "-n", "clusters", "egress", "demo", "-o", "json")
		var r egressReports
		if err := json.Unmarshal([]byte(out.Stdout), &r); err != nil || len(r.Items) != 1 || len(r.Items[0].Names) != 2 {
			return fmt.Sprint(err, out)
		}
		for _, n := range r.Items[0].Names {
			vm := len(n.Clients) == 1 && n.Clients[0].VM == "clusters-demo/worker-1"
			pulled := n.Name == outsideRegistry && n.Host == outsideRegistry && n.Connections > 0 && n.Failures == 0 && n.Received > size
			refused := n.Name == unlisted && n.Host == "" && n.Queries == 1 && n.Connections == 0
			if !vm || !pulled && !refused {
				return out.Stdout
			}
		}
		return ""
	})
	s.oooi(t, "-n", "clusters", "egress", "demo", "-o", "wide")
	allowed, others, _ := strings.Cut(s.oooi(t, "-n", "clusters", "egress", "demo", "-o", "hosts"), "# not allowed now:")
	if !strings.Contains(allowed, strconv.Quote(outsideRegistry)+" # VMs: 1") || !strings.Contains(others, strconv.Quote(unlisted)+" # VMs: 1") {
		t.Errorf("the list of hosts is\n%s# not allowed now:%s", allowed, others)
	}
}
