//go:build e2e

package e2eingress_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/densityops/oooi/test/lab"
)

// entry is the address of Envoy's HTTP and HTTPS listeners.
const entry = "198.18.0.1"

var cluster = lab.Shared{
	Config: lab.Config{Name: "cluster", ControllerManager: true, CRDs: []lab.CRDSet{lab.Oooi, lab.Contour, lab.CertManager, lab.GatewayAPI}},
}

// network has the addresses of the entries, and of the backends in 198.18.1.0/24 and 198.18.2.0/24.
var network = lab.Network{
	Ranges:  []string{"198.18.0.0/16"},
	Build:   []string{"xdsd"},
	Sources: []string{"api", "internal", "xdsd", "manifests", "test/programs"},
	Prepare: func(ctx context.Context) error {
		_, contourErr := lab.BuildContour(ctx, nil)
		_, certManagerErr := lab.BuildCertManager(ctx, nil)
		_, envoyErr := lab.FindEnvoy(ctx, nil)
		return errors.Join(contourErr, certManagerErr, envoyErr)
	},
}

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	if code := network.Main(m, &cluster); code != 0 {
		os.Exit(code)
	}
}

// startAll starts xdsd ingress, cert-manager and Contour, until the test ends.
func startAll(t *testing.T, cp *lab.ControlPlane) {
	t.Helper()
	startXDSD(t, cp)
	startCertManager(t, cp)
	startContour(t, cp, "")
}

// startXDSD starts xdsd ingress with the permissions of its manifest.
func startXDSD(t *testing.T, cp *lab.ControlPlane) {
	t.Helper()
	cp.MustApply(t, string(lab.ReadFile(t, "manifests/ingress/namespace.yaml")), string(lab.ReadFile(t, "manifests/ingress/controller/rbac.yaml")))
	startDaemon(t, "xdsd", network.Binary(t, "xdsd"), "ingress",
		"--kubeconfig", accountKubeconfig(t, cp, "oooi-system:oooi-ingress"), "--namespace", "oooi-system")
}

// startCertManager starts cert-manager with a ClusterIssuer of self-signed certificates.
func startCertManager(t *testing.T, cp *lab.ControlPlane) {
	t.Helper()
	binary, err := lab.BuildCertManager(t.Context(), t.Logf)
	lab.Must(t, err)
	startDaemon(t, "cert-manager", binary, "--kubeconfig", cp.Kubeconfig())
	cp.MustApply(t, "{apiVersion: cert-manager.io/v1, kind: ClusterIssuer, metadata: {name: lab}, spec: {selfSigned: {}}}")
}

// startContour starts Contour with the permissions in its manifests, and an Envoy that it configures. With a configuration, it serves
// the Gateway that this names instead of Ingresses.
func startContour(t *testing.T, cp *lab.ControlPlane, config string) {
	t.Helper()
	source, err := lab.ModuleDir(t.Context(), "github.com/projectcontour/contour")
	lab.Must(t, err)
	for _, name := range []string{"00-common.yaml", "02-role-contour.yaml", "02-rbac.yaml"} {
		text, err := os.ReadFile(filepath.Join(source, "examples", "contour", name))
		lab.Must(t, err)
		cp.MustApply(t, string(text))
	}
	cp.MustApply(t, "{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: contour}, spec: {controller: projectcontour.io/ingress-controller}}")
	binary, err := lab.BuildContour(t.Context(), t.Logf)
	lab.Must(t, err)
	dir := lab.TempDir(t)
	configFile := filepath.Join(dir, "contour.yaml")
	lab.Must(t, os.WriteFile(configFile, []byte(config), 0o600))
	const xds, xdsPort = "127.0.0.1", "8001"
	startDaemon(t, "contour", binary, "serve", "--config-path", configFile, "--kubeconfig", accountKubeconfig(t, cp, "projectcontour:contour"),
		"--xds-address", xds, "--xds-port", xdsPort, "--insecure",
		"--disable-leader-election", "--ingress-class-name", "contour", "--ingress-status-address", entry,
		"--envoy-service-http-address", entry, "--envoy-service-http-port", "80",
		"--envoy-service-https-address", entry, "--envoy-service-https-port", "443")

	file := filepath.Join(dir, "envoy.json")
	if out, err := exec.CommandContext(t.Context(), binary, "bootstrap", file,
		"--xds-address", xds, "--xds-port", xdsPort, "--admin-address", filepath.Join(dir, "admin")).CombinedOutput(); err != nil {
		t.Fatalf("contour bootstrap: %v: %s", err, out)
	}
	bootstrap, err := os.ReadFile(file)
	lab.Must(t, err)
	lab.NewEnvoy(t, lab.EnvoyConfig{
		Bootstrap: bootstrap,
		Args:      []string{"--service-cluster", "projectcontour", "--service-node", "envoy"},
	})
}

func startDaemon(t *testing.T, name, binary string, args ...string) {
	t.Helper()
	lab.NewDaemon(t, name, func() *exec.Cmd { return exec.Command(binary, args...) }).Start(t)
}

// accountKubeconfig returns the path of a kubeconfig with the permissions of a ServiceAccount, given as
// "namespace:name".
func accountKubeconfig(t *testing.T, cp *lab.ControlPlane, account string) string {
	t.Helper()
	file, err := cp.UserKubeconfig("system:serviceaccount:"+account, "system:serviceaccounts")
	lab.Must(t, err)
	return file
}

// await is lab.Await for a check that returns an error.
func await(t *testing.T, what string, check func() error) {
	t.Helper()
	lab.Await(t, what, func() string {
		if err := check(); err != nil {
			return err.Error()
		}
		return ""
	})
}
