//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// The worker is a node of the hosted cluster with the name of its VM.
const (
	workerName = "demo-worker-6k8d2"
	workerMAC  = "02:00:00:00:50:81"
	appsPool   = "198.18.50.200-198.18.50.207"
	shop       = "shop.apps." + domain
)

// guestObjects are the objects in the hosted cluster: MetalLB's pool and speaker, and the router of an app
// with its own certificate.
const guestObjects = `
apiVersion: v1
kind: Namespace
metadata: {name: openshift-ingress}
---
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: vlan50, namespace: metallb-system}
spec: {addresses: [%[1]s]}
---
apiVersion: metallb.io/v1beta1
kind: L2Advertisement
metadata: {name: vlan50, namespace: metallb-system}
spec: {ipAddressPools: [vlan50], interfaces: [eth0]}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: speaker, namespace: metallb-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: speaker}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: speaker, namespace: metallb-system}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: speaker, namespace: metallb-system}
spec:
  selector: {matchLabels: {component: speaker}}
  template:
    metadata: {labels: {component: speaker}}
    spec:
      serviceAccountName: speaker
      hostNetwork: true
      terminationGracePeriodSeconds: 1
      containers:
      - name: speaker
        image: localhost/speaker:e2e
        args: [--namespace=metallb-system, --lb-class=metallb.io/vlan, --port=7472]
        env:
        - {name: METALLB_NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        - {name: METALLB_POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: METALLB_HOST, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
        securityContext: {runAsUser: 0, readOnlyRootFilesystem: true, capabilities: {drop: [ALL], add: [NET_RAW]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: shop, namespace: openshift-ingress}
data:
  page: "this is the shop\n"
  tls.crt: |
%[2]s
  tls.key: |
%[3]s
---
apiVersion: v1
kind: Pod
metadata:
  name: router-default
  namespace: openshift-ingress
  labels: {ingresscontroller.operator.openshift.io/deployment-ingresscontroller: default}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: router
    image: localhost/tools:e2e
    workingDir: /shop
    command: [/bin/openssl, s_server, -accept, "8443", -cert, tls.crt, -key, tls.key, -WWW]
    ports: [{name: https, containerPort: 8443}]
    readinessProbe: {tcpSocket: {port: https}, periodSeconds: 1}
    volumeMounts: [{name: shop, mountPath: /shop}]
  - name: plain
    image: localhost/tools:e2e
    command: [/bin/busybox, httpd, -f, -p, "8080", -h, /etc]
    ports: [{name: http, containerPort: 8080}]
  volumes: [{name: shop, configMap: {name: shop}}]
`

// hostedInfra is the Infra of a hosted cluster whose MetalLB has the apps addresses.
var hostedInfra = lab.Merge(infra, "spec: {appsIngress: {source: null, addresses: null, "+
	"metallb: {addressPoolName: vlan50, ipAddressPoolRange: "+appsPool+", loadBalancerClass: metallb.io/vlan}}}")

// startHosted starts the API server and MetalLB of the hosted cluster, and publishes them in the management
// cluster.
func (s *site) startHosted(t *testing.T) *lab.ControlPlane {
	t.Helper()
	hosted := lab.New(t, lab.Config{
		Name: "hosted", ServiceCIDR: "172.31.0.0/16", Address: "192.0.2.10", ServerNames: []string{apiHost}, ControllerManager: true, Scheduler: true,
	})
	lab.Must(t, hosted.StartMetalLB(t.Context(), lab.MetalLBConfig{LoadBalancerClass: "metallb.io/vlan"}))
	server, err := url.Parse(hosted.ServerURL())
	lab.Must(t, err)
	s.cp.MustApply(t, hostedCluster.Backend("kube-apiserver", 6443, netip.MustParseAddrPort(server.Host), ""))
	lab.Must(t, hostedCluster.PublishKubeconfig(t.Context(), s.cp, hosted))
	return hosted
}

// stopAtEnd stops a node when the test ends, and prints its logs if the test failed.
func stopAtEnd(t *testing.T, n *lab.Node) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(n.Logs())
		}
		lab.Report(t, n.Stop())
	})
}

// join boots the worker, and returns when its Node is ready.
func (s *site) join(t *testing.T, hosted *lab.ControlPlane) *lab.Node {
	t.Helper()
	s.cp.MustApply(t, inVMs.VirtualMachineInstance(workerName, workerMAC))
	n, err := lab.StartNode(t.Context(), hosted, lab.NodeConfig{
		Name: workerName, VM: &lab.NodeVM{Bridge: vlan, MAC: workerMAC, APIServer: "https://" + apiHost + ":6443"},
		Images: []string{speakerImage, toolsImage},
	})
	lab.Must(t, err)
	stopAtEnd(t, n)
	return n
}

// TestWorkerJoins boots a VM that has only the name of its control plane. It must become a node of the hosted
// cluster, and its apps must be reachable by name.
func TestWorkerJoins(t *testing.T) {
	s := newSite(t)
	s.serveClusterDNS(t, node.Node)
	hosted := s.startHosted(t)
	certificate, key := s.ca.Issue(t, shop)
	hosted.MustApply(t, fmt.Sprintf(guestObjects, appsPool, indent(certificate), indent(key)))
	existing := listObjects(t, hosted)

	// The VLAN lacks a NetworkAttachmentDefinition until then.
	lab.Must(t, s.cp.DeleteYAML(t.Context(), []byte("{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: vlan50, namespace: clusters}}")))
	s.setup(t, hostedInfra, "--make-network", "bridge="+vlan, "--cluster-dns", "patch")
	s.syncClusterDNS(t)

	s.join(t, hosted)
	readyPod(t, hosted, "openshift-ingress", "ingresscontroller.operator.openshift.io/deployment-ingresscontroller=default")
	s.checkShop(t, s.boot(t, "worker-1", "02:00:00:00:50:71"))
	if got := s.runClientPod(t, shop, "curl --silent --show-error --retry 9 --retry-all-errors --cacert /etc/client/ca.crt https://"+shop+"/page"); got != "this is the shop\n" {
		t.Errorf("response of the shop to a Pod of the management cluster: %q", got)
	}
	s.oooi(t, "-n", "clusters", "doctor", "demo", "-o", "wide", "--fail-on", "warn", "--wait", "2m") // waits for Envoy's next health check of the shop

	s.teardown(t)
	s.checkNothingLeft(t, hosted, existing)
}

// checkShop waits until a VM reaches the shop by its name.
func (s *site) checkShop(t *testing.T, vm *vm) {
	t.Helper()
	lab.Await(t, "the shop to respond to a VM", func() string {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		output, err := vm.namedCommand(ctx, t, "curl", "--silent", "--show-error", "--max-time", "5", "--cacert", s.roots, "https://"+shop+"/page").CombinedOutput()
		if err != nil || string(output) != "this is the shop\n" {
			return fmt.Sprintf("%v: %s", err, output)
		}
		return ""
	})
}

// namedCommand returns a command on the VM that resolves names by the DNS server of its lease.
func (v *vm) namedCommand(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	names := filepath.Join(v.Dir, "resolv.conf")
	lab.Must(t, os.WriteFile(names, []byte("nameserver "+v.dns+"\n"), 0o600))
	return v.Command(ctx, append([]string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc/resolv.conf && exec "$@"`, names}, args...)...)
}
