package lab

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"

	"k8s.io/client-go/tools/clientcmd"
)

// Attach returns a control plane that another process runs, perhaps on another host, so that StartNode can
// add nodes to it there. Config must be the control plane's, and its Dir a copy of the control plane's
// folder. The CRD NetworkAttachmentDefinition must be installed.
func Attach(config Config) (*ControlPlane, error) {
	cp := &ControlPlane{config: config.withDefaults(), dir: config.Dir, attached: true, launcher: newLauncher()}
	if err := cp.attach(); err != nil {
		return nil, errors.Join(fmt.Errorf("attaching to control plane %s: %w", config.Name, err), cp.Stop())
	}
	return cp, nil
}

func (cp *ControlPlane) attach() error {
	kubeconfig, err := clientcmd.LoadFromFile(cp.Kubeconfig())
	if err != nil {
		return err
	}
	cluster := kubeconfig.Clusters[cp.config.Name]
	if cluster == nil {
		return errors.New("the kubeconfig is of another control plane")
	}
	server, err := url.Parse(cluster.Server)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(server.Host)
	if err != nil {
		return err
	}
	cp.config.Address = host
	if cp.ports.apiServer, err = strconv.Atoi(port); err != nil {
		return err
	}
	authority, err := readPair(cp.path("ca"))
	if err != nil {
		return err
	}
	if cp.ca, err = parseAuthority(authority); err != nil {
		return err
	}
	if cp.admin, err = readPair(cp.path("admin")); err != nil {
		return err
	}
	cp.clients, err = newClients(cp.RESTConfig())
	return err
}

// readPair reads a certificate and its key from name.crt and name.key.
func readPair(name string) (pair keyPair, err error) {
	if pair.cert, err = os.ReadFile(name + ".crt"); err != nil {
		return pair, err
	}
	pair.key, err = os.ReadFile(name + ".key")
	return pair, err
}
