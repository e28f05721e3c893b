package watch_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/test/lab"
)

var management = lab.Shared{
	Config: lab.Config{Name: "management", ControllerManager: true, CRDs: []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.Oooi}},
}

func TestMain(m *testing.M) { lab.Main(m, &management, &loopbackManagement, &hostedPlane) }

// infraIn returns an Infra whose only component is the proxy.
func infraIn(namespace, cluster, serverIP string) string {
	return lab.Site{Namespace: namespace, Name: cluster}.Infra("spec: {infraComponents: {dhcp: null, dns: null, proxy: {serverIP: " + serverIP + "}}}")
}

func proxyServerIn(namespace, serverIP string) string {
	return lab.Site{Namespace: namespace}.ProxyServer("spec: {networkConfig: {serverIP: " + serverIP + "}}")
}

// clusterNamed returns the cluster namespace/name of a snapshot, or nil.
func clusterNamed(s *model.Snapshot, namespace, name string) *model.Cluster {
	for _, c := range s.Clusters {
		if c.Namespace == namespace && c.Name == name {
			return c
		}
	}
	return nil
}

func TestStoreFollowsAPIServer(t *testing.T) {
	cp := management.Get(t)
	ns := cp.Namespace(t)
	store := run(t, watch.Config{
		Kubeconfig: cp.Kubeconfig(), Scope: model.Scope{HostedClusters: []string{ns + "/demo"}, Infras: []string{ns + "/demo", ns + "/second"}},
	})
	await(t, store, "a sync without objects", func(s *model.Snapshot) bool { return len(s.Clusters) == 0 })

	hcp := model.ControlPlaneNamespace(ns, "demo")
	cp.MustApply(t, lab.Namespaces(hcp)+lab.HostedCluster{Namespace: ns, Name: "demo", BaseDomain: "example.com"}.YAML()+infraIn(ns, "demo", "192.0.2.3"))
	await(t, store, "the cluster's names on the VLAN", func(s *model.Snapshot) bool {
		return len(s.VLANs) == 1 && has(s.VLANs[0].View, "api.demo.example.com", "192.0.2.3")
	})

	cp.MustApply(t, lab.Service(ns, "demo-proxy", 443))
	await(t, store, "the proxy's cluster IP", func(s *model.Snapshot) bool {
		return len(addresses(s.Pod(), "api.demo.example.com")) == 1
	})

	host := "ignition-server-" + hcp + ".apps.mgmt.example.com"
	cp.MustApply(t, lab.Route(hcp, "ignition-server", host, "ignition-server-proxy"))
	await(t, store, "the Route's host", func(s *model.Snapshot) bool { return has(s.VLANs[0].View, host, "192.0.2.3") })

	cp.MustApply(t, infraIn(ns, "demo", "192.0.2.4"))
	await(t, store, "the new address", func(s *model.Snapshot) bool {
		return has(s.VLANs[0].View, "api.demo.example.com", "192.0.2.4") && has(s.VLANs[0].View, host, "192.0.2.4")
	})

	// A second VLAN of the cluster. Pods use the proxies that are ready.
	cp.MustApply(t, lab.Site{Namespace: ns, Name: "second", VLAN: "198.51.100"}.Infra(
		"spec: {hostedClusterRef: {name: demo}, infraComponents: {dhcp: null, dns: null, proxy: {serverIP: 198.51.100.4, internalProxyService: 10.96.0.9}}}"))
	await(t, store, "both proxies", func(s *model.Snapshot) bool { return len(addresses(s.Pod(), "api.demo.example.com")) == 2 })
	lab.Must(t, cp.ApplyStatusYAML(t.Context(), fmt.Appendf(nil, `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: demo, namespace: %s}
status:
  conditions: [{type: ProxyReady, status: "False", reason: Test, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}]
`, ns)))
	await(t, store, "the proxy that is ready", func(s *model.Snapshot) bool { return has(s.Pod(), "api.demo.example.com", "10.96.0.9") })

	lab.Must(t, cp.DeleteYAML(t.Context(), []byte(lab.HostedCluster{Namespace: ns, Name: "demo", BaseDomain: "example.com"}.YAML())))
	await(t, store, "the cluster to be removed", func(s *model.Snapshot) bool {
		return len(s.Clusters) == 0 && addresses(s.Pod(), "api.demo.example.com") == nil
	})
}

