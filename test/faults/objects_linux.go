package faults

import (
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/test/lab"
)

// OnRunning returns the faults of a running site. r may be nil if none is tried.
func OnRunning(r *Running) []Group {
	return []Group{objectGroup(r), clusterGroup(r), networkGroup(r), apiGroup(r), pathGroup(r), processGroup(r)}
}

// objectGroup has faults that doctor finds in objects.
func objectGroup(r *Running) Group {
	return Group{Name: "objects", Faults: []Fault{
		{Name: "control is down", Want: "CTL-001 fail", Break: func() {
			for _, name := range []string{"control", "control2"} {
				r.PatchStatus("v1 Pod oooi-system/"+r.Pods[name].Name, `{"status": {"conditions": [`+condition("Ready", "False")+`]}}`)
			}
		}},
		{Name: "etcd of the hosted control plane is unavailable", Want: "HC-002 fail", Says: "EtcdAvailable=False", Break: func() {
			r.PatchStatus(hostedCluster, `{"status": {"conditions": [`+condition("EtcdAvailable", "False")+`]}}`)
		}},
		{Name: "VMs are on another network", Want: "HC-004 fail", Break: func() {
			r.Patch(nodePool, `{"spec": {"platform": {"kubevirt": {"additionalNetworks": [{"name": "default/vlan7"}]}}}}`)
		}},
		{Name: "network of the VMs has an ipam", Want: "NET-002 fail", Break: func() {
			r.Patch(vlanNetwork, `{"spec": {"config": "{\"cniVersion\": \"0.3.1\", \"name\": \"vlan100\", \"type\": \"bridge\", \"bridge\": \"br-vlan100\", \"ipam\": {\"type\": \"whereabouts\"}}"}}`)
		}},
		{Name: "Multus rejects the VMs", Want: "NET-008 fail", Says: "VirtualMachineInstance clusters-demo/worker-a", Break: func() {
			r.Add(`{apiVersion: v1, kind: ConfigMap, metadata: {name: multus-cni-config, namespace: kube-system}, data: {cni-conf.json: '{"type": "multus", "namespaceIsolation": true}'}}`)
		}},
		{Name: "pod of DNS is pending", Want: "POD-002 fail", Says: "0/2 nodes are available", Break: func() {
			r.PatchStatus("v1 Pod clusters/demo-dns-0", `{"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
				"lastTransitionTime": "2026-01-02T03:04:05Z", "message": "0/2 nodes are available: 2 node(s) had untolerated taint(s)."}]}}`)
		}},
		{Name: "container of DHCP crashes", Want: "POD-002 fail", Says: "exited with 1: listen udp 0.0.0.0:67", Break: func() {
			r.PatchStatus("v1 Pod clusters/demo-dhcp-0", `{"status": {"conditions": [`+condition("Ready", "False")+`], "containerStatuses": [`+
				terminated("coredhcp", false, `{"exitCode": 1, "reason": "Error", "message": "listen udp 0.0.0.0:67: bind: address already in use"`)+`]}}`)
		}},
		{Name: "two VMs have one MAC address", Want: "DHCP-009 fail", Says: "worker-y", Break: func() {
			r.addVM("worker-x", "02:00:00:00:00:99", time.Now())
			r.addVM("worker-y", "02:00:00:00:00:99", time.Now())
		}},
		{Name: "VM lacks the label of its cluster", Want: "DHCP-011 fail", Says: "label vmi worker-l --overwrite " +
			"hypershift.openshift.io/infra-id=demo-x7k2p", Break: func() {
			r.addVM("worker-l", "02:00:00:00:00:97", time.Now(), "metadata: {labels: null}")
		}},
		{Name: "VM has no lease", Want: "DHCP-005 fail", Says: "has no DHCP lease", Break: func() { r.addVM("worker-n", "02:00:00:00:00:96", longAgo) }},
		{Name: "DNS and the cluster's DNS forward to each other", Want: "DNS-003 fail", Break: func() {
			r.Add(lab.Service("kube-system", "kube-dns", 53, "spec: {ports: [{port: 53, protocol: UDP}]}"))
			r.Patch(demoInfra, `{"spec": {"networkConfig": {"dnsServers": ["`+r.field("v1 Service kube-system/kube-dns", "spec", "clusterIP")+`"]}}}`)
		}},
		{Name: "name of the registry of the release image does not exist", Want: "DNS-009 fail", Says: "add an address of registry." + RunningDomain, Break: func() {
			r.Patch(hostedCluster, `{"spec": {"release": {"image": "registry.`+RunningDomain+`/release:4.20"}}}`)
		}},
		{Name: "Service of a deleted Infra exists", Want: "OLD-002 warn", Says: "teardown gone", Break: func() {
			r.Add(lab.Service("clusters", "gone-dns", 53, "metadata: {labels: {app.kubernetes.io/managed-by: oooi}, annotations: "+
				"{hostedcluster.densityops.com/infra: clusters/gone}}"))
		}},
		{Name: "container of the proxy ran out of memory", Want: "POD-003 warn", Says: "OOMKilled", Break: func() {
			r.PatchStatus("v1 Pod clusters/demo-proxy-0", `{"status": {"containerStatuses": [`+
				terminated("envoy", true, `{"exitCode": 137, "reason": "OOMKilled", "finishedAt": "`+time.Now().UTC().Format(time.RFC3339)+`"`)+`]}}`)
		}},
		{Name: "annotation of a VM reserves the gateway's address", Want: "DHCP-010 warn", Says: "worker-g", Break: func() {
			r.addVM("worker-g", "02:00:00:00:00:98", time.Now(), "metadata: {annotations: {hostedcluster.densityops.com/dhcp-addresses: 192.0.2.1}}")
		}},
		{Name: "cluster's DNS does not forward", Want: "DNS-004 warn", Break: func() {
			r.Patch("operator.openshift.io/v1 DNS "+
				"default", `{"spec": {"servers": []}}`)
		}},
		{Name: "Service of the proxy has the endpoint of another client", Want: "SVC-001 warn", Break: func() {
			r.Add("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: theirs, namespace: clusters, labels: {kubernetes.io/service-name: " +
				"demo-proxy}}\n" +
				"addressType: IPv4\nports: [{name: https, port: 443}]\nendpoints: [{addresses: [10.128.0.99]}]\n")
		}},
	}}
}

