package cmd

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
)

// patient is a site that setup has made, in which everything says that it is well: what a
// kubelet, Multus, HyperShift, KubeVirt and our daemons would write is written here.
type patient struct {
	*site

	undo []func()
}

// around is what others have made. %[1]s is the namespace.
const around = `
apiVersion: operator.openshift.io/v1
kind: DNS
metadata: {name: default}
spec: {}
---
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s-demo}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: kas, namespace: %[1]s-demo}
spec: {podSelector: {matchLabels: {app: kube-apiserver}}, policyTypes: [Ingress], ingress: [{from: [{namespaceSelector: {matchLabels: {name: openshift-monitoring}}}]}]}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: worker-a, namespace: %[1]s-demo}
spec:
  domain: {devices: {interfaces: [{name: vlan, bridge: {}}]}}
  networks: [{name: vlan, multus: {networkName: %[1]s/vlan100}}]
status: {phase: Running}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: %[1]s.demo.192.0.2.10, namespace: %[1]s, labels: {leasedb.densityops.com/pool: %[1]s.demo, leasedb.densityops.com/state: bound}}
spec: {holderIdentity: %[1]s-demo/worker-a/vlan, renewTime: "2026-01-02T03:04:05.000000Z"}
---
apiVersion: hypershift.openshift.io/v1beta1
kind: NodePool
metadata: {name: workers, namespace: %[1]s}
spec:
  clusterName: demo
  replicas: 2
  management: {upgradeType: Replace}
  release: {image: quay.io/openshift-release-dev/ocp-release:4.18.1-multi}
  platform: {type: KubeVirt, kubevirt: {attachDefaultNetwork: false, additionalNetworks: [{name: %[1]s/vlan100}]}}
`

// behind are the Services of the control plane, and their endpoints.
const behindThem = `
apiVersion: v1
kind: Service
metadata: {name: %[2]s, namespace: %[1]s-demo}
spec: {ports: [{port: %[3]d}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[2]s-1, namespace: %[1]s-demo, labels: {kubernetes.io/service-name: %[2]s}}
addressType: IPv4
ports: [{port: %[3]d}]
endpoints: [{addresses: [10.128.0.7], conditions: {ready: true}}]
`

func newPatient(t *testing.T) *patient {
	t.Helper()
	p := &patient{site: newSite(t)}
	p.apply(fmt.Sprintf(around, p.namespace))
	t.Cleanup(func() {
		dns := object(dnsKind, "", "default")
		if err := p.client.Delete(p.cleanup(), dns); err != nil {
			t.Error(err)
		}
	})
	for name, port := range map[string]int{"kube-apiserver": 6443, "oauth-openshift": 6443, "ignition-server-proxy": 443, "konnectivity-server": 8091} {
		p.apply(fmt.Sprintf(behindThem, p.namespace, name, port))
	}
	p.infra = strings.Replace(p.infra, "  infraComponents:", "  appsIngress: {enabled: true, source: Static, addresses: [192.0.2.200], hostedClusterRef: {name: demo, namespace: "+p.namespace+"}}\n  infraComponents:", 1)
	p.setup("--cluster-dns=patch")
	for pod, address := range map[string]string{"demo-dhcp-0": "192.0.2.2", "demo-dns-0": "192.0.2.3", "demo-proxy-0": "192.0.2.4"} {
		p.await("Pod "+pod, func() bool { return p.there(podKind, p.namespace, pod) != nil })
		p.patch(podKind, p.namespace, pod, false, `{"metadata": {"annotations": {"k8s.v1.cni.cncf.io/network-status":
			"[{\"name\": \"ovn\", \"default\": true, \"ips\": [\"10.128.0.9\"]}, {\"name\": \"x\", \"ips\": [\"`+address+`\"]}]"}}}`)
		p.patch(podKind, p.namespace, pod, true, running)
	}
	p.await("control's pods", func() bool {
		list := &corev1.PodList{}
		if err := p.client.List(t.Context(), list, client.InNamespace("oooi-system")); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			p.patch(podKind, "oooi-system", list.Items[i].Name, true, running)
		}
		return len(list.Items) > 0
	})
	p.await("the Deployment of control", func() bool {
		n, _, _ := unstructured.NestedInt64(p.there(deploymentKind, "oooi-system", "oooi-control").Object, "status", "availableReplicas")
		return n > 0
	})
	const now = `"lastTransitionTime": "2026-01-02T03:04:05Z"`
	condition := func(kind, status, reason string) string {
		return fmt.Sprintf(`{"type": %q, "status": %q, "reason": %q, "message": "", %s}`, kind, status, reason, now)
	}
	p.patch(hostedKind, p.namespace, "demo", true, `{"status": {"conditions": [`+condition("EtcdAvailable", "True", "AsExpected")+`, `+condition("Degraded", "False", "AsExpected")+`]}}`)
	p.patch(infraKind, p.namespace, "demo", true, fmt.Sprintf(`{"status": {"componentStatus": {"dhcpReady": true, "dnsReady": true, "proxyReady": true},
		"appsIngress": {"phase": "Ready", "externalIP": "192.0.2.200", "externalIPs": ["192.0.2.200"]}, "conditions": [%s, %s]}}`,
		condition("Ready", "True", "Ready"), condition("NamesServed", "True", "Served")))
	p.seen()
	p.undo = nil // what was made well stays
	return p
}

