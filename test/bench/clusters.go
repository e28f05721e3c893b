package main

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
)

const (
	baseDomain     = "bench.example.com" // of the hosted clusters
	serviceDomain  = "cluster.local"     // of Services, in plugin kubernetes
	externalDomain = "ext.example.com"   // of Services, in plugin k8s_external
	namespace      = "clusters"          // of all objects
)

// serviceCIDR is the API server's range of cluster IPs.
const serviceCIDR = "10.96.0.0/16"

// maxClusters is the number of clusters for which there are addresses.
const maxClusters = 16 << 10

// cluster is the number of a hosted cluster, from 0. Its names and addresses derive from the number.
type cluster int

func (c cluster) name() string   { return fmt.Sprintf("c%05d", int(c)) }
func (c cluster) domain() string { return c.name() + "." + baseDomain }

// api returns the question for the name of the API server.
func (c cluster) api(want netip.Addr) question { return question{labels[0] + "." + c.domain(), want} }

// onVLAN returns an address on the cluster's VLAN, which is a loopback network.
func (c cluster) onVLAN(host byte) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 64 + byte(c>>8), byte(c), host})
}

// apps returns the address of the cluster's apps, which must not be a loopback address.
func (c cluster) apps() netip.Addr {
	return netip.AddrFrom4([4]byte{100, 64 + byte(c>>8), byte(c), 100})
}

// Host parts of addresses on a VLAN.
const (
	gatewayHost  = 1
	proxyHost    = 3
	proxyMoved   = 4 // the address to which the proxy is changed
	proxyLast    = 5 // the address to which all proxies are changed at once
	vmHost       = 10
	vlanMaskBits = 24
)

// clusterIP returns the cluster IP of the proxy's Service. The first 256 are left for the API server's own Services.
func (c cluster) clusterIP() netip.Addr {
	return netip.AddrFrom4([4]byte{10, 96, byte((c + 256) >> 8), byte(c)})
}

// externalIP returns the external IP of the proxy's Service, with which k8s_external answers.
func (c cluster) externalIP() netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, byte(c >> 8), byte(c)})
}

// labels are the control-plane names under a cluster domain that are queried.
var labels = []string{
	"api", "api-int", "oauth", "ignition", "ignition-server", "konnectivity", "konnectivity-server", "oauth-openshift.apps",
}

// objects returns the cluster's objects in JSON: a HostedCluster as the HyperShift CLI renders it, an Infra and the
// Service of the proxy.
func (c cluster) objects() []string {
	host := func(label string) string { return label + "." + c.domain() }
	return []string{
		fmt.Sprintf(`{"apiVersion":"hypershift.openshift.io/v1beta1","kind":"HostedCluster",
"metadata":{"name":%[1]q,"namespace":%[2]q},
"spec":{"infraID":"%[1]s-x7k2p","dns":{"baseDomain":%[3]q},
"etcd":{"managementType":"Managed","managed":{"storage":{"type":"PersistentVolume","persistentVolume":{"size":"8Gi"}}}},
"networking":{"networkType":"OVNKubernetes","clusterNetwork":[{"cidr":"10.132.0.0/14"}],
"serviceNetwork":[{"cidr":"172.31.0.0/16"}],"machineNetwork":[{"cidr":"192.168.50.0/24"}]},
"platform":{"type":"KubeVirt","kubevirt":{"baseDomainPassthrough":false}},
"pullSecret":{"name":"%[1]s-pull-secret"},"release":{"image":"quay.io/openshift-release-dev/ocp-release:4.20.1-multi"},"sshKey":{},
"services":[
{"service":"APIServer","servicePublishingStrategy":{"type":"LoadBalancer","loadBalancer":{"hostname":%[4]q}}},
{"service":"OAuthServer","servicePublishingStrategy":{"type":"Route","route":{"hostname":%[5]q}}},
{"service":"Konnectivity","servicePublishingStrategy":{"type":"Route","route":{"hostname":%[6]q}}},
{"service":"Ignition","servicePublishingStrategy":{"type":"Route","route":{"hostname":%[7]q}}}]}}`,
			c.name(), namespace, baseDomain, host("api"), host("oauth"), host("konnectivity"), host("ignition")),
		fmt.Sprintf(`{"apiVersion":"hostedcluster.densityops.com/v1alpha1","kind":"Infra",
"metadata":{"name":%[1]q,"namespace":%[2]q},
"spec":{"hostedClusterRef":{"name":%[1]q},
"networkConfig":{"cidr":"%[3]s/%[4]d","gateway":"%[5]s","networkAttachmentDefinition":"vlan-%[1]s"},
"infraComponents":{"proxy":{"serverIP":"%[6]s"}},
"appsIngress":{"enabled":true,"source":"Static","addresses":["%[7]s"]}}}`,
			c.name(), namespace, c.onVLAN(0), vlanMaskBits, c.onVLAN(gatewayHost), c.onVLAN(proxyHost), c.apps()),
		fmt.Sprintf(`{"apiVersion":"v1","kind":"Service",
"metadata":{"name":%[1]q,"namespace":%[2]q},
"spec":{"clusterIP":"%[3]s","externalIPs":["%[4]s"],"selector":{"app.kubernetes.io/name":%[1]q},
"ports":[{"name":"https","port":443}]}}`,
			c.service(), namespace, c.clusterIP(), c.externalIP()),
	}
}

