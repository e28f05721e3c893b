package dhcp_test

import (
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// cluster is the namespace of a hosted cluster's control plane in the management cluster.
type cluster struct {
	cp        *lab.ControlPlane
	namespace string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	cp := management.Get(t)
	return &cluster{cp: cp, namespace: cp.Namespace(t)}
}

// startVM creates a VirtualMachine and its running instance, with changes as for lab.Site, and waits until the server knows the
// instance.
func (c *cluster) startVM(t *testing.T, srv *server, name, mac string, changes ...string) {
	t.Helper()
	c.cp.MustApply(t, c.vm(name, mac, changes...))
	srv.awaitClient(t, mac, c.interfaceOf(name))
}

// vm returns a VirtualMachine and its running instance, with changes to the instance as for lab.Site.
func (c *cluster) vm(name, mac string, changes ...string) string {
	in := "metadata: {namespace: " + c.namespace + "}"
	return lab.Site{}.VirtualMachine(name, in) + lab.Site{}.VirtualMachineInstance(name, mac, append(changes, in, lab.OwnedByVM(name, ""))...)
}

// interfaceOf returns the name that the server gives to the VM's interface.
func (c *cluster) interfaceOf(name string) string { return c.namespace + "/" + name + "/vlan" }

// plugins returns the plugins of a VLAN's server with an address. more are additional arguments of the plugin
// leasedb.
func (c *cluster) plugins(address string, more ...string) []string {
	return []string{
		"kubevirt network=clusters/vlan namespace=" + c.namespace + " kubeconfig=DIR/kubeconfig snapshot=DIR/machines.json",
		"leasedb store=bolt file=DIR/leases.db cidr=192.0.2.0/24 range=192.0.2.100-192.0.2.199 lease=1h server=" + address + " " + strings.Join(more, " "),
		"netmask 255.255.255.0",
		"router 192.0.2.1",
		"dns 192.0.2.53",
		"options mtu=1400 domain=demo.example.com routes=10.0.0.0/8>192.0.2.9 t1=2s t2=6s",
	}
}

// serve starts the cluster's server on a site's VLAN, with the default address and plugins.
func (c *cluster) serve(t *testing.T, s *site) *server {
	t.Helper()
	return c.serveAt(t, s, "192.0.2.2", c.plugins("192.0.2.2")...)
}

// serveAt is serve with another address and other plugins.
func (c *cluster) serveAt(t *testing.T, s *site, address string, plugins ...string) *server {
	t.Helper()
	srv := s.newServer(t, address, plugins...)
	srv.kubeconfig(t, c.cp)
	srv.start(t)
	return srv
}

// newWorker returns a site with the server of a cluster, and a running VM called worker with mac1 and changes as for lab.Site. The VM
// lacks a lease.
func newWorker(t *testing.T, changes ...string) (*site, *cluster, *server) {
	t.Helper()
	s, c := newSite(t), newCluster(t)
	srv := c.serve(t, s)
	c.startVM(t, srv, "worker", mac1, changes...)
	return s, c, srv
}
