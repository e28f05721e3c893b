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

// MetalLBConfig is the configuration of MetalLB's controller. The zero value is valid.
type MetalLBConfig struct {
	// LoadBalancerClass is the class of the Services that MetalLB handles (--lb-class). If it is empty,
	// MetalLB handles Services without a class.
	LoadBalancerClass string
}

// StartMetalLB installs MetalLB's CRDs, creates the namespace metallb-system and starts MetalLB's controller,
// which assigns addresses of the IPAddressPools in that namespace to Services of type LoadBalancer. It
// returns when MetalLB has read the pools and processed the existing Services. The controller runs until
// KillMetalLB or Stop.
//
// The addresses are announced only by a speaker: see BuildMetalLBSpeaker. There is no webhook, so the API
// server accepts invalid pools, which MetalLB then rejects.
func (cp *ControlPlane) StartMetalLB(ctx context.Context, config MetalLBConfig) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("starting MetalLB on control plane %s: %w", cp.config.Name, err)
		}
	}()
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
	var p *process // equal to cp.metallb until KillMetalLB
	err = cp.restart(&cp.metallb, func() (err error) {
		p, err = cp.launchMetalLB(binary, config)
		cp.metallb = p
		return err
	})
	if err != nil {
		return err
	}
	if err := cp.await(ctx, "MetalLB to process the Services", func(context.Context) error { return metallbReady(p) }); err != nil {
		return errors.Join(err, cp.KillMetalLB())
	}
	return nil
}

// launchMetalLB starts the controller. The caller must hold cp.mu.
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
		"--port=-1", // disables metrics, and logs an error; 0 would be a random port on all addresses
	}
	cmd := exec.Command(binary, args...) //nolint:noctx // the process outlives contexts
	cmd.Args[0] = metallbController
	return cp.launcher.start(cmd, cp.path("metallb.log"))
}

// metallbReady returns an error until the controller has logged that it has processed all Services for the
// first time. It does that after it has read the pools, even if there are none, and ignores Services before.
// The API does not show this state.
func metallbReady(p *process) error {
	const done = `"controller":"ServiceReconciler - reprocessAll","end reconcile"`
	log, err := os.ReadFile(p.logFile)
	if err != nil {
		return err
	}
	if !bytes.Contains(log[min(p.logFrom, int64(len(log))):], []byte(done)) {
		return errors.New("not processed yet")
	}
	return nil
}

// KillMetalLB sends SIGKILL to MetalLB's controller and waits until it has ended. Services keep their
// addresses. StartMetalLB starts it again, also with another configuration.
func (cp *ControlPlane) KillMetalLB() error { return cp.kill(&cp.metallb) }
