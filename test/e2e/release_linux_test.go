//go:build e2e

package e2e_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/test/lab"
	releasetest "github.com/densityops/oooi/test/release"
)

// mirrorHost is the registry of a disconnected site, the only one that its node reaches.
const mirrorHost = "192.0.2.101:5000"

// mirrored is the prefix of images and charts in the mirror: the value of --registry.
const mirrored = mirrorHost + "/oooi"

// pullSecret is the Secret with the credentials of the mirror, in the namespaces of all pods.
const pullSecret = `
apiVersion: v1
kind: Namespace
metadata: {name: oooi-system, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: Secret
metadata: {name: mirror, namespace: clusters}
type: kubernetes.io/dockerconfigjson
data: {.dockerconfigjson: %[1]s}
---
apiVersion: v1
kind: Secret
metadata: {name: mirror, namespace: oooi-system}
type: kubernetes.io/dockerconfigjson
data: {.dockerconfigjson: %[1]s}
`

// A snapshot is a build of the repository that was published.
type snapshot struct {
	version, dist string
	plugin        string          // from the archive in dist
	images        map[string]bool // in the mirror, by digest
}

// A disconnected is a site whose node pulls images from a mirror that has a separate CA and requires credentials.
type disconnected struct {
	*site

	p             *releasetest.Publisher
	krew          *releasetest.Krew
	first, second snapshot
	config        []byte   // credentials of the mirror, as docker login writes them
	env           []string // environment of skopeo and helm, which they need for the mirror
	node          *lab.Node
}

// TestRelease builds two snapshots, publishes them, mirrors them to the registry of a disconnected site, and runs them
// on its node: with krew and setup, with the chart, and with the kustomization.
func TestRelease(t *testing.T) {
	lab.NeedNode(t, append([]string{"skopeo"}, tools...)...)
	network.Need(t)
	lab.Must(t, sources())
	d := newDisconnected(t)
	for _, test := range []struct {
		name string
		run  func(*disconnected, *testing.T)
	}{
		{"setup", (*disconnected).testSetup},
		{"chart", (*disconnected).testChart},
		{"kustomization", (*disconnected).testKustomization},
	} {
		t.Run(test.name, func(t *testing.T) {
			sub, shared := *d, *d.site
			sub.site = &shared
			shared.down = false
			before := listObjects(t, d.cp)
			t.Cleanup(func() { sub.teardown(t) })
			test.run(&sub, t)
			sub.teardown(t)
			sub.checkNothingLeft(t, d.cp, before)
		})
	}
}

// newDisconnected builds and publishes the snapshots, mirrors them, stops the registry to which they were published, and
// starts the node.
func newDisconnected(t *testing.T) *disconnected {
	t.Helper()
	d := &disconnected{p: releasetest.NewPublisher(t)}
	archive, err := lab.ImageArchive(envoyImage)
	lab.Must(t, err)
	layout := t.TempDir()
	releasetest.Run(t, layout, nil, "tar", "-xf", archive)
	d.p.Crane(t, "push", layout, d.p.EnvoyTag())
	d.krew = d.p.NewKrew(t)
	checkout := filepath.Join(t.TempDir(), "oooi")
	releasetest.Checkout(t, checkout)
	d.first = d.publish(t, checkout)
	releasetest.Commit(t, checkout)
	d.second = d.publish(t, checkout)

	ca := lab.NewCA(t)
	d.serveMirror(t, ca)
	d.mirror(t, &d.first)
	d.mirror(t, &d.second)
	d.p.StopRegistry(t)

	cp := lab.New(t, lab.Config{Name: "disconnected", Address: "192.0.2.3", ControllerManager: true, Scheduler: true})
	if d.node, err = lab.StartNode(t.Context(), cp, lab.NodeConfig{Bridges: []string{vlan}, RegistryCAs: map[string][]byte{mirrorHost: ca.PEM()}}); err != nil {
		t.Fatal(err)
	}
	stopAtEnd(t, d.node)
	d.site = newSiteOn(t, cp)
	vlanServer(t, d.ca, shop)
	d.down = true // each test sets up and tears down
	d.cp.MustApply(t, fmt.Sprintf(pullSecret, base64.StdEncoding.EncodeToString(d.config)))
	return d
}

// publish builds a snapshot, and pushes and serves it.
func (d *disconnected) publish(t *testing.T, checkout string) snapshot {
	t.Helper()
	built := filepath.Join(t.TempDir(), "dist")
	d.p.Build(t, checkout, built, "-push")
	manifest, err := os.ReadFile(filepath.Join(built, "oooi.yaml"))
	lab.Must(t, err)
	_, rest, _ := strings.Cut(string(manifest), "\n  version: ")
	version, _, _ := strings.Cut(rest, "\n")
	s := snapshot{version: version, dist: filepath.Join(d.p.Folder, version)}
	lab.Must(t, os.Rename(built, s.dist))
	return s
}