// clusterGroup has the fault of a missing HostedCluster, and those that its absence does not change.
func clusterGroup(r *Running) Group {
	return Group{Name: "HostedCluster", Faults: []Fault{
		{Name: "HostedCluster does not exist", Want: "HC-001 fail", Break: func() { r.Remove(hostedCluster) }},
		{Name: "Service of DNS selects other pods", Want: "INF-002 fail", Says: ".spec.selector", Break: func() {
			r.Patch("v1 Service clusters/demo-dns", `{"spec": {"selector": {"app": "other"}}}`)
		}},
		{Name: "StatefulSet of DHCP does not exist", Want: "INF-002 fail", Says: "StatefulSet", Break: func() { r.Remove("apps/v1 StatefulSet clusters/demo-dhcp") }},
		{Name: "NetworkPolicy of DHCP does not exist", Want: "INF-002 fail", Says: "NetworkPolicy", Break: func() {
			r.Remove("networking.k8s.io/v1 NetworkPolicy " +
				"clusters/demo-dhcp")
		}},
		{Name: "DHCP ranges are full", Want: "DHCP-002 fail", Says: "all 20 addresses", Break: r.leaseAll},
	}}
}

// networkGroup has the fault of a missing network, and those that its absence does not change.
func networkGroup(r *Running) Group {
	return Group{Name: "network", Faults: []Fault{
		{Name: "network has another name in the VMs' namespace", Want: "HC-004 fail", Says: "clusters-demo/vlan-100", Break: func() {
			r.Add(lab.BridgeNetwork("clusters-demo", "vlan-100", "br-100"))
			r.Patch(nodePool, `{"spec": {"platform": {"kubevirt": {"additionalNetworks": [{"name": "clusters-demo/vlan-100"}]}}}}`)
		}},
		{Name: "NetworkAttachmentDefinition does not exist", Want: "NET-001 fail", Break: func() { r.Remove(vlanNetwork) }},
		{Name: "image cannot be pulled", Want: "POD-002 fail", Says: "no such image", Break: func() {
			r.PatchStatus("v1 Pod clusters/demo-dhcp-0", `{"status": {"conditions": [`+condition("Ready", "False")+`], "containerStatuses": [{"name": "coredhcp", "image": "", "imageID": "",
				"ready": false, "restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]}}`)
		}},
		{Name: "Envoy has reached its connection limit", Want: "PRX-013 fail", Says: "had their limit of", Break: r.exhaustConnections},
		{Name: "apps address is outside of its range", Want: "APP-001 fail", Says: "192.0.2.220", Break: func() { r.moveApps("192.0.2.220") }},
		{Name: "hosted control plane is degraded", Want: "HC-002 warn", Says: "Degraded=True", Break: func() {
			r.PatchStatus(hostedCluster, `{"status": {"conditions": [`+condition("EtcdAvailable", "True")+`, `+condition("Degraded", "True")+`]}}`)
		}},
		{Name: "Lease of a VM was deleted", Want: "DHCP-016 warn", Says: "worker-a", Break: func() {
			r.Remove("coordination.k8s.io/v1 Lease clusters/clusters.demo.192.0.2.10")
		}},
	}}
}

