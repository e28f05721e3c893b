// Package kubeconfig returns client configurations. RESTConfig trusts the kubeconfig file that it reads. Restricted is
// for kubeconfigs from untrusted sources: they can name programs to run, files to read and proxies to use, and
// Restricted uses none of them.
package kubeconfig

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Restricted returns a client configuration for the current context of a kubeconfig. It uses only the server,
// the CA data, and the client certificate or token data. Any other setting that changes the identity, the
// target or the path of a request is an error that names it; the rest (namespace, extensions,
// disable-compression) is ignored. Errors never contain a password or a token.
func Restricted(data []byte) (*rest.Config, error) {
	file, err := clientcmd.Load(data)
	if err != nil { // the error of a duplicate name quotes the whole user, with its key
		return nil, errors.New("invalid kubeconfig; 'kubectl config view --kubeconfig FILE' prints the error")
	}
	context := file.Contexts[file.CurrentContext]
	if context == nil {
		return nil, fmt.Errorf("the kubeconfig's current context %q does not exist", file.CurrentContext)
	}
	cluster, user := file.Clusters[context.Cluster], file.AuthInfos[context.AuthInfo]
	if cluster == nil || user == nil {
		return nil, fmt.Errorf("context %q: cluster %q or user %q does not exist", file.CurrentContext, context.Cluster, context.AuthInfo)
	}
	if forbidden := append(forbiddenClusterFields(cluster), forbiddenUserFields(user)...); len(forbidden) > 0 {
		return nil, fmt.Errorf("the kubeconfig has %s, which is not allowed; use only server, CA data and client certificate or token data",
			strings.Join(forbidden, ", "))
	}
	return restConfig(cluster, user)
}

func restConfig(cluster *api.Cluster, user *api.AuthInfo) (*rest.Config, error) {
	server, err := url.Parse(cluster.Server)
	switch {
	case err != nil:
		return nil, errors.New("the server's URL cannot be parsed") // err quotes the URL, which may contain a password
	case strings.ContainsAny(cluster.Server, "@?#"):
		return nil, errors.New("the server's URL has more than a host, a port and a path")
	case server.Scheme != "https" || server.Hostname() == "":
		return nil, fmt.Errorf("the server %q is not an https URL", cluster.Server)
	case len(cluster.CertificateAuthorityData) == 0:
		return nil, errors.New("certificate-authority-data is missing, so the server cannot be verified")
	case len(user.ClientCertificateData) > 0 != (len(user.ClientKeyData) > 0):
		return nil, errors.New("one of client-certificate-data and client-key-data is missing; set both")
	case len(user.ClientCertificateData) == 0 && user.Token == "":
		return nil, errors.New("the user's credentials are missing; set client-certificate-data and client-key-data, or token")
	}
	return &rest.Config{
		Host:        cluster.Server,
		BearerToken: user.Token,
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   cluster.CertificateAuthorityData,
			CertData: user.ClientCertificateData,
			KeyData:  user.ClientKeyData,
		},
	}, nil
}

func forbiddenClusterFields(c *api.Cluster) []string {
	return namesOfSetFields([]field{
		{"insecure-skip-tls-verify", c.InsecureSkipTLSVerify},
		{"certificate-authority", c.CertificateAuthority != ""},
		{"proxy-url", c.ProxyURL != ""},
		{"tls-server-name", c.TLSServerName != ""},
	})
}

func forbiddenUserFields(u *api.AuthInfo) []string {
	return namesOfSetFields([]field{
		{"client-certificate", u.ClientCertificate != ""},
		{"client-key", u.ClientKey != ""},
		{"tokenFile", u.TokenFile != ""},
		{"as", u.Impersonate != "" || u.ImpersonateUID != "" || len(u.ImpersonateGroups)+len(u.ImpersonateUserExtra) > 0},
		{"username", u.Username != ""},
		{"password", u.Password != ""},
		{"auth-provider", u.AuthProvider != nil},
		{"exec", u.Exec != nil},
	})
}

// field is the name of a kubeconfig field and whether it is set.
type field struct {
	name string
	set  bool
}

func namesOfSetFields(fields []field) []string {
	var names []string
	for _, f := range fields {
		if f.set {
			names = append(names, f.name)
		}
	}
	return names
}