func (c cluster) service() string { return c.name() + "-proxy" }

// A question is an A query with its right answer.
type question struct {
	name string
	want netip.Addr
}

// questions returns the questions of n clusters, in a random order that is always the same.
func questions(n int, of func(cluster) []question) []question {
	var all []question
	for c := range cluster(n) {
		all = append(all, of(c)...)
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// fromPod returns questions for the control-plane names with the answers for pods.
func fromPod(c cluster) []question {
	return c.controlPlane(c.clusterIP())
}

// fromVLAN returns questions for the control-plane names with the answers for VMs on the cluster's VLAN.
func fromVLAN(c cluster) []question {
	return c.controlPlane(c.onVLAN(proxyHost))
}

func (c cluster) controlPlane(want netip.Addr) []question {
	list := make([]question, len(labels))
	for i, label := range labels {
		list[i] = question{name: label + "." + c.domain(), want: want}
	}
	return list
}

// appsFromPod returns questions for apps names, which a wildcard answers, with the answers for pods.
func appsFromPod(c cluster) []question {
	var list []question
	for _, label := range []string{"shop", "a.shop", "grafana", "console-openshift-console", "b.grafana", "registry"} {
		list = append(list, question{name: label + ".apps." + c.domain(), want: c.clusterIP()})
	}
	return list
}

// serviceQuestion returns the question for the proxy's Service by its name in plugin kubernetes.
func serviceQuestion(c cluster) []question {
	return []question{{name: c.service() + "." + namespace + ".svc." + serviceDomain, want: c.clusterIP()}}
}

// externalQuestion returns the question for the proxy's Service by its name in plugin k8s_external.
func externalQuestion(c cluster) []question {
	return []question{{name: c.service() + "." + namespace + "." + externalDomain, want: c.externalIP()}}
}

// withAnswer returns the questions with one answer for all of them, for plugins that have only one.
func withAnswer(list []question, want netip.Addr) []question {
	same := make([]question, len(list))
	for i, q := range list {
		same[i] = question{name: q.name, want: want}
	}
	return same
}

// manifests returns the objects of n clusters as a file for a folder of manifests.
func manifests(n int) []byte {
	var text strings.Builder
	for c := range cluster(n) {
		for _, object := range c.objects() {
			text.WriteString(object)
			text.WriteString("\n")
		}
	}
	return []byte(text.String())
}