// seen: control and xdsd have seen what there is.
func (p *patient) seen() {
	p.Helper()
	p.patch(infraKind, p.namespace, "demo", true, fmt.Sprintf(`{"status": {"observedGeneration": %d}}`, p.there(infraKind, p.namespace, "demo").GetGeneration()))
	p.replica(`"version": "7", "acknowledged": "7", "listeners": [{"port": 443, "ready": true}]`)
}

// replica is what xdsd says of itself.
func (p *patient) replica(says string) {
	p.Helper()
	p.patch(proxyKind, p.namespace, "demo", true, fmt.Sprintf(`{"status": {"replicas": [{"pod": "demo-proxy-0", "observedGeneration": %d, %s}]}}`,
		p.there(proxyKind, p.namespace, "demo").GetGeneration(), says))
}

const running = `{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}]}}`

// Kinds that are broken.
var (
	podKind        = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	machineKind    = schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachineInstance"}
	leaseKind      = schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}
	sliceKind      = schema.GroupVersionKind{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"}
	serviceKind    = schema.GroupVersionKind{Version: "v1", Kind: "Service"}
	deploymentKind = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	setKind        = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"}
	policyKind     = schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}
	nadKind        = schema.GroupVersionKind{Group: "k8s.cni.cncf.io", Version: "v1", Kind: "NetworkAttachmentDefinition"}
	dnsKind        = schema.GroupVersionKind{Group: "operator.openshift.io", Version: "v1", Kind: "DNS"}
	hostedKind     = schema.GroupVersionKind{Group: "hypershift.openshift.io", Version: "v1beta1", Kind: "HostedCluster"}
	nodePoolKind   = schema.GroupVersionKind{Group: "hypershift.openshift.io", Version: "v1beta1", Kind: "NodePool"}
	infraKind      = schema.GroupVersionKind{Group: "hostedcluster.densityops.com", Version: "v1alpha1", Kind: "Infra"}
	proxyKind      = schema.GroupVersionKind{Group: "hostedcluster.densityops.com", Version: "v1alpha1", Kind: "ProxyServer"}
)

func object(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// there is an object as it is; nil for none.
func (p *patient) there(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	p.Helper()
	u := object(kind, namespace, name)
	if err := p.client.Get(p.Context(), client.ObjectKeyFromObject(u), u); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}
		p.Fatal(err)
	}
	return u
}

func (p *patient) await(what string, so func() bool) {
	p.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			p.Fatalf("waited a minute for %s", what)
		}
	}
}

