//go:build e2e

package e2e_test

import (
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// TestDeletionsStopNothingThatServes deletes objects as a wrong prune, a deleted application or a restored etcd does, under
// probes of names, connections and leases. Pods of the Infra must serve on, also after their containers restart. Then it
// creates everything again.
func TestDeletionsStopNothingThatServes(t *testing.T) {
	s := newSite(t)
	vlanServer(t, s.ca, shop)
	s.setup(t, infra)
	v := s.monitor(t)
	clients, err := dynamic.NewForConfig(s.cp.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	// remove deletes an object without a deletionTimestamp, unless it has finalizers, and waits until it no longer exists.
	remove := func(resource schema.GroupVersionResource, namespace, name string) func(*testing.T) {
		return func(t *testing.T) {
			client := clients.Resource(resource).Namespace(namespace)
			background := metav1.DeletePropagationBackground
			if err := client.Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
			await(t, resource.Resource+" "+name+" to be deleted", func() string {
				if _, err := client.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					return name + " exists"
				}
				return ""
			})
		}
	}
	crd := func(names ...string) func(*testing.T) {
		return func(t *testing.T) {
			for _, name := range names {
				remove(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, "", name)(t)
			}
		}
	}
	// pods returns the UIDs of the pods that serve.
	pods := func() (uids []types.UID) {
		for _, component := range []string{"dhcp", "dns", "proxy"} {
			for _, pod := range s.pods(t, component) {
				uids = append(uids, pod.UID)
			}
		}
		return uids
	}
	before := pods()
	for _, step := range []struct {
		name   string
		delete func(*testing.T)
		// restarts are the probes that notice the restart of a container.
		restarts []string
	}{
		{"control", remove(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, "oooi-system", "oooi-control"), nil},
		{"namespace oooi-system", remove(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", "oooi-system"), nil},
		{"ProxyServer", remove(v1alpha1.SchemeGroupVersion.WithResource("proxyservers"), "clusters", "demo"), nil},
		{"Infra", remove(v1alpha1.SchemeGroupVersion.WithResource("infras"), "clusters", "demo"), nil},
		{"HostedCluster", remove(schema.GroupVersionResource{Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "hostedclusters"}, "clusters", "demo"), nil},
		{"CRDs of oooi", crd("infras.hostedcluster.densityops.com", "proxyservers.hostedcluster.densityops.com"), nil},
		{"CRD of HostedClusters", crd("hostedclusters.hypershift.openshift.io"), nil},
		{"CRDs of VMs", crd("virtualmachineinstances.kubevirt.io", "virtualmachines.kubevirt.io"), []string{"leases renewed", "addresses offered"}},
		{"container coredns", s.kill("dns", "coredns"), []string{"names"}},
		{"container coredhcp", s.kill("dhcp", "coredhcp"), []string{"leases renewed", "addresses offered"}},
		{"container xdsd", s.kill("proxy", "xdsd"), nil},
	} {
		t.Run(step.name, func(t *testing.T) {
			v.awaitService(t, "service before the deletion of "+step.name, time.Now())
			began := time.Now()
			step.delete(t)
			v.awaitService(t, "service after the deletion of "+step.name, time.Now())
			for _, p := range v.probes {
				// On a loaded host some seconds of requests fail.
				if lost := p.outage(began); lost > 15*time.Second && !slices.Contains(step.restarts, p.name) {
					t.Errorf("%s: no service for %s", p.name, lost)
				}
			}
			v.add(t, v.row(step.name, began))
		})
	}
	if after := pods(); !slices.Equal(after, before) {
		t.Errorf("the pods were %v and are %v", before, after)
	}

	if err := s.cp.InstallCRDs(t.Context(), lab.HyperShift, lab.KubeVirt, lab.KubeVirtMachines); err != nil {
		t.Fatal(err)
	}
	apply(t, s.cp, "%s", hostedCluster.YAML())
	for name, mac := range map[string]string{"worker-1": "02:00:00:00:50:71", "worker-2": "02:00:00:00:50:72"} {
		apply(t, s.cp, worker, name, mac)
	}
	s.setup(t, infra)
	v.awaitService(t, "service after everything was created again", time.Now())
	for _, p := range v.probes {
		for _, err := range p.wrongAnswers() {
			t.Error(err)
		}
	}
	t.Logf("seconds without service:\n%s", v.table())
}
