package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// startControl starts xdsd control with the rights of its manifest, and returns when it has
// brought the applications an address.
func (t *transcript) startControl(ctx context.Context, c *clusters, dir, xdsd string) (*process, error) {
	root, err := lab.Root()
	if err != nil {
		return nil, err
	}
	rights, err := os.ReadFile(filepath.Join(root, "manifests", "base", "control", "rbac.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading the rights of control: %w", err)
	}
	if err := c.management.ApplyYAML(ctx, rights); err != nil {
		return nil, err
	}
	kubeconfig, err := c.management.UserKubeconfig("system:serviceaccount:oooi-system:oooi-control", "system:serviceaccounts")
	if err != nil {
		return nil, err
	}
	args := []string{"control", "--kubeconfig", kubeconfig, "--namespace", "oooi-system", "--http", "127.0.0.1:9904"}
	t.printf("\n# xdsd control makes the applications' Service inside the hosted cluster, and MetalLB gives it an address.\n$ xdsd %s &\n", strings.Join(args, " "))
	p, err := startProcess(dir, "control", xdsd, args...)
	if err != nil {
		return nil, err
	}
	if err := t.showApps(ctx, c, p, `Ready ["192.168.50.20`); err != nil {
		p.stop()
		return nil, p.blame(err)
	}
	return p, nil
}

// showApps tells where the applications are once they are ready.
func (t *transcript) showApps(ctx context.Context, c *clusters, control *process, want string) error {
	const jsonpath = "{.status.appsIngress.phase} {.status.appsIngress.externalIPs}"
	said, err := awaitApps(ctx, c.management, control)
	if err != nil {
		return err
	}
	t.printf("$ kubectl -n clusters get infra demo -o jsonpath='%s'\n", jsonpath)
	t.verdict(said, strings.HasPrefix(said, want))
	return nil
}

// awaitApps returns the state of the applications once they are ready.
func awaitApps(ctx context.Context, management *lab.ControlPlane, control *process) (string, error) {
	client, err := dynamic.NewForConfig(management.RESTConfig())
	if err != nil {
		return "", fmt.Errorf("making a client: %w", err)
	}
	infras := client.Resource(v1alpha1.SchemeGroupVersion.WithResource("infras")).Namespace("clusters")
	for last := ""; ; {
		u, err := infras.Get(ctx, "demo", metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("reading the Infra (last %s): %w", last, err)
		}
		data, err := json.Marshal(u.Object["status"])
		if err != nil {
			return "", fmt.Errorf("reading the Infra's status: %w", err)
		}
		last = string(data)
		var status v1alpha1.InfraStatus
		if err := json.Unmarshal(data, &status); err != nil {
			return "", fmt.Errorf("reading the Infra's status: %w", err)
		}
		if s := status.AppsIngress; s != nil && s.Phase == v1alpha1.AppsIngressReady {
			addresses, err := json.Marshal(s.ExternalIPs)
			return fmt.Sprintf("%s %s", s.Phase, addresses), err
		}
		select {
		case <-control.ended:
			return "", fmt.Errorf("control ended: %w", control.err)
		case <-ctx.Done():
			return "", fmt.Errorf("waiting for the applications to be ready: %w; the status is %s", ctx.Err(), last)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