// patch changes an object, or its status, until mend.
func (p *patient) patch(kind schema.GroupVersionKind, namespace, name string, status bool, body string) {
	p.Helper()
	before := p.there(kind, namespace, name)
	if before == nil {
		p.Fatalf("there is no %s %s/%s", kind.Kind, namespace, name)
	}
	change := func(u *unstructured.Unstructured, patch client.Patch) error {
		if status {
			return p.client.Status().Patch(p.Context(), u, patch)
		}
		return p.client.Patch(p.Context(), u, patch)
	}
	after := object(kind, namespace, name)
	if err := change(after, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		p.Fatal(err)
	}
	p.undo = append(p.undo, func() {
		now := p.there(kind, namespace, name)
		was := now.DeepCopy()
		if status {
			was.Object["status"] = before.Object["status"]
		} else {
			was.Object["spec"], was.Object["data"] = before.Object["spec"], before.Object["data"]
			was.SetAnnotations(before.GetAnnotations())
			was.SetLabels(before.GetLabels())
		}
		if err := change(was, client.MergeFrom(now)); err != nil {
			p.Fatal(err)
		}
	})
}

// remove deletes an object, without what belongs to it, until mend.
func (p *patient) remove(kind schema.GroupVersionKind, namespace, name string) {
	p.Helper()
	before := p.there(kind, namespace, name)
	if err := p.client.Delete(p.Context(), before.DeepCopy(), client.PropagationPolicy("Orphan")); err != nil {
		p.Fatal(err)
	}
	p.await(name+" to be gone", func() bool { return p.there(kind, namespace, name) == nil })
	p.undo = append(p.undo, func() {
		before.SetResourceVersion("")
		before.SetUID("")
		if err := p.client.Create(p.Context(), before); err != nil {
			p.Fatal(err)
		}
	})
}

// add makes an object until mend.
func (p *patient) add(yaml string) {
	p.Helper()
	yaml = strings.ReplaceAll(yaml, "NS", p.namespace)
	p.apply(yaml)
	p.undo = append(p.undo, func() {
		if err := p.cp.DeleteYAML(p.Context(), []byte(yaml)); err != nil {
			p.Fatal(err)
		}
	})
}

// image has the only container of a pod run another image, and returns the one before.
func (p *patient) image(name, image string) string {
	p.Helper()
	pod := &corev1.Pod{}
	if err := p.client.Get(p.Context(), client.ObjectKey{Namespace: p.namespace, Name: name}, pod); err != nil {
		p.Fatal(err)
	}
	before := pod.Spec.Containers[0].Image
	pod.Spec.Containers[0].Image = image
	if err := p.client.Update(p.Context(), pod); err != nil {
		p.Fatal(err)
	}
	return before
}

// mend undoes everything.
func (p *patient) mend() {
	for _, undo := range slices.Backward(p.undo) {
		undo()
	}
	p.seen()
	p.undo = nil
}

// diagnose runs doctor, and returns what it finds: codes with their status, without what passed or
// was skipped.
func (p *patient) diagnose(wantCode int, more ...string) (found []string, d *doctor.Diagnosis) {
	p.Helper()
	out, said, code := p.run(append([]string{"doctor", "demo", "-n", p.namespace, "-o", "json", "--fail-on=warn"}, more...)...)
	d = &doctor.Diagnosis{}
	if err := json.Unmarshal([]byte(out), d); err != nil {
		p.Fatalf("doctor ended with %d: %v: %s%s", code, err, out, said)
	}
	for _, r := range d.Results {
		if r.Status != doctor.Passed && r.Status != doctor.Skipped {
			found = append(found, strings.TrimPrefix(r.Code, "OOOI-")+" "+string(r.Status))
		}
	}
	if code != wantCode {
		p.Errorf("doctor ended with %d, want %d", code, wantCode)
	}
	return found, d
}

