package dhcp_test

import (
	"fmt"
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

func (c *cluster) apply(t *testing.T, yaml string) {
	t.Helper()
	if err := c.cp.ApplyYAML(t.Context(), []byte(yaml)); err != nil {
		t.Fatal(err)
	}
}

// startVM creates a VirtualMachine and its running instance, with further metadata, and waits until the
// server knows the instance.
func (c *cluster) startVM(t *testing.T, srv *server, name, mac, metadata string) {
	t.Helper()
	c.apply(t, c.virtualMachine(name)+c.instance(name, mac, "kubevirt.io/test", metadata))
	srv.awaitClient(t, mac, c.interfaceOf(name))
}

// stopVM deletes the instance; the VirtualMachine stays.
func (c *cluster) stopVM(t *testing.T, name, mac string) {
	t.Helper()
	if err := c.cp.DeleteYAML(t.Context(), []byte(c.instance(name, mac, "kubevirt.io/test", ""))); err != nil {
		t.Fatal(err)
	}
	c.apply(t, c.instance(name, mac, "", ""))
}

func (c *cluster) virtualMachine(name string) string {
	return fmt.Sprintf("apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: %s, namespace: %s}\n---\n", name, c.namespace)
}

// instance returns a VirtualMachineInstance that the real CRD accepts. The finalizer stands for KubeVirt's,
// which KubeVirt removes when the instance has ended.
func (c *cluster) instance(name, mac, finalizer, metadata string) string {
	if metadata != "" {
		metadata = ", " + metadata
	}
	return fmt.Sprintf(`
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata:
  {name: %[1]s, namespace: %[2]s, finalizers: [%[4]s], ownerReferences: [{apiVersion: kubevirt.io/v1, kind: VirtualMachine, name: %[1]s, uid: 0f3b7d4e-0000-4000-8000-000000000001, controller: true}]%[5]s}
spec:
  networks: [{name: vlan, multus: {networkName: clusters/vlan}}]
  domain: {devices: {interfaces: [{name: vlan, bridge: {}, macAddress: %[3]q}]}}
---
`, name, c.namespace, mac, finalizer, metadata)
}

// interfaceOf returns the name that the server gives to the VM's interface.
func (c *cluster) interfaceOf(name string) string { return c.namespace + "/" + name + "/vlan" }

// plugins returns the plugins of a VLAN's server with an address. more are further arguments of the plugin
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

// newWorker returns a site with the server of a cluster, and a running VM called worker with mac1 and further
// metadata. The VM has no lease yet.
func newWorker(t *testing.T, metadata string) (*site, *cluster, *server) {
	t.Helper()
	s, c := newSite(t), newCluster(t)
	srv := c.serve(t, s)
	c.startVM(t, srv, "worker", mac1, metadata)
	return s, c, srv
}
