package watch_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/test/lab"
)

// ownScope is the scope of a pod of the Infra demo.
func ownScope(namespace string) model.Scope {
	return model.Scope{Infras: []string{namespace + "/demo"}, HostedClusters: []string{namespace + "/demo"}, ProxyServers: []string{namespace + "/demo"}}
}

// disappear deletes all objects of a site as a wrong prune does: without deletionTimestamps.
func disappear(t *testing.T, cp *lab.ControlPlane, namespace string) {
	t.Helper()
	objectsIn, err := dynamic.NewForConfig(cp.RESTConfig())
	lab.Must(t, err)
	for _, resource := range []string{"infras", "proxyservers"} {
		lab.Must(t, objectsIn.Resource(v1alpha1.SchemeGroupVersion.WithResource(resource)).Namespace(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	}
	lab.Must(t, objectsIn.Resource(objects.HostedClusterResource).Namespace(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
}

// keptBy returns the number of objects of each resource that a store keeps.
func keptBy(store *watch.Store) map[string]int { return watch.CountKept(store.Status().Resources) }

const infrasName, hostedClustersName, proxyServersName = "infras.hostedcluster.densityops.com", "hostedclusters.hypershift.openshift.io", "proxyservers.hostedcluster.densityops.com"

func awaitKept(t *testing.T, store *watch.Store, resources ...string) {
	t.Helper()
	lab.Poll(t, "the objects to be kept", func() bool {
		for _, resource := range resources {
			if keptBy(store)[resource] != 1 {
				return false
			}
		}
		return true
	})
}

// TestObjectsDisappearWithoutTeardown deletes an Infra, its ProxyServer and its HostedCluster in every way but teardown.
// What a pod of the Infra serves must not change, also after a restart of its container, until the objects are back.
func TestObjectsDisappearWithoutTeardown(t *testing.T) {
	for name, lose := range map[string]func(*testing.T, *lab.ControlPlane, string){
		"objects": disappear,
		"CRDs": func(t *testing.T, cp *lab.ControlPlane, _ string) {
			t.Helper()
			crds, err := lab.CRDs(t.Context(), lab.HyperShift, lab.Oooi)
			lab.Must(t, err)
			// The API server may take minutes to delete those whose storage it has not initialized, because no client watches them.
			crds = slices.DeleteFunc(crds, func(crd *unstructured.Unstructured) bool {
				return !slices.Contains([]string{infrasName, hostedClustersName, proxyServersName}, crd.GetName())
			})
			for _, crd := range crds {
				lab.Must(t, cp.Delete(t.Context(), crd))
			}
			for _, crd := range crds {
				lab.Poll(t, "CRD "+crd.GetName()+" to be deleted", func() bool {
					return apierrors.IsNotFound(cp.Client(t).Get(t.Context(), client.ObjectKeyFromObject(crd), crd.DeepCopy()))
				})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cp := lab.New(t, lab.Config{Name: "disappear", CRDs: []lab.CRDSet{lab.HyperShift, lab.Oooi}})
			const ns = "clusters"
			hc := lab.HostedCluster{Namespace: ns, Name: "demo", BaseDomain: "example.com"}
			all := hc.YAML() + infraIn(ns, "demo", "192.0.2.3") + proxyServerIn(ns, "192.0.2.3")
			cp.MustApply(t, lab.Namespaces(ns)+lab.Namespaces(hc.ControlPlaneNamespace())+all+lab.Service(ns, "demo-proxy", 443))
			config := watch.Config{Kubeconfig: cp.Kubeconfig(), Scope: ownScope(ns), Proxies: true, File: filepath.Join(t.TempDir(), "snapshot.json")}
			served := func(address string) func(*model.Snapshot) bool {
				return func(s *model.Snapshot) bool {
					return len(s.VLANs) == 1 && has(s.VLANs[0].View, "api.demo.example.com", address) && s.ProxyServer(ns+"/demo") != nil && len(s.Clusters) == 1
				}
			}
			t.Run("the container that saw it", func(t *testing.T) {
				store := run(t, config)
				await(t, store, "the first sync", served("192.0.2.3"))
				defer always(t, store, served("192.0.2.3"))()
				lose(t, cp, ns)
				awaitKept(t, store, infrasName, hostedClustersName, proxyServersName)
				cp.MustApply(t, lab.Service(ns, "later", 443)) // a change that builds a snapshot
				await(t, store, "a snapshot after the loss", func(s *model.Snapshot) bool { return len(s.ServiceIPs(ns+"/later")) > 0 })
			})
			store := run(t, config)
			await(t, store, "the objects after a restart", func(s *model.Snapshot) bool { return store.Status().Synced && served("192.0.2.3")(s) })
			awaitKept(t, store, infrasName, hostedClustersName, proxyServersName)

			lab.Must(t, cp.InstallCRDs(t.Context(), lab.HyperShift, lab.Oooi))
			cp.MustApply(t, hc.YAML()+infraIn(ns, "demo", "192.0.2.4")+proxyServerIn(ns, "192.0.2.3"))
			await(t, store, "the Infra that was created again", served("192.0.2.4"))
			lab.Poll(t, "no object to be kept", func() bool {
				return store.Status().Resources != nil && keptBy(store)[infrasName]+keptBy(store)[hostedClustersName]+keptBy(store)[proxyServersName] == 0
			})
		})
	}
}

// TestRetentionEnds checks that only the pod's own Infra and ProxyServer outlive the retention time.
func TestRetentionEnds(t *testing.T) {
	cp := management.Get(t)
	ns := cp.Namespace(t)
	cp.MustApply(t, lab.HostedCluster{Namespace: ns, Name: "demo", BaseDomain: "example.com"}.YAML()+infraIn(ns, "demo", "192.0.2.3")+proxyServerIn(ns, "192.0.2.3"))
	store := run(t, watch.Config{Kubeconfig: cp.Kubeconfig(), Scope: ownScope(ns), Proxies: true, Retention: time.Second})
	await(t, store, "the first sync", func(s *model.Snapshot) bool { return len(s.Clusters) == 1 && s.Clusters[0].Kind == "HostedCluster" })
	disappear(t, cp, ns)
	await(t, store, "the HostedCluster to be removed", func(s *model.Snapshot) bool {
		return clusterNamed(s, ns, "demo") == nil && s.ProxyServer(ns+"/demo") != nil && len(s.Infras) == 1
	})
	awaitKept(t, store, infrasName, proxyServersName)
}

// TestServicesDisappearWhileNoContainerRuns deletes the only Service while the container restarts: its first list is empty.
func TestServicesDisappearWhileNoContainerRuns(t *testing.T) {
	cp := management.Get(t)
	ns := cp.Namespace(t)
	hc := lab.HostedCluster{Namespace: ns, Name: "demo", BaseDomain: "example.com"}
	cp.MustApply(t, lab.Namespaces(hc.ControlPlaneNamespace())+hc.YAML()+infraIn(ns, "demo", "192.0.2.3")+lab.Service(ns, "demo-proxy", 443))
	config := watch.Config{Kubeconfig: cp.Kubeconfig(), Scope: ownScope(ns), File: filepath.Join(t.TempDir(), "snapshot.json")}
	store, err := watch.Open(config, slog.New(slog.NewTextHandler(t.Output(), nil)))
	lab.Must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() { defer close(stopped); store.Run(ctx) }()
	known := func(s *model.Snapshot) bool { return len(s.ServiceIPs(ns+"/demo-proxy")) > 0 }
	await(t, store, "the Service", known)
	stop()
	<-stopped
	lab.Must(t, cp.DeleteYAML(t.Context(), []byte(lab.Service(ns, "demo-proxy", 443))))
	store = run(t, config)
	await(t, store, "the Service after the restart", func(s *model.Snapshot) bool { return store.Status().Synced && known(s) })

	// A deletion that the watch sees takes effect at once.
	cp.MustApply(t, lab.Service(ns, "demo-proxy", 443))
	lab.Poll(t, "the Service to be back", func() bool { return keptBy(store)["services"] == 0 })
	lab.Must(t, cp.DeleteYAML(t.Context(), []byte(lab.Service(ns, "demo-proxy", 443))))
	await(t, store, "the deleted Service to be removed", func(s *model.Snapshot) bool { return !known(s) })
}
