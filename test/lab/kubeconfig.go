package lab

import (
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig returns the path of the administrator's kubeconfig file.
func (cp *ControlPlane) Kubeconfig() string { return cp.path("admin.kubeconfig") }

// UserKubeconfig writes a kubeconfig file with a client certificate for user and groups, and returns its
// path. The user has only the permissions that RBAC grants.
func (cp *ControlPlane) UserKubeconfig(user string, groups ...string) (string, error) {
	pair, err := cp.ca.client(user, groups...)
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(cp.dir, "user-*.kubeconfig")
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return "", fmt.Errorf("writing a kubeconfig for user %s: %w", user, err)
	}
	return f.Name(), cp.writeKubeconfig(f.Name(), user, pair)
}

// writeKubeconfig writes a kubeconfig file that references no other files, so that its content can be stored
// in a Secret.
func (cp *ControlPlane) writeKubeconfig(path, user string, pair keyPair) error {
	return cp.writeKubeconfigFor(path, cp.ServerURL(), user, pair)
}

// writeKubeconfigFor is writeKubeconfig for a client that reaches the API server at another URL.
func (cp *ControlPlane) writeKubeconfigFor(path, server, user string, pair keyPair) error {
	config := clientcmdapi.NewConfig()
	name := cp.config.Name
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: cp.ca.cert}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.cert, ClientKeyData: pair.key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing a kubeconfig for user %s: %w", user, err)
	}
	return nil
}

// RESTConfig returns an administrator's client configuration, with rate limits that no test reaches.
func (cp *ControlPlane) RESTConfig() *rest.Config {
	return &rest.Config{
		Host: cp.ServerURL(),
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   cp.CA(),
			CertData: cp.admin.cert,
			KeyData:  cp.admin.key,
		},
		QPS:   5000,
		Burst: 10000,
	}
}