func TestDoctor(t *testing.T) {
	p := newPatient(t)
	t.Run("nothing is wrong", func(*testing.T) {
		found, d := p.diagnose(0)
		if len(found) > 0 {
			t.Errorf("%v: %+v", found, d.Results)
		}
		for _, r := range d.Results {
			if r.Status == doctor.Skipped {
				t.Errorf("%s is skipped: %s", r.Code, r.Reason)
			}
		}
	})
	for _, tc := range faults {
		t.Run(tc.name, func(t *testing.T) {
			p.T = t
			tc.fault(p)
			bundle := filepath.Join(t.TempDir(), "bundle.tar.gz")
			found, d := p.diagnose(2, "--save", bundle)
			if !slices.Equal(found, tc.want) {
				t.Errorf("found %q, want %q", found, tc.want)
				for _, r := range d.Results {
					t.Logf("%s %s %s %v", r.Code, r.Status, r.Reason, r.Findings)
				}
			}
			if again, _ := p.diagnose(2, "--from", bundle); !slices.Equal(again, found) {
				t.Errorf("from the bundle: %q", again)
			}
			p.mend()
			if found, _ := p.diagnose(0); len(found) > 0 {
				t.Errorf("after it was mended: %q", found)
			}
		})
	}
}

// TestEveryCheckHasAFault holds the catalogue against the checks.
func TestEveryCheckHasAFault(t *testing.T) {
	// These cannot be made, or mended, in a cluster that other tests use: the CRDs cannot go, what a
	// HostedCluster publishes cannot change, and a machine cannot be made older.
	found := []string{"OOOI-API-001", "OOOI-HC-003", "OOOI-DHCP-005"}
	for _, tc := range faults {
		for _, want := range tc.want {
			code, _, _ := strings.Cut(want, " ")
			found = append(found, "OOOI-"+code)
		}
	}
	for _, c := range doctor.Checks() {
		if !slices.Contains(found, c.Code) {
			t.Errorf("no fault is found by %s", c.Code)
		}
	}
}