func TestUnchangedObjectsBuildNoSnapshot(t *testing.T) {
	cp := management.Get(t)
	ns := cp.Namespace(t)
	store := run(t, watch.Config{Kubeconfig: cp.Kubeconfig(), Scope: model.Scope{HostedClusters: []string{ns + "/demo"}}})
	cp.MustApply(t, lab.HostedCluster{Namespace: ns, Name: "demo", BaseDomain: "example.com"}.YAML())
	await(t, store, "the cluster", func(s *model.Snapshot) bool { return clusterNamed(s, ns, "demo") != nil })
	before := store.Status().Builds

	status := func(text string) []byte {
		return []byte(fmt.Sprintf(`
apiVersion: hypershift.openshift.io/v1beta1
kind: HostedCluster
metadata: {name: demo, namespace: %s}
status:
  controlPlaneEndpoint: {host: %s, port: 6443}
  conditions: [{type: Available, status: "True", reason: AsExpected, message: "%s", lastTransitionTime: "2026-01-01T00:00:00Z"}]
`, ns, "api.demo.example.com", text))
	}
	for i := range 5 { // heartbeats that change no field in use
		lab.Must(t, cp.ApplyStatusYAML(t.Context(), status(fmt.Sprint("heartbeat ", i))))
	}
	cp.MustApply(t, infraIn(ns, "demo", "192.0.2.3")) // not in scope
	cp.MustApply(t, lab.HostedCluster{Namespace: ns, Name: "demo", BaseDomain: "example.com", More: "  kubeAPIServerDNSName: custom.example.org"}.YAML())
	await(t, store, "the real change", func(s *model.Snapshot) bool {
		return slices.ContainsFunc(clusterNamed(s, ns, "demo").Hostnames, func(h model.Hostname) bool { return h.Name == "custom.example.org" })
	})
	// The endpoint in the first heartbeat and the last change build snapshots; the other four heartbeats do
	// not.
	if got := store.Status().Builds - before; got > 2 {
		t.Errorf("got %d snapshots for 2 changes", got)
	}
}

func TestResourceThatAppearsAndDisappears(t *testing.T) {
	cp := lab.New(t, lab.Config{Name: "bare"})
	store := run(t, watch.Config{Kubeconfig: cp.Kubeconfig(), Retention: time.Second})
	await(t, store, "a sync without any CRD", func(s *model.Snapshot) bool { return len(s.Clusters) == 0 })
	for _, r := range store.Status().Resources {
		if r.Missing != (r.Resource != "services") {
			t.Errorf("%s: missing %t", r.Resource, r.Missing)
		}
	}
	if age := store.Status().Age(); age != 0 {
		t.Errorf("a missing resource makes the snapshot's age %s", age)
	}

	lab.Must(t, cp.InstallCRDs(t.Context(), lab.HyperShift))
	cp.MustApply(t, lab.Namespaces("clusters")+lab.HostedCluster{Namespace: "clusters", Name: "demo", BaseDomain: "example.com"}.YAML())
	await(t, store, "the cluster of the new resource", func(s *model.Snapshot) bool { return clusterNamed(s, "clusters", "demo") != nil })

	crds, err := lab.CRDs(t.Context(), lab.HyperShift)
	lab.Must(t, err)
	for _, crd := range crds {
		lab.Must(t, cp.Delete(t.Context(), crd))
	}
	await(t, store, "the objects of the removed resource to be removed", func(s *model.Snapshot) bool { return len(s.Clusters) == 0 })
	lab.Must(t, cp.InstallCRDs(t.Context(), lab.HyperShift))
	cp.MustApply(t, lab.HostedCluster{Namespace: "clusters", Name: "again", BaseDomain: "example.com"}.YAML())
	await(t, store, "an object of the resource that was added again", func(s *model.Snapshot) bool { return clusterNamed(s, "clusters", "again") != nil })
}

func TestOutageKeepsSnapshot(t *testing.T) {
	cp := lab.New(t, lab.Config{Name: "outage", CRDs: []lab.CRDSet{lab.HyperShift, lab.Oooi}})
	cp.MustApply(t, lab.Namespaces("clusters")+lab.HostedCluster{Namespace: "clusters", Name: "demo", BaseDomain: "example.com"}.YAML()+infraIn("clusters", "demo", "192.0.2.3"))
	store := run(t, watch.Config{Kubeconfig: cp.Kubeconfig()})
	known := func(s *model.Snapshot) bool {
		return len(s.VLANs) == 1 && has(s.VLANs[0].View, "api.demo.example.com", "192.0.2.3")
	}
	await(t, store, "the first sync", known)

	lab.Must(t, cp.KillAPIServer())
	lab.Must(t, cp.KillEtcd())
	lab.Poll(t, "the age to be above zero", func() bool { return store.Status().Age() > 0 })
	duringOutage := store.Snapshot()
	if !known(duringOutage) {
		t.Fatal("names are lost in the outage")
	}

	defer always(t, store, known)()
	lab.Must(t, cp.StartEtcd(t.Context()))
	lab.Must(t, cp.StartAPIServer(t.Context()))
	cp.MustApply(t, lab.HostedCluster{Namespace: "clusters", Name: "second", BaseDomain: "example.com"}.YAML())
	await(t, store, "what changed after the outage", func(s *model.Snapshot) bool {
		return clusterNamed(s, "clusters", "second") != nil
	})
	lab.Poll(t, "the age to be zero", func() bool { return store.Status().Age() == 0 })
}

