package kubeconfig

import (
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// RESTConfig returns the client configuration of a kubeconfig file and one of its contexts, which is empty for the
// current one. If path is empty, it returns the configuration of the pod's ServiceAccount. The connect timeout is 10
// s. RESTConfig returns an error if the kubeconfig or the ServiceAccount cannot be read, and without a kubeconfig
// outside of a pod.
func RESTConfig(path, context string) (*rest.Config, error) {
	if path == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("not running in a pod; specify a kubeconfig file or a directory of manifests")
		}
		if err != nil {
			return nil, fmt.Errorf("reading the pod's ServiceAccount: %w", err)
		}
		SetDial(config, "")
		return config, nil
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: path},
		&clientcmd.ConfigOverrides{CurrentContext: context},
	).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig %s: %w", path, err)
	}
	SetDial(config, "")
	return config, nil
}
