package lab

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
)

const (
	kubelet   = "kubelet"
	kubeProxy = "kube-proxy"
)

// kubeletConfig uses the standard paths, which are the node's own, and does not protect the host's disk and
// memory.
const kubeletConfig = `
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {x509: {clientCAFile: /var/lib/kubelet/ca.crt}}
address: %[1]s
healthzPort: 0
clusterDNS: [%[2]s]
clusterDomain: cluster.local
resolvConf: /var/lib/kubelet/resolv.conf
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupRoot: /%[3]s
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
protectKernelDefaults: true
evictionHard: {imagefs.available: "1%%", nodefs.available: "1%%", memory.available: 100Mi}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 2s
nodeLeaseDurationSeconds: 8 # renewed four times as often
`

const kubeProxyConfig = `
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: 10.244.0.0/16
hostnameOverride: %[1]s
bindAddress: %[2]s
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
clientConnection: {kubeconfig: /var/lib/kube-proxy/kubeconfig}
conntrack: {maxPerCore: 0}
`

// startKubernetes starts the kubelet and kube-proxy.
func (n *Node) startKubernetes(ctx context.Context) error {
	binary, err := Build(ctx, nil)
	if err != nil {
		return err
	}
	dns, err := clusterDNS(n.cp.config.ServiceCIDR)
	if err != nil {
		return err
	}
	address := n.Address().String()
	var resolvConf string // empty, not the host's
	if n.config.VM != nil {
		if err := n.startAPIProxy(); err != nil {
			return err
		}
		data, err := os.ReadFile(n.path("resolv.conf"))
		if err != nil {
			return fmt.Errorf("reading the VM's resolv.conf: %w", err)
		}
		resolvConf = string(data)
	}
	files := map[string]string{
		"kubelet/config.yaml":    fmt.Sprintf(kubeletConfig, address, dns, n.box.cgroup),
		"kubelet/ca.crt":         string(n.cp.CA()),
		"kubelet/resolv.conf":    resolvConf,
		"kube-proxy/config.yaml": fmt.Sprintf(kubeProxyConfig, n.config.Name, address),
	}
	for name, content := range files {
		if err := n.writeFile(name, []byte(content)); err != nil {
			return err
		}
	}
	if err := n.authorize(kubelet, "system:node:"+n.config.Name, "system:nodes"); err != nil {
		return err
	}
	if err := n.authorize(kubeProxy, "system:kube-proxy"); err != nil {
		return err
	}
	err = n.launch(&n.kubelet, kubelet, binary, kubelet,
		"--config=/var/lib/kubelet/config.yaml", "--kubeconfig=/var/lib/kubelet/kubeconfig",
		"--hostname-override="+n.config.Name, "--node-ip="+address)
	if err != nil {
		return err
	}
	return n.launch(&n.proxy, kubeProxy, binary, kubeProxy, "--config=/var/lib/kube-proxy/config.yaml")
}

// authorize writes a kubeconfig file for a component.
func (n *Node) authorize(component, user string, groups ...string) error {
	pair, err := n.cp.ca.client(user, groups...)
	if err != nil {
		return err
	}
	return n.cp.writeKubeconfigFor(n.path(component, "kubeconfig"), n.apiServer(), user, pair)
}

// clusterDNS returns the DNS server address that kubelets configure in Pods: by convention the tenth of the
// Service range.
func clusterDNS(serviceCIDR string) (netip.Addr, error) {
	first, _, _ := strings.Cut(serviceCIDR, ",")
	prefix, err := netip.ParsePrefix(first)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("Config.ServiceCIDR: %w", err)
	}
	address := prefix.Masked().Addr()
	for range 10 {
		address = address.Next()
	}
	return address, nil
}

// ClusterDNS returns the address of the DNS server that Pods use, which should be the ClusterIP of a Service.
func (n *Node) ClusterDNS() netip.Addr {
	address, _ := clusterDNS(n.cp.config.ServiceCIDR) // was valid when the node started
	return address
}