// serveMirror starts the mirror, and writes the credentials to config.json, as docker login does.
func (d *disconnected) serveMirror(t *testing.T, ca *lab.CA) {
	t.Helper()
	const user, password = "site", "secret"
	behind, _ := d.p.NewRegistry(t)
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: behind})
	host, _, _ := net.SplitHostPort(mirrorHost)
	// crane's registry reads one upload at a time. In HTTP/2, which ServeHTTP does not offer, the others would use up the window of the
	// connection.
	lab.ServeHTTP(t, mirrorHost, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, given, ok := r.BasicAuth(); !ok || name != user || given != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="mirror"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, r)
	}), ca.Certificate(t, host))
	folder := t.TempDir()
	d.config = fmt.Appendf(nil, `{"auths": {%q: {"auth": %q}}}`, mirrorHost, base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
	authority := filepath.Join(folder, "ca.crt")
	lab.Must(t, errors.Join(os.WriteFile(filepath.Join(folder, "config.json"), d.config, 0o600), os.WriteFile(authority, ca.PEM(), 0o600)))
	d.env = []string{
		"REGISTRY_AUTH_FILE=" + filepath.Join(folder, "config.json"), "SSL_CERT_FILE=" + authority,
		"HELM_REGISTRY_CONFIG=" + filepath.Join(folder, "config.json"), "HELM_CONFIG_HOME=" + folder, "HELM_CACHE_HOME=" + folder, "HELM_DATA_HOME=" + folder,
	}
}

// mirror unpacks the plugin of a snapshot, and copies the images that it lists and the chart. The image of the first
// snapshot comes from the files of the release, as without access to its registry.
func (d *disconnected) mirror(t *testing.T, s *snapshot) {
	t.Helper()
	folder := t.TempDir()
	releasetest.Run(t, folder, nil, "tar", "-xzf", filepath.Join(s.dist, "kubectl-oooi_linux_"+runtime.GOARCH+".tar.gz"), "kubectl-oooi")
	s.plugin, s.images = filepath.Join(folder, "kubectl-oooi"), map[string]bool{}
	skopeo := func(from, to string) {
		t.Helper()
		releasetest.Run(t, "", d.env, "skopeo", "copy", "--all", "--preserve-digests", "--src-tls-verify=false", from, "docker://"+to)
	}
	for line := range strings.Lines(releasetest.Run(t, "", nil, s.plugin, "images", "--registry", mirrored)) {
		from, to, _ := strings.Cut(strings.TrimSpace(line), " ")
		s.images[to] = true
		if s == &d.first && to == s.oooiImage() {
			skopeo("oci:"+filepath.Join(s.dist, "image")+":oooi", mirrored+"/oooi:v1")
		} else {
			skopeo("docker://"+from, strings.Replace(to, "@sha256:", ":", 1)) // a tag, as in docs/how-to/install-disconnected.md
		}
	}
	chart := "/charts/oooi:" + s.number()
	skopeo("docker://"+d.p.Registry+chart, mirrored+chart)
}

// number returns the version of the chart.
func (s *snapshot) number() string { return strings.TrimPrefix(s.version, "v") }

// oooiImage returns the image of oooi in the mirror.
func (s *snapshot) oooiImage() string {
	for image := range s.images {
		if strings.HasPrefix(image, mirrored+"/oooi@") {
			return image
		}
	}
	return ""
}

// fromMirror are the flags with which setup uses the mirror.
var fromMirror = []string{"--registry", mirrored, "--image-pull-secret", "mirror"}

// install runs setup with a plugin, which must deploy images of the mirror.
func (d *disconnected) install(t *testing.T, plugin string, flags ...string) {
	t.Helper()
	d.binary = plugin
	d.oooi(t, append(d.setupArgs(t, infra), flags...)...)
}

// prove checks that all pods run the images of a snapshot, which they have pulled from the mirror, and that a VM gets a
// lease, resolves names and connects through the proxy.
func (d *disconnected) prove(t *testing.T, s *snapshot) {
	t.Helper()
	used := map[string]bool{}
	for _, namespace := range []string{"clusters", "oooi-system"} {
		pods, err := d.cp.Kube(t).CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=oooi"})
		lab.Must(t, err)
		for i := range pods.Items {
			for _, c := range pods.Items[i].Status.ContainerStatuses {
				used[c.ImageID] = true
			}
		}
	}
	if !maps.Equal(used, s.images) {
		t.Errorf("pods of %s use images %v, want %v", s.version, used, s.images)
	}
	t.Run(s.version, func(t *testing.T) {
		vm := d.boot(t, "worker-1", "02:00:00:00:50:71")
		for _, c := range append(controlPlane, apps) {
			d.connects(t, vm, c)
		}
	})
	if skew := d.oooi(t, "version", "-o", "jsonpath={.server..skew}"); skew != "" {
		t.Errorf("version shows the skew %s", skew)
	}
}