// apiGroup has the fault of a missing API, and those that its absence does not change.
func apiGroup(r *Running) Group {
	return Group{Name: "API", Faults: []Fault{
		{Name: "CustomResourceDefinition does not exist", Want: "API-001 fail", Says: "does not exist", Break: r.removeProxyServers},
		{Name: "another client holds the Lease of control", Want: "CTL-004 fail", Says: `"me" holds the Lease`, Break: r.takeControlLease},
		{Name: "hosted cluster rejects the credentials of control", Want: "APP-001 fail", Says: "KubeconfigRejected", Break: func() {
			r.Undo(func() { r.restartControl(func() {}) }) // it would use the new one after a while
			const secret = "v1 Secret clusters/demo-admin-kubeconfig"
			r.Patch(secret, `{"data": {"kubeconfig": "`+r.withOtherToken(r.field(secret, "data", "kubeconfig"))+`"}}`)
		}},
		{Name: "Service in the hosted cluster cannot be deleted", Want: "OLD-004 warn", Says: "Services stay", Break: r.leaveUndeletableService},
	}}
}

// terminated returns the status of a container whose last run has ended, whose fields in JSON are given without the end.
func terminated(container string, ready bool, end string) string {
	state := `{"running": {}}`
	if !ready {
		state = `{"waiting": {"reason": "CrashLoopBackOff"}}`
	}
	return fmt.Sprintf(`{"name": %q, "image": "", "imageID": "", "ready": %v, "restartCount": 1, "state": %s, "lastState": {"terminated": %s}}}`, container, ready, state, end)
}

// longAgo is a start time outside of the grace period of checks.
var longAgo = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// runningSince is a change to a VirtualMachineInstance: its status says that it runs since a time.
func runningSince(since time.Time) string {
	return fmt.Sprintf("status: {phase: Running, phaseTransitionTimestamps: [{phase: Running, phaseTransitionTimestamp: %q}]}",
		since.UTC().Format(time.RFC3339))
}

// addVM creates a VirtualMachineInstance that is running since a time, with changes as for lab.Site.
func (r *Running) addVM(name, mac string, since time.Time, changes ...string) {
	r.Helper()
	r.Add(demo.VirtualMachineInstance(name, mac, append(changes, runningSince(since))...))
}

// leaseAll creates leases of all addresses of the DHCP ranges.
func (r *Running) leaseAll() {
	r.Helper()
	var all strings.Builder
	for i := 12; i <= 29; i++ {
		all.WriteString(demo.Lease(demo.IP(i), "bound", fmt.Sprintf("id:%02x", i), time.Now()))
	}
	r.Add(all.String())
}

// removeProxyServers deletes the CRD of ProxyServers, and with it the ProxyServer.
func (r *Running) removeProxyServers() {
	r.Helper()
	const crd = "apiextensions.k8s.io/v1 CustomResourceDefinition proxyservers.hostedcluster.densityops.com"
	server := r.mustGet(demoProxy)
	r.Undo(func() { r.restart("proxy", "xdsd") }) // it would wait for longer and longer between two attempts
	r.Undo(func() {
		r.Await("the API of ProxyServers", func() bool {
			again := server.DeepCopy()
			again.SetResourceVersion("")
			again.SetUID("")
			again.SetManagedFields(nil)
			// As setup, which applies the ProxyServer.
			return r.Client.Apply(r.Context(), client.ApplyConfigurationFromUnstructured(again), client.FieldOwner(server.GetManagedFields()[0].Manager)) == nil
		})
	})
	r.Remove(crd)
}

// moveApps assigns another address to the apps Service, at which the ingress router also responds.
func (r *Running) moveApps(address string) {
	r.Helper()
	assign := func(address string) {
		lab.AssignAddresses(r, r.HostedClient, "openshift-ingress", "demo-apps", address)
	}
	secure, plain := r.ca.TLSBackend(r.parent, address+":443", "*.apps."+RunningDomain), lab.HTTPBackend(r.parent, address+":80", "apps")
	r.Undo(func() {
		assign("192.0.2.200")
		secure.Close()
		plain.Close()
	})
	assign(address)
}
