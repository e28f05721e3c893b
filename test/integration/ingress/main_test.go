// Package ingress_test tests the built xdsd ingress with the permissions of its manifest, on a real API server
// with the real controller manager.
package ingress_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/densityops/oooi/test/ingresstest"
	"github.com/densityops/oooi/test/lab"
)

// cluster has an API server without streaming lists (WatchList), like older ones. The daemon then uses list
// and watch; with WatchList it uses only watch, and list as a fallback.
var cluster = lab.Shared{
	Config: lab.Config{Name: "cluster", ControllerManager: true, Audit: true, APIServerFlags: []string{"--feature-gates=WatchList=false"}, CRDs: []lab.CRDSet{lab.Oooi, lab.GatewayAPI}},
}

var network = lab.Network{
	Build:   []string{"xdsd"},
	Sources: []string{"api", "internal", "xdsd", "manifests"},
	Prepare: func(ctx context.Context) error {
		_, err := lab.BuildHelm(ctx, nil)
		return err
	},
}

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	if code := network.Main(m, &cluster); code != 0 {
		os.Exit(code)
	}
}

// account returns the user name of the ServiceAccount in the manifests.
func account(namespace string) string {
	return "system:serviceaccount:" + namespace + ":oooi-ingress"
}

// newReplica returns a replica that is not started, with the permissions of a user.
func newReplica(t testing.TB, cp *lab.ControlPlane, name, user string, args ...string) *lab.Replica {
	t.Helper()
	return lab.NewReplica(t, cp, name, network.Binary(t, "xdsd"), user, append([]string{"ingress"}, args...)...)
}

// start starts a replica that leads the shared cluster. It is terminated when the test ends.
func start(t *testing.T, args ...string) *lab.Replica {
	t.Helper()
	cp := cluster.Get(t)
	install(t, cp)
	r := newReplica(t, cp, "ingress", account("oooi-system"), args...)
	t.Cleanup(func() {
		if !t.Failed() {
			r.Terminate(t) // releases the Lease for the next test
		}
	})
	r.Lead(t)
	return r
}

// install applies the objects that exist once in a cluster.
func install(t testing.TB, cp *lab.ControlPlane) {
	t.Helper()
	apply(t, cp, "apiVersion: v1\nkind: Namespace\nmetadata: {name: oooi-system}\n---\n"+manifest(t, "controller/rbac.yaml"))
}

// manifest returns a file of manifests/ingress.
func manifest(t testing.TB, name string) string {
	t.Helper()
	text := lab.ReadFile(t, "manifests", "ingress", name)
	return string(text)
}

func apply(t testing.TB, cp *lab.ControlPlane, yaml string) {
	t.Helper()
	lab.Must(t, cp.ApplyYAML(t.Context(), []byte(yaml)))
}

// site is a namespace of a test.
type site struct{ *ingresstest.Site }

// newSite returns a site in the shared cluster.
func newSite(t testing.TB) *site {
	t.Helper()
	return &site{ingresstest.New(t, cluster.Get(t))}
}

// virtualIngress returns a VirtualIngress with one path, to port 80 of the Service with the label app=web. fields are lines
// of its spec.
func virtualIngress(name string, fields ...string) string {
	return virtualIngressOf(name, "app: web", "number: 80", fields...)
}

// virtualIngressOf is virtualIngress for any labels and port.
func virtualIngressOf(name, labels, port string, fields ...string) string {
	return fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: VirtualIngress
metadata: {name: %s}
spec:
  rules: [{host: %[1]s.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {matchLabels: {%[2]s}, port: {%[3]s}}}}]}}]
  %[4]s
`, name, labels, port, strings.Join(fields, "\n  "))
}
