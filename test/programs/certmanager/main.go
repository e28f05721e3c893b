// Command certmanager is cert-manager's controller with the parts that issue self-signed certificates for
// Ingresses. cert-manager's own main package is in a module that cannot be downloaded. The command runs until
// it is killed.
//
//	certmanager --kubeconfig FILE
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/cert-manager/cert-manager/pkg/controller"
	shim "github.com/cert-manager/cert-manager/pkg/controller/certificate-shim/ingresses"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	"github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned" // registers itself with clusterissuers
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
)

// controllers are the registered names of the controllers that issue self-signed certificates for Ingresses.
var controllers = []string{
	shim.ControllerName, clusterissuers.ControllerName, trigger.ControllerName, keymanager.ControllerName,
	requestmanager.ControllerName, approver.ControllerName, selfsigned.CRControllerName, issuing.ControllerName,
	readiness.ControllerName, revisionmanager.ControllerName,
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file")
	flag.Parse()
	err := run(klog.NewContext(context.Background(), klog.Background()), *kubeconfig)
	fmt.Fprintln(os.Stderr, "certmanager:", err)
	os.Exit(1)
}

// run runs the controllers, and returns when one of them ends.
func run(ctx context.Context, kubeconfig string) error {
	if kubeconfig == "" {
		return errors.New("--kubeconfig is required")
	}
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig:         kubeconfig,
		KubernetesAPIQPS:   20,
		KubernetesAPIBurst: 50,
		IssuerOptions:      controller.IssuerOptions{ClusterResourceNamespace: "cert-manager"},
		IngressShimOptions: controller.IngressShimOptions{
			DefaultIssuerKind:  "Issuer",
			DefaultIssuerGroup: "cert-manager.io",
		},
	})
	if err != nil {
		return fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	running, ctx := errgroup.WithContext(ctx)
	for _, name := range controllers {
		c, err := controller.Known()[name](factory)
		if err != nil {
			return fmt.Errorf("creating controller %s: %w", name, err)
		}
		running.Go(func() error {
			if err := c.Run(2, ctx); err != nil {
				return fmt.Errorf("running controller %s: %w", name, err)
			}
			return fmt.Errorf("controller %s has ended", name)
		})
	}
	all, err := factory.Build() // its informers are shared by all controllers
	if err != nil {
		return fmt.Errorf("creating informers: %w", err)
	}
	all.SharedInformerFactory.Start(ctx.Done())
	all.KubeSharedInformerFactory.Start(ctx.Done())
	return running.Wait()
}