// testSetup installs the plugin with krew, and upgrades.
func (d *disconnected) testSetup(t *testing.T) {
	d.krew.Publish(t, d.first.dist)
	d.krew.Run(t, "install", "test/oooi")
	d.binary = d.krew.Plugin()
	if output := d.failingSetup(t, infra, "--registry", mirrored, "--timeout", "20s"); !strings.Contains(output, "401 Unauthorized") {
		t.Errorf("setup without the pull secret printed\n%s", output)
	}
	d.install(t, d.krew.Plugin(), fromMirror...)
	d.prove(t, &d.first)

	serving := d.containers(t)
	const wrong = mirrorHost + "/oooo"
	if output := d.failingSetup(t, infra, "--registry", wrong); !strings.Contains(output, wrong) {
		t.Errorf("setup with registry %s printed\n%s", wrong, output)
	}
	if diff := cmp.Diff(serving, d.containers(t)); diff != "" {
		t.Errorf("setup with a wrong registry replaced pods:\n%s", diff)
	}

	d.krew.Publish(t, d.second.dist)
	d.krew.Run(t, "upgrade", "oooi")
	d.install(t, d.krew.Plugin()) // the registry and the Secret are remembered
	d.prove(t, &d.second)
	d.oooi(t, "-n", "clusters", "doctor", "demo", "--wait", "2m")
}

// testChart installs control with the chart in the mirror, upgrades it, and sets up with the second snapshot.
func (d *disconnected) testChart(t *testing.T) {
	helm, err := lab.BuildHelm(t.Context(), t.Logf)
	lab.Must(t, err)
	run := func(args ...string) {
		t.Helper()
		t.Log(releasetest.Run(t, "", d.env, helm, append(args, "--kubeconfig", d.cp.Kubeconfig(), "--namespace", "default")...))
	}
	for i, s := range []*snapshot{&d.first, &d.second} {
		if i > 0 {
			d.kubectl(t, "apply", "--server-side", "--force-conflicts", "-f", filepath.Join(s.dist, "oooi-crds.yaml"))
		}
		run("upgrade", "--install", "oooi", "oci://"+mirrored+"/charts/oooi", "--version", s.number(), "--wait", "--timeout", "3m",
			"--set", "namespace.create=false,image="+s.oooiImage()+",imagePullSecrets[0].name=mirror,replicas="+strconv.Itoa(2-i))
	}
	d.install(t, d.second.plugin, fromMirror...)
	d.prove(t, &d.second)
	d.teardown(t)
	run("uninstall", "oooi", "--wait")
}

// kubectl runs kubectl.
func (d *disconnected) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	kubectl, err := lab.BuildKubectl(t.Context(), t.Logf)
	lab.Must(t, err)
	return releasetest.Run(t, d.dir, nil, kubectl, append([]string{"--kubeconfig", d.cp.Kubeconfig()}, args...)...)
}

// overlay is a kustomization of the released base with the image of the mirror.
const overlay = `
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [oooi-manifests/base]
images: [{name: %s/oooi, newName: %s/oooi}]
patches:
- target: {kind: Deployment}
  patch: |
    - {op: add, path: /spec/template/spec/imagePullSecrets, value: [{name: mirror}]}
`

// testKustomization applies control with the released kustomization, and the Infra with the objects that setup prints.
func (d *disconnected) testKustomization(t *testing.T) {
	d.binary = d.second.plugin
	releasetest.Run(t, d.dir, nil, "tar", "-xzf", filepath.Join(d.second.dist, "oooi-manifests.tar.gz"))
	lab.Must(t, os.WriteFile(filepath.Join(d.dir, "kustomization.yaml"), fmt.Appendf(nil, overlay, d.p.Registry, mirrored), 0o600))
	for _, folder := range []string{"doctor", "ingress", "test"} {
		d.kubectl(t, "kustomize", "oooi-manifests/"+folder)
	}
	d.kubectl(t, "apply", "-k", ".")
	d.kubectl(t, "-n", "oooi-system", "rollout", "status", "deployment/oooi-control", "--timeout", "3m")
	cluster := d.kubectl(t, "-n", "clusters", "get", "hostedcluster/demo", "-o", "yaml") + "---\n" +
		d.kubectl(t, "-n", "clusters", "get", "network-attachment-definition/vlan50", "-o", "yaml")
	file, clusterFile := filepath.Join(d.dir, "infra.yaml"), filepath.Join(d.dir, "cluster.yaml")
	lab.Must(t, errors.Join(os.WriteFile(file, []byte(infra), 0o600), os.WriteFile(clusterFile, []byte(cluster), 0o600)))
	printed := d.oooi(t, append([]string{"setup", "-f", file, "-f", clusterFile, "--dry-run=client"}, fromMirror...)...)
	lab.Must(t, os.WriteFile(filepath.Join(d.dir, "oooi.yaml"), []byte(printed), 0o600))
	d.kubectl(t, "apply", "--server-side", "-f", "oooi.yaml")
	d.kubectl(t, "-n", "clusters", "wait", "--for=condition=Ready", "infra/demo", "--timeout", "3m")
	d.prove(t, &d.second)
	d.teardown(t)
	d.kubectl(t, "delete", "-k", ".", "--ignore-not-found")
}