// faults are each made in the live objects, with what doctor is to find, the root alone.
var faults = []struct {
	name  string
	fault func(*patient)
	want  []string
}{
	{"no hosted cluster", func(p *patient) { p.remove(hostedKind, p.namespace, "demo") }, []string{"HC-001 fail"}},
	{"a control that is down", func(p *patient) {
		list := &corev1.PodList{}
		if err := p.client.List(p.Context(), list, client.InNamespace("oooi-system")); err != nil {
			p.Fatal(err)
		}
		available := func(want bool) {
			p.await("the Deployment of control", func() bool {
				n, _, _ := unstructured.NestedInt64(p.there(deploymentKind, "oooi-system", "oooi-control").Object, "status", "availableReplicas")
				return n > 0 == want
			})
		}
		p.undo = append(p.undo, func() { available(true) })
		for i := range list.Items {
			p.patch(podKind, "oooi-system", list.Items[i].Name, true, `{"status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-02T03:04:05Z"}]}}`)
		}
		available(false)
	}, []string{"CTL-001 fail"}},
	{"no network", func(p *patient) { p.remove(nadKind, p.namespace, "vlan100") }, []string{"NET-001 fail"}},
	{"a network with an ipam", func(p *patient) {
		p.patch(nadKind, p.namespace, "vlan100", false, `{"spec": {"config": "{\"type\": \"bridge\", \"ipam\": {\"type\": \"whereabouts\"}}"}}`)
	}, []string{"NET-002 fail"}},
	{"a network of OVN-Kubernetes with subnets", func(p *patient) {
		p.patch(nadKind, p.namespace, "vlan100", false, `{"spec": {"config": "{\"type\": \"ovn-k8s-cni-overlay\", \"topology\": \"localnet\", \"subnets\": \"192.0.2.0/24\"}"}}`)
	}, []string{"NET-002 fail"}},
	{"a network that is none", func(p *patient) { p.patch(nadKind, p.namespace, "vlan100", false, `{"spec": {"config": "{"}}`) }, []string{"NET-002 fail"}},
	{"a pod without its address", func(p *patient) {
		p.patch(podKind, p.namespace, "demo-dns-0", false, `{"metadata": {"annotations": {"k8s.v1.cni.cncf.io/network-status": "[{\"name\": \"x\", \"ips\": [\"192.0.2.77\"]}]"}}}`)
	}, []string{"NET-003 fail"}},
	{"a pod without Multus", func(p *patient) {
		p.patch(podKind, p.namespace, "demo-proxy-0", false, `{"metadata": {"annotations": {"k8s.v1.cni.cncf.io/network-status": null}}}`)
	}, []string{"NET-003 fail"}},
	{"a machine at the gateway's address", func(p *patient) {
		p.patch(machineKind, p.namespace+"-demo", "worker-a", false, `{"status": {"interfaces": [{"name": "vlan", "ipAddress": "192.0.2.1", "ipAddresses": ["192.0.2.1", "fe80::1"]}]}}`)
		p.undo[len(p.undo)-1] = func() {
			p.patch(machineKind, p.namespace+"-demo", "worker-a", false, `{"status": {"interfaces": null}}`)
		}
	}, []string{"NET-004 fail"}},
	{"two machines at one address", func(p *patient) {
		for _, name := range []string{"worker-x", "worker-y"} {
			p.add("apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: " + name + ", namespace: NS-demo}\nspec:\n  domain: {devices: {interfaces: [{name: vlan, bridge: {}}]}}\n" +
				"  networks: [{name: vlan, multus: {networkName: NS/vlan100}}]\nstatus: {phase: Running, interfaces: [{name: vlan, ipAddress: 192.0.2.60, ipAddresses: [192.0.2.60]}]}\n")
		}
	}, []string{"NET-004 fail"}},
	{"a pod of another release", func(p *patient) {
		before := p.image("demo-dns-0", "example.com/oooi:old")
		p.undo = append(p.undo, func() { p.image("demo-dns-0", before) })
	}, []string{"POD-004 warn"}},
	{"machines that are told of other DNS servers", func(p *patient) {
		p.patch(infraKind, p.namespace, "demo", false, `{"spec": {"infraComponents": {"dhcp": {"options": [{"code": 6, "value": "203.0.113.53"}]}}}}`)
		p.seen()
	}, []string{"DHCP-006 fail"}},
	{"an etcd that is away", func(p *patient) {
		p.patch(hostedKind, p.namespace, "demo", true, `{"status": {"conditions": [{"type": "EtcdAvailable", "status": "False", "reason": "QuorumLost", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}]}}`)
	}, []string{"HC-002 fail"}},
	{"a degraded control plane", func(p *patient) {
		p.patch(hostedKind, p.namespace, "demo", true, `{"status": {"conditions": [{"type": "Degraded", "status": "True", "reason": "Unavailable", "message": "x", "lastTransitionTime": "2026-01-02T03:04:05Z"}]}}`)
	}, []string{"HC-002 warn"}},
	{"machines on another network", func(p *patient) {
		p.patch(nodePoolKind, p.namespace, "workers", false, `{"spec": {"platform": {"kubevirt": {"additionalNetworks": [{"name": "default/vlan7"}]}}}}`)
	}, []string{"HC-004 fail"}},
	{"an Infra that was edited, and control has not seen it", func(p *patient) {
		p.patch(infraKind, p.namespace, "demo", false, `{"spec": {"infraComponents": {"dhcp": {"leaseTime": "2h"}}}}`)
	}, []string{"CTL-002 fail"}},
	{"a range that is somebody else's as well", func(p *patient) {
		p.add("apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: Infra\nmetadata: {name: other, namespace: NS}\nspec:\n  networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: vlan100}\n" +
			"  infraComponents: {dhcp: {serverIP: 192.0.2.250, rangeStart: 192.0.2.90, rangeEnd: 192.0.2.120}, dns: {enabled: false}, proxy: {enabled: false}}\n")
	}, []string{"INF-001 fail"}},
	{"no StatefulSet", func(p *patient) { p.remove(setKind, p.namespace, "demo-dns") }, []string{"POD-001 fail"}},
	{"an image that is not there", func(p *patient) {
		p.patch(podKind, p.namespace, "demo-dns-0", true, `{"status": {"phase": "Pending", "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-02T03:04:05Z"}],
			"containerStatuses": [{"name": "coredns", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]}}`)
	}, []string{"POD-002 fail"}},
	{"a container that runs out of memory", func(p *patient) {
		p.patch(podKind, p.namespace, "demo-proxy-0", true, `{"status": {"containerStatuses": [{"name": "envoy", "image": "", "imageID": "", "ready": true, "restartCount": 5, "state": {"running": {}},
			"lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "`+time.Now().UTC().Format(time.RFC3339)+`"}}}]}}`)
	}, []string{"POD-003 warn"}},
	{"DNS that does not answer", func(p *patient) {
		p.patch(infraKind, p.namespace, "demo", true, `{"status": {"componentStatus": {"dnsReady": false}}}`)
	}, []string{"DNS-001 fail"}},
	{"names without an address", func(p *patient) {
		p.patch(infraKind, p.namespace, "demo", true, `{"status": {"conditions": [{"type": "NamesServed", "status": "False", "reason": "ProxyServiceMissing", "message": "x", "lastTransitionTime": "2026-01-02T03:04:05Z"}]}}`)
	}, []string{"DNS-002 fail"}},
	{"a cluster DNS that is asked, and asks us", func(p *patient) {
		p.add("apiVersion: v1\nkind: Service\nmetadata: {name: kube-dns, namespace: kube-system}\nspec: {ports: [{port: 53, protocol: UDP}]}\n")
		address, _, _ := unstructured.NestedString(p.there(serviceKind, "kube-system", "kube-dns").Object, "spec", "clusterIP")
		p.patch(infraKind, p.namespace, "demo", false, `{"spec": {"networkConfig": {"dnsServers": ["`+address+`"]}}}`)
		p.seen()
	}, []string{"DNS-003 fail"}},
	{"a cluster DNS that does not forward", func(p *patient) { p.patch(dnsKind, "", "default", false, `{"spec": {"servers": []}}`) }, []string{"DNS-004 warn"}},
	{"DHCP that is not ready", func(p *patient) {
		p.patch(infraKind, p.namespace, "demo", true, `{"status": {"componentStatus": {"dhcpReady": false}}}`)
	}, []string{"DHCP-001 fail"}},
	{"full ranges", func(p *patient) {
		for i := 11; i <= 99; i++ {
			p.add(fmt.Sprintf("apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: NS.demo.192.0.2.%d, namespace: NS, labels: {leasedb.densityops.com/pool: NS.demo, leasedb.densityops.com/state: bound}}\nspec: {holderIdentity: NS-demo/worker-%[1]d/vlan, renewTime: \"2026-01-02T03:04:05.000000Z\"}\n", i))
		}
	}, []string{"DHCP-002 fail"}},
	{"a lease that was edited", func(p *patient) {
		p.patch(leaseKind, p.namespace, p.namespace+".demo.192.0.2.10", false, `{"spec": {"holderIdentity": null}}`)
	}, []string{"DHCP-003 fail"}},
	{"an address that was declined", func(p *patient) {
		p.add("apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: NS.demo.192.0.2.20, namespace: NS, labels: {leasedb.densityops.com/pool: NS.demo, leasedb.densityops.com/state: declined}}\nspec: {holderIdentity: declined, renewTime: \"2026-01-02T03:04:05.000000Z\"}\n")
	}, []string{"DHCP-004 warn"}},
	{"no ProxyServer", func(p *patient) {
		p.patch(proxyKind, p.namespace, "demo", false, `{"spec": {"infraRef": {"name": "other"}}}`)
	}, []string{"PRX-001 fail"}},
	{"an API server without endpoints", func(p *patient) {
		p.patch(sliceKind, p.namespace+"-demo", "kube-apiserver-1", false, `{"endpoints": [{"addresses": ["10.128.0.7"], "conditions": {"ready": false}}]}`)
		before := p.undo[len(p.undo)-1]
		p.undo[len(p.undo)-1] = func() {
			before()
			p.patch(sliceKind, p.namespace+"-demo", "kube-apiserver-1", false, `{"endpoints": [{"addresses": ["10.128.0.7"], "conditions": {"ready": true}}]}`)
		}
	}, []string{"PRX-002 fail"}},
	{"no konnectivity", func(p *patient) { p.remove(serviceKind, p.namespace+"-demo", "konnectivity-server") }, []string{"PRX-002 fail"}},
	{"an Envoy that refuses", func(p *patient) {
		p.replica(`"version": "8", "acknowledged": "7", "nack": "listener 443: no"`)
	}, []string{"PRX-003 fail"}},
	{"an xdsd that lags", func(p *patient) {
		p.patch(proxyKind, p.namespace, "demo", true, `{"status": {"replicas": [{"pod": "demo-proxy-0", "observedGeneration": 0, "version": "7", "acknowledged": "7"}]}}`)
	}, []string{"PRX-004 fail"}},
	{"policies that keep the proxy out", func(p *patient) { p.remove(policyKind, p.namespace+"-demo", "oooi-"+p.namespace+"-demo-proxy") }, []string{"PRX-005 fail"}},
	{"a port that takes nothing", func(p *patient) {
		p.replica(`"version": "7", "acknowledged": "7", "listeners": [{"port": 443, "ready": false, "reason": "EOF"}]`)
	}, []string{"PRX-006 fail"}},
	{"applications without an address", func(p *patient) {
		p.patch(infraKind, p.namespace, "demo", true, `{"status": {"appsIngress": {"phase": "Degraded", "reason": "PoolMissing", "message": "x", "externalIP": "", "externalIPs": []}}}`)
	}, []string{"APP-001 fail"}},
	{"applications at the last address that was good", func(p *patient) {
		p.patch(infraKind, p.namespace, "demo", true, `{"status": {"appsIngress": {"phase": "Degraded", "reason": "HostedClusterUnreachable", "message": "x"}}}`)
	}, []string{"APP-001 warn"}},
	{"a Service of the old operator", func(p *patient) {
		p.add("apiVersion: v1\nkind: Service\nmetadata: {name: demo-old, namespace: NS, ownerReferences: [{apiVersion: hostedcluster.densityops.com/v1alpha1, kind: DHCPServer, name: demo-dhcp, uid: 5a0c8c1c-2a5b-4d0c-9d3b-0d5f5a1d2b11}]}\nspec: {ports: [{port: 67}]}\n")
	}, []string{"OLD-001 fail"}},
}