// TestStatusesAreReadWithoutANewSnapshot checks that a Store with statuses has each version of Infras and ProxyServers,
// and that the heartbeats of a thousand replicas do not rebuild the model.
func TestStatusesAreReadWithoutANewSnapshot(t *testing.T) {
	cp := management.Get(t)
	ns := cp.Namespace(t)
	name := ns + "/demo"
	cp.MustApply(t, infraIn(ns, "demo", "192.0.2.3")+proxyServerIn(ns, "192.0.2.3"))
	// In an open scope, objects of earlier tests, whose namespaces are being deleted, would cause snapshots.
	store := run(t, watch.Config{Kubeconfig: cp.Kubeconfig(), Scope: ownScope(ns), Apps: &model.AppsOptions{}, Proxies: true, Statuses: true})
	before := await(t, store, "the ProxyServer", func(s *model.Snapshot) bool { return s.Infra(name) != nil && s.ProxyServer(name) != nil })
	changed := make(chan objects.Object, 100)
	defer store.SubscribeObjects(func(o objects.Object) {
		if o != nil {
			changed <- o
		}
	})()
	status := func(kind, fields string) {
		t.Helper()
		err := cp.ApplyStatusYAML(t.Context(), fmt.Appendf(nil, "{apiVersion: hostedcluster.densityops.com/v1alpha1, kind: %s, metadata: {name: demo, namespace: %s}, status: {%s}}", kind, ns, fields))
		lab.Must(t, err)
	}
	status("ProxyServer", "replicas: [{pod: demo-0}]")
	status("Infra", "observedGeneration: 1")
	lab.Poll(t, "the statuses", func() bool {
		infra, exists := store.Infra(name)
		return exists && infra.Status.ObservedGeneration == 1 && infra.Generation == 1 && infra.ResourceVersion != "" && len(store.ProxyServer(name).Status.Replicas) == 1
	})
	kinds := map[string]bool{} // in any order, which depends on their watches
	for range 2 {
		o := <-changed
		kinds[fmt.Sprintf("%T %s", o, o.GetName())] = true
	}
	if !kinds["*v1alpha1.Infra demo"] || !kinds["*v1alpha1.ProxyServer demo"] {
		t.Errorf("the changed objects are %v", kinds)
	}
	time.Sleep(100 * time.Millisecond) // a snapshot would be built within 20 ms
	if store.Snapshot() != before {
		t.Error("the statuses caused a new snapshot")
	}

	status("Infra", "appsIngress: {phase: Ready, externalIPs: [192.0.2.200]}")
	await(t, store, "a snapshot with the apps address in the status", func(s *model.Snapshot) bool { return s != before })
	cp.MustApply(t, infraIn(ns, "demo", "192.0.2.4")+proxyServerIn(ns, "192.0.2.4"))
	await(t, store, "the new generations", func(s *model.Snapshot) bool {
		infra, _ := store.Infra(name)
		i, p := s.Infra(name), s.ProxyServer(name)
		return i.Generation == 2 && i.UID == infra.UID && p.Generation == 2 && p.UID == store.ProxyServer(name).UID
	})
	if infra, exists := store.Infra(ns + "/other"); infra != nil || exists {
		t.Errorf("Infra other is %+v, %t", infra, exists)
	}
}

// TestNetworksAreOptional reads NetworkAttachmentDefinitions without their API, without permission to read them, and with it.
func TestNetworksAreOptional(t *testing.T) {
	cp := management.Get(t)
	first, second := cp.Namespace(t), cp.Namespace(t)
	user := "networks-" + first
	rights := func(more ...string) string {
		return lab.Role("", user, user, append([]string{
			"{apiGroups: [hypershift.openshift.io], resources: [hostedclusters], verbs: [list, watch]}",
			"{apiGroups: [hostedcluster.densityops.com], resources: [infras, proxyservers], verbs: [list, watch]}",
			"{apiGroups: [route.openshift.io], resources: [routes], verbs: [list, watch]}", `{apiGroups: [""], resources: [services], verbs: [list, watch]}`,
		}, more...)...)
	}
	cp.MustApply(t, rights()+infraIn(first, "a", "192.0.2.3")+infraIn(second, "b", "192.0.2.3"))
	kubeconfig, err := cp.UserKubeconfig(user)
	lab.Must(t, err)
	store := run(t, watch.Config{Kubeconfig: kubeconfig, Proxies: true, Networks: true})
	vlans := func(s *model.Snapshot) int {
		n := 0
		for _, v := range s.VLANs {
			if v.Uses(first+"/vlan") || v.Uses(second+"/vlan") {
				n++
			}
		}
		return n
	}
	await(t, store, "a VLAN for each name", func(s *model.Snapshot) bool { return vlans(s) == 2 })
	if age := store.Status().Age(); age != 0 {
		t.Errorf("without permission to read an optional resource, the data is %s old", age)
	}
	lab.Must(t, cp.InstallCRDs(t.Context(), lab.NetworkAttachmentDefinition))
	for _, namespace := range []string{first, second} {
		cp.MustApply(t, fmt.Sprintf(`
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan, namespace: %s}
spec: {config: '{"type": "bridge", "bridge": "br1", "vlan": 100}'}
`, namespace))
	}
	cp.MustApply(t, rights("{apiGroups: [k8s.cni.cncf.io], resources: [network-attachment-definitions], verbs: [list, watch]}"))
	await(t, store, "one VLAN", func(s *model.Snapshot) bool { return vlans(s) == 1 })
}
