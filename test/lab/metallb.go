package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	metallbController = "metallb-controller"
	metallbNamespace  = "metallb-system"
)

// MetalLBConfig says how to start MetalLB's controller. The zero value will do.
type MetalLBConfig struct {
	// LoadBalancerClass is the class of the Services that MetalLB handles, its
	// --lb-class. If empty it handles those that have no class.
	LoadBalancerClass string
	// Flags are added to those of the controller.
	Flags []string
}

// StartMetalLB installs MetalLB's CRDs, makes the namespace metallb-system and
// starts MetalLB's controller, which gives the Services of type LoadBalancer
// addresses of the IPAddressPools in that namespace. It returns when MetalLB
// has read the pools and gone over the Services that there are. The controller
// runs until KillMetalLB or Stop.
//
// Nothing announces the addresses unless somebody runs BuildMetalLBSpeaker's, and there is no
// webhook, so the API server takes pools that MetalLB then finds wrong.
func (cp *ControlPlane) StartMetalLB(ctx context.Context, config MetalLBConfig) error {
	if err := cp.startMetalLB(ctx, config); err != nil {
		return fmt.Errorf("starting MetalLB on control plane %s: %w", cp.config.Name, err)
	}
	return nil
}

func (cp *ControlPlane) startMetalLB(ctx context.Context, config MetalLBConfig) error {
	binary, err := BuildMetalLB(ctx, cp.config.Logf)
	if err != nil {
		return err
	}
	if err := cp.InstallCRDs(ctx, MetalLB); err != nil {
		return err
	}
	if err := cp.Apply(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metallbNamespace}}); err != nil {
		return err
	}
	var p *process // which cp.metallb is until somebody kills it
	err = cp.restart(&cp.metallb, func() (err error) {
		p, err = cp.launchMetalLB(binary, config)
		cp.metallb = p
		return err
	})
	if err != nil {
		return err
	}
	if err := cp.await(ctx, "MetalLB to go over the Services", func(context.Context) error { return metallbReady(p) }); err != nil {
		return errors.Join(err, cp.KillMetalLB())
	}
	return nil
}

// launchMetalLB needs cp.mu held.
func (cp *ControlPlane) launchMetalLB(binary string, config MetalLBConfig) (*process, error) {
	pair, err := cp.ca.client(metallbController, "system:masters")
	if err != nil {
		return nil, err
	}
	kubeconfig := cp.path("metallb.kubeconfig")
	if err := cp.writeKubeconfig(kubeconfig, metallbController, pair); err != nil {
		return nil, err
	}
	args := []string{
		"--kubeconfig=" + kubeconfig,
		"--namespace=" + metallbNamespace,
		"--lb-class=" + config.LoadBalancerClass,
		"--webhook-mode=disabled",
		"--disable-cert-rotation",
		"--port=-1", // no metrics, though it logs an error: 0 is any port, at every address
	}
	cmd := exec.Command(binary, append(args, config.Flags...)...) //nolint:noctx // it outlives contexts
	cmd.Args[0] = metallbController
	return cp.launcher.start(cmd, cp.path("metallb.log"))
}

// metallbReady looks for what the controller logs when it has gone over all
// Services for the first time, which it does once it has read the pools, be
// there none. Until then it ignores Services. Nothing of this shows in the API.
func metallbReady(p *process) error {
	const done = `"controller":"ServiceReconciler - reprocessAll","end reconcile"`
	log, err := os.ReadFile(p.logFile)
	if err != nil {
		return err
	}
	if !bytes.Contains(log[min(p.logFrom, int64(len(log))):], []byte(done)) {
		return errors.New("it has not yet")
	}
	return nil
}

// KillMetalLB ends MetalLB's controller as a crash would. Services keep their
// addresses. StartMetalLB starts it again, with another configuration if need
// be.
func (cp *ControlPlane) KillMetalLB() error { return cp.kill(&cp.metallb) }
