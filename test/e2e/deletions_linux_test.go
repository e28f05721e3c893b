//go:build e2e

package e2e_test

import (
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// deletions returns deletions of objects, as a wrong prune, a deleted application or a restored etcd deletes them, and restarts of
// containers without these objects. Pods of the Infra must serve on. The last event creates everything again, with movedInfra.
func (s *site) deletions(t *testing.T) []event {
	t.Helper()
	clients, err := dynamic.NewForConfig(s.cp.RESTConfig())
	lab.Must(t, err)
	// remove deletes an object without a deletionTimestamp, unless it has finalizers, and waits until it no longer exists.
	remove := func(t *testing.T, resource schema.GroupVersionResource, namespace, name string) {
		t.Helper()
		client := clients.Resource(resource).Namespace(namespace)
		background := metav1.DeletePropagationBackground
		if err := client.Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		lab.Await(t, resource.Resource+" "+name+" to be deleted", func() string {
			if _, err := client.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return name + " exists"
			}
			return ""
		})
	}
	crds := func(t *testing.T, names ...string) {
		t.Helper()
		for _, name := range names {
			remove(t, schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, "", name)
		}
	}
	return []event{
		{name: "control and its namespace", run: func(t *testing.T) {
			remove(t, schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, "oooi-system", "oooi-control")
			remove(t, schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", "oooi-system")
		}},
		{name: "ProxyServer, Infra and HostedCluster", run: func(t *testing.T) {
			remove(t, v1alpha1.SchemeGroupVersion.WithResource("proxyservers"), "clusters", "demo")
			remove(t, v1alpha1.SchemeGroupVersion.WithResource("infras"), "clusters", "demo")
			remove(t, schema.GroupVersionResource{Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "hostedclusters"}, "clusters", "demo")
		}},
		{name: "CRDs of oooi and HyperShift", run: func(t *testing.T) {
			crds(t, "infras.hostedcluster.densityops.com", "proxyservers.hostedcluster.densityops.com", "hostedclusters.hypershift.openshift.io")
		}},
		// DHCP serves only VMs that it knows.
		{name: "CRDs of VMs", disturbs: []string{"dhcp"}, run: func(t *testing.T) {
			crds(t, "virtualmachineinstances.kubevirt.io", "virtualmachines.kubevirt.io")
		}},
		{name: "containers coredns, coredhcp and xdsd", disturbs: daemons, run: func(t *testing.T) {
			before := s.podUIDs(t)
			s.kill("dns", "coredns")(t)
			s.kill("dhcp", "coredhcp")(t)
			s.kill("proxy", "xdsd")(t)
			if after := s.podUIDs(t); !slices.Equal(after, before) {
				t.Errorf("the pods were %v and are %v", before, after)
			}
		}},
		{name: "everything is created again", disturbs: daemons, closesConnections: true, run: func(t *testing.T) {
			lab.Must(t, s.cp.InstallCRDs(t.Context(), lab.HyperShift, lab.KubeVirt, lab.KubeVirtMachines))
			s.cp.MustApply(t, hostedCluster.YAML(), inVMs.VirtualMachineInstance("worker-1", "02:00:00:00:50:71"), inVMs.VirtualMachineInstance("worker-2", "02:00:00:00:50:72"))
			s.setup(t, movedInfra)
		}},
	}
}

// podUIDs returns the UIDs of the pods of the components on the VLAN.
func (s *site) podUIDs(t *testing.T) (uids []types.UID) {
	t.Helper()
	for _, component := range daemons {
		for _, pod := range s.pods(t, component) {
			uids = append(uids, pod.UID)
		}
	}
	return uids
}
