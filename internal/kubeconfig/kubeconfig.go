// Package kubeconfig reads kubeconfigs that somebody else wrote. Such a file can name
// programs to run, files to read and proxies to go through; none of that is followed.
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

// Restricted returns the client configuration of a kubeconfig's current context,
// made anew from the server, the CA data and the client certificate or token data
// alone. Whatever else would change with whom, as whom or by what way a client speaks
// is refused by name; the rest (namespace, extensions, disable-compression) is left out.
// An error never holds a password or a token.
func Restricted(data []byte) (*rest.Config, error) {
	file, err := clientcmd.Load(data)
	if err != nil { // which quotes whole users, keys and all, where a name is there twice
		return nil, errors.New("invalid kubeconfig; 'kubectl config view --kubeconfig FILE' prints the error")
	}
	context := file.Contexts[file.CurrentContext]
	if context == nil {
		return nil, fmt.Errorf("the kubeconfig's current context %q does not exist", file.CurrentContext)
	}
	cluster, user := file.Clusters[context.Cluster], file.AuthInfos[context.AuthInfo]
	if cluster == nil || user == nil {
		return nil, fmt.Errorf("context %q lacks its cluster %q or its user %q", file.CurrentContext, context.Cluster, context.AuthInfo)
	}
	if refused := append(refusedOfCluster(cluster), refusedOfUser(user)...); len(refused) > 0 {
		return nil, fmt.Errorf("the kubeconfig has %s, which is not allowed; use only server, CA data and client certificate or token data", strings.Join(refused, ", "))
	}
	return restConfig(cluster, user)
}

func restConfig(cluster *api.Cluster, user *api.AuthInfo) (*rest.Config, error) {
	server, err := url.Parse(cluster.Server)
	switch {
	case err != nil:
		return nil, errors.New("the server's URL cannot be parsed") // err quotes it, with any password in it
	case strings.ContainsAny(cluster.Server, "@?#"):
		return nil, errors.New("the server's URL has more than a host, a port and a path")
	case server.Scheme != "https" || server.Hostname() == "":
		return nil, fmt.Errorf("the server %q is not an https URL", cluster.Server)
	case len(cluster.CertificateAuthorityData) == 0:
		return nil, errors.New("certificate-authority-data is missing: the server could not be verified")
	case len(user.ClientCertificateData) > 0 != (len(user.ClientKeyData) > 0):
		return nil, errors.New("one of client-certificate-data and client-key-data is missing")
	case len(user.ClientCertificateData) == 0 && user.Token == "":
		return nil, errors.New("client-certificate-data and token are missing")
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

func refusedOfCluster(c *api.Cluster) []string {
	return named([]field{
		{"insecure-skip-tls-verify", c.InsecureSkipTLSVerify},
		{"certificate-authority", c.CertificateAuthority != ""},
		{"proxy-url", c.ProxyURL != ""},
		{"tls-server-name", c.TLSServerName != ""},
	})
}

func refusedOfUser(u *api.AuthInfo) []string {
	return named([]field{
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

// field is a field of a kubeconfig and whether it is set.
type field struct {
	name string
	set  bool
}

func named(fields []field) []string {
	var names []string
	for _, f := range fields {
		if f.set {
			names = append(names, f.name)
		}
	}
	return names
}
