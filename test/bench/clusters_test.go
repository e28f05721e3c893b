package bench

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/test/lab"
)

const (
	baseDomain     = "bench.example.com" // of the hosted clusters
	externalDomain = "ext.example.com"   // of Services, in plugin k8s_external
	namespace      = "clusters"          // of all objects
)

// cluster is the number of a hosted cluster, from 0. Its names and addresses derive from the number.
type cluster int

// vmCluster is the hosted cluster whose Infra publishes names of VMs and records.
const vmCluster cluster = 16<<10 - 1

func (c cluster) name() string    { return fmt.Sprintf("c%05d", int(c)) }
func (c cluster) domain() string  { return c.name() + "." + baseDomain }
func (c cluster) service() string { return c.name() + "-proxy" }

// onVLAN returns an address on the cluster's VLAN, a /24 that is a loopback network.
func (c cluster) onVLAN(host byte) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 64 + byte(c>>8), byte(c), host})
}

// Host parts of addresses on a VLAN.
const (
	proxyHost  = 3
	proxyMoved = 4 // the address to which the proxy is changed
	proxyLast  = 5 // the address to which all proxies are changed at once
	vmHost     = 10
)

// clusterIP returns the cluster IP of the proxy's Service. The first 256 are left for the API server's own Services.
func (c cluster) clusterIP() netip.Addr {
	return netip.AddrFrom4([4]byte{10, 96, byte((c + 256) >> 8), byte(c)})
}

// externalIP returns the external IP of the proxy's Service, which k8s_external returns.
func (c cluster) externalIP() netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, byte(c >> 8), byte(c)})
}

// labels are the control-plane names under a cluster domain that are queried.
var labels = []string{
	"api", "api-int", "oauth", "ignition", "ignition-server", "konnectivity", "konnectivity-server", "oauth-openshift.apps",
}

// yaml returns a HostedCluster as the HyperShift CLI renders it, its Infra, and the Service of the proxy. components are further
// components of the Infra.
func (c cluster) yaml(cidr, components string) string {
	hosted := lab.HostedCluster{Namespace: namespace, Name: c.name(), BaseDomain: baseDomain, Publishing: map[string]string{}}
	for service, label := range map[string]string{"OAuthServer": "oauth", "Konnectivity": "konnectivity", "Ignition": "ignition"} {
		hosted.Publishing[service] = lab.PublishedRoute(label + "." + c.domain())
	}
	prefix := netip.MustParsePrefix(cidr)
	return hosted.YAML() + fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  hostedClusterRef: {name: %[1]s}
  networkConfig: {cidr: %[3]s, gateway: %[4]s, networkAttachmentDefinition: vlan-%[1]s}
  infraComponents: {proxy: {serverIP: %[5]s}%[6]s}
  appsIngress: {enabled: true, source: Static, addresses: ["100.%[7]d.%[8]d.100"]}
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s-proxy, namespace: %[2]s}
spec: {clusterIP: %[9]s, externalIPs: [%[10]s], selector: {app.kubernetes.io/name: %[1]s}, ports: [{name: https, port: 443}]}
---
`, c.name(), namespace, cidr, prefix.Addr().Next(), prefix.Addr().Next().Next().Next(), components, 64+int(c>>8), byte(c), c.clusterIP(), c.externalIP())
}

// objects returns the YAML of an ordinary hosted cluster.
func (c cluster) objects() string { return c.yaml(c.onVLAN(0).String()+"/24", "") }

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

// Questions of a cluster, with the expected responses for pods and for VMs on the cluster's VLAN.
func fromPod(c cluster) []question  { return c.controlPlane(c.clusterIP()) }
func fromVLAN(c cluster) []question { return c.controlPlane(c.onVLAN(proxyHost)) }

func (c cluster) controlPlane(want netip.Addr) []question { return c.under(c.domain(), labels, want) }

// appsFromPod returns questions for apps names, which match a wildcard, with the expected responses for pods.
func appsFromPod(c cluster) []question {
	return c.under("apps."+c.domain(), []string{"shop", "a.shop", "grafana", "console-openshift-console", "b.grafana", "registry"}, c.clusterIP())
}

func (c cluster) under(domain string, labels []string, want netip.Addr) []question {
	var list []question
	for _, label := range labels {
		list = append(list, question{label + "." + domain, want})
	}
	return list
}

// api returns the question for the name of the API server.
func (c cluster) api(want netip.Addr) question { return c.under(c.domain(), labels[:1], want)[0] }

// Questions for the proxy's Service by its name in plugins kubernetes and k8s_external.
func serviceQuestion(c cluster) []question {
	return c.under(namespace+".svc.cluster.local", []string{c.service()}, c.clusterIP())
}

func externalQuestion(c cluster) []question {
	return c.under(namespace+"."+externalDomain, []string{c.service()}, c.externalIP())
}

// withAnswer returns the questions with one answer for all of them, for plugins that have only one.
func withAnswer(list []question, want netip.Addr) []question {
	same := make([]question, len(list))
	for i, q := range list {
		same[i] = question{name: q.name, want: want}
	}
	return same
}

const (
	// vmClient is the address of a VM of vmCluster, whose VLAN is vmCIDR.
	vmClient, vmCIDR = "127.32.0.10", "127.32.0.0/16"
	// records is the maximum number of records of an Infra.
	records = 256
)

// vm is the number of a VM with a name, from 0.
type vm int

func (v vm) address() netip.Addr {
	return netip.AddrFrom4([4]byte{127, 32, byte(1 + v/250), byte(1 + v%250)})
}

// named returns the question for a VM's name, which is worker-NUMBER unless a change has renamed the VM.
func (v vm) named(prefix string) question {
	return question{fmt.Sprintf("%s-%05d.%s", prefix, int(v), vmCluster.domain()), v.address()}
}

func (v vm) leaseName() string { return dhcplease.Name(namespace+"."+vmCluster.name(), v.address()) }

// lease returns the YAML of the Lease that the DHCP server writes for a VM.
func (v vm) lease() (string, error) {
	name := fmt.Sprintf("worker-%05d", int(v))
	o := dhcplease.Object(namespace+"."+vmCluster.name(), time.Hour, dhcplease.Binding{
		Addr: v.address(), Holder: dhcplease.Interface{Namespace: namespace, VM: name, Name: "vlan"}.String(),
		MAC: fmt.Sprintf("02:00:00:00:%02x:%02x", byte(v>>8), byte(v)), Hostname: name, Used: time.Now(),
	})
	o.APIVersion, o.Kind, o.Namespace = "coordination.k8s.io/v1", "Lease", namespace
	text, err := yaml.Marshal(o)
	return string(text), err
}

// record returns the question for a record of the Infra.
func record(i int) question {
	return question{fmt.Sprintf("record-%03d.%s", i, vmCluster.domain()), netip.AddrFrom4([4]byte{127, 32, 250, byte(i)})}
}

// recordPatch returns a patch with the Infra's records. The first record has the given address.
func recordPatch(first netip.Addr) string {
	list := make([]string, records)
	for i := range list {
		q := record(i)
		if i == 0 {
			q.want = first
		}
		list[i] = fmt.Sprintf(`{"name":%q,"type":"A","values":[%q]}`, q.name, q.want)
	}
	return `{"spec":{"infraComponents":{"dns":{"records":[` + strings.Join(list, ",") + `]}}}}`
}

// proxyPatch returns a patch with the VLAN address of an Infra's proxy.
func proxyPatch(address netip.Addr) string {
	return fmt.Sprintf(`{"spec":{"infraComponents":{"proxy":{"serverIP":"%s"}}}}`, address)
}