// TestABundleHasNoSecrets seeds some where a careless collector would find them.
func TestABundleHasNoSecrets(t *testing.T) {
	p := newPatient(t)
	const seed = "c0ffee-hunter2"
	p.add(strings.ReplaceAll(`
apiVersion: v1
kind: Secret
metadata: {name: demo-admin-kubeconfig, namespace: NS}
stringData: {kubeconfig: SEED}
---
apiVersion: v1
kind: Secret
metadata: {name: demo-apps-reader, namespace: NS, labels: {app.kubernetes.io/managed-by: oooi}}
stringData: {kubeconfig: SEED}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: theirs, namespace: NS}
data: {password: SEED}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: theirs, namespace: kube-system}
data: {password: SEED}
`, "SEED", seed))
	bundle := filepath.Join(t.TempDir(), "bundle.tar.gz")
	p.diagnose(0, "--save", bundle)
	folder := t.TempDir()
	unpacked := 0
	unpack(t, bundle, func(name string, data []byte) {
		unpacked++
		if strings.Contains(string(data), seed) {
			t.Errorf("%s has it", name)
		}
		if strings.Contains(name, "Secret") {
			t.Errorf("there is %s", name)
		}
		file := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	if unpacked < 30 {
		t.Errorf("there are %d files in it", unpacked)
	}
	p.mend()

	// Unpacked, and among others' files, it says the same.
	if err := os.WriteFile(filepath.Join(folder, "pod.log"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "broken.yaml"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, said, code := p.run("doctor", "demo", "-n", p.namespace, "--from", folder)
	if code != 0 || !strings.Contains(said, "Warning: broken.yaml is left out") {
		t.Errorf("from the folder it ended with %d and said %s", code, said)
	}
}

func unpack(t *testing.T, bundle string, take func(name string, data []byte)) {
	t.Helper()
	file, err := os.Open(bundle)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	zipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewReader(zipped)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		take(h.Name, data)
	}
}

// TestForbiddenIsNoPass has a user who may read the Infra and nothing else.
func TestForbiddenIsNoPass(t *testing.T) {
	p := newPatient(t)
	user := "narrow-" + p.namespace
	p.add(strings.ReplaceAll(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: narrow, namespace: NS}
rules: [{apiGroups: [hostedcluster.densityops.com], resources: [infras], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: narrow, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: narrow}
subjects: [{kind: User, name: USER, apiGroup: rbac.authorization.k8s.io}]
`, "USER", user))
	kubeconfig, err := p.cp.UserKubeconfig(user)
	if err != nil {
		t.Fatal(err)
	}
	p.kubeconfig = kubeconfig
	out, said, code := p.run("doctor", "demo", "-n", p.namespace, "-o", "json", "--strict")
	d := &doctor.Diagnosis{}
	if err := json.Unmarshal([]byte(out), d); err != nil {
		t.Fatalf("%d: %v: %s", code, err, said)
	}
	for _, r := range d.Results {
		if r.Status == doctor.Passed && !slices.Contains([]string{"OOOI-INF-001", "OOOI-DHCP-006"}, r.Code) {
			t.Errorf("%s passes", r.Code)
		}
		if r.Status == doctor.Skipped && r.Inconclusive && !strings.Contains(r.Reason, "forbidden") {
			t.Errorf("%s is skipped: %s", r.Code, r.Reason)
		}
	}
	if code != inconclusiveCode || d.Summary[doctor.Failed] > 0 || d.Summary[doctor.Skipped] < 25 {
		t.Errorf("it ended with %d: %v", code, d.Summary)
	}
	if _, _, code := p.run("doctor", "demo", "-n", p.namespace, "--strict", "--only", "OOOI-POD"); code != inconclusiveCode {
		t.Errorf("it ended with %d", code)
	}
	if _, said, code := p.run("doctor", "other", "-n", p.namespace); code != 1 || !strings.Contains(said, "other") {
		t.Errorf("of an Infra that is not there it said %s, %d", said, code)
	}
}

func TestDoctorRefusesWhatMeansNothing(t *testing.T) {
	for line, says := range map[string]string{
		"doctor --fail-on=maybe":    `--fail-on "maybe": want fail, warn or never`,
		"doctor --only OOOI-XYZ":    "there is no check OOOI-XYZ",
		"doctor --save a --from b":  "give one of the two",
		"doctor -o nothing":         `--output "nothing"`,
		"doctor --from /there/is/0": "reading the bundle",
	} {
		_, said, code := call(t, append([]string{"kubectl-oooi"}, strings.Fields(line)...)...)
		if code != 1 || !strings.Contains(said, says) {
			t.Errorf("%s ended with %d and said %s", line, code, said)
		}
	}
	out, _, code := call(t, "kubectl-oooi", "doctor", "--list", "--only", "oooi-hc")
	if code != 0 || strings.Count(out, "OOOI-HC-") < 4 || strings.Contains(out, "OOOI-DNS-001") {
		t.Errorf("%d: %s", code, out)
	}
}
