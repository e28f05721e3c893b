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

// startControl starts xdsd control with the rights in its manifest, and waits until there is an apps address.
func (t *transcript) startControl(ctx context.Context, c *clusters, dir, xdsd string) (*process, error) {
	root, err := lab.Root()
	if err != nil {
		return nil, err
	}
	rights, err := os.ReadFile(filepath.Join(root, "manifests", "base", "control", "rbac.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading the roles of control: %w", err)
	}
	if err := c.management.ApplyYAML(ctx, rights); err != nil {
		return nil, err
	}
	kubeconfig, err := c.management.UserKubeconfig("system:serviceaccount:oooi-system:oooi-control", "system:serviceaccounts")
	if err != nil {
		return nil, err
	}
	args := []string{"control", "--kubeconfig", kubeconfig, "--namespace", "oooi-system", "--http", "127.0.0.1:9904"}
	t.printf("\n# xdsd control creates the apps Service in the hosted cluster, and MetalLB assigns it an address.\n$ xdsd %s &\n", strings.Join(args, " "))
	p, err := startProcess(dir, "control", xdsd, args...)
	if err != nil {
		return nil, err
	}
	if err := t.showApps(ctx, c, p, `Ready ["192.168.50.20`); err != nil {
		p.stop()
		return nil, p.withLog(err)
	}
	return p, nil
}

// showApps waits until the apps address is ready, and prints it.
func (t *transcript) showApps(ctx context.Context, c *clusters, control *process, want string) error {
	const jsonpath = "{.status.appsIngress.phase} {.status.appsIngress.externalIPs}"
	state, err := awaitApps(ctx, c.management, control)
	if err != nil {
		return err
	}
	t.printf("$ kubectl -n clusters get infra demo -o jsonpath='%s'\n", jsonpath)
	t.verdict(state, strings.HasPrefix(state, want))
	return nil
}

// awaitApps waits until the apps address is ready, and returns phase and addresses from the status of the Infra.
func awaitApps(ctx context.Context, management *lab.ControlPlane, control *process) (string, error) {
	client, err := dynamic.NewForConfig(management.RESTConfig())
	if err != nil {
		return "", fmt.Errorf("creating a client: %w", err)
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
			return "", fmt.Errorf("control exited: %w", control.err)
		case <-ctx.Done():
			return "", fmt.Errorf("waiting for the apps address: %w; the status is %s", ctx.Err(), last)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
