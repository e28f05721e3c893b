//go:build e2e

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// passing are kinds of objects that come and go by themselves.
var passing = []string{"Event", "Lease", "EndpointSlice", "Endpoints", "ControllerRevision", "ReplicaSet", "Pod", "ComponentStatus", "ServiceL2Status", "ConfigurationState"}

// each calls a function with every object of a cluster that does not pass.
func each(t *testing.T, cp *lab.ControlPlane, take func(*unstructured.Unstructured)) {
	t.Helper()
	resources, err := discovery.NewDiscoveryClientForConfigOrDie(cp.RESTConfig()).ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(cp.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range resources {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range group.APIResources {
			if !slices.Contains(r.Verbs, "list") || slices.Contains(passing, r.Kind) {
				continue
			}
			list, err := client.Resource(version.WithResource(r.Name)).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range list.Items {
				take(&list.Items[i])
			}
		}
	}
}

// everything is what there is in a cluster, by kind and name.
func everything(t *testing.T, cp *lab.ControlPlane) []string {
	t.Helper()
	var all []string
	each(t, cp, func(u *unstructured.Unstructured) { all = append(all, identity(u)) })
	slices.Sort(all)
	return all
}

func identity(u *unstructured.Unstructured) string {
	return strings.Join([]string{u.GroupVersionKind().GroupKind().String(), u.GetNamespace(), u.GetName()}, " ")
}

// resourceVersions are those of all that is ours, and of what setup changes of others.
func resourceVersions(t *testing.T, cp *lab.ControlPlane) map[string]string {
	t.Helper()
	versions := map[string]string{}
	each(t, cp, func(u *unstructured.Unstructured) {
		switch u.GetKind() {
		case "Infra", "ProxyServer", "StatefulSet", "Deployment", "PodDisruptionBudget": // which have a status, and a generation
			versions[identity(u)] = fmt.Sprint(u.GetUID(), u.GetGeneration(), u.GetLabels(), u.GetAnnotations())
		default:
			if u.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy || u.GetName() == "coredns" {
				versions[identity(u)] = u.GetResourceVersion()
			}
		}
	})
	return versions
}

// leavesNothing compares what there is with what there was before setup. What is deleted may
// take a moment to go.
func (s *site) leavesNothing(t *testing.T, cp *lab.ControlPlane, before []string) {
	t.Helper()
	await(t, "nothing to be left", func() string {
		var more []string
		for _, o := range everything(t, cp) {
			if !slices.Contains(before, o) && !isOfTheTest(o) {
				more = append(more, o)
			}
		}
		return strings.Join(more, "\n")
	})
}

// isOfTheTest tells what the test itself makes after setup: machines, Pods that go somewhere in
// namespaces named after the test, and a worker, with what a node takes.
func isOfTheTest(o string) bool {
	return strings.HasPrefix(o, "VirtualMachineInstance.kubevirt.io ") || strings.Contains(o, "test") ||
		strings.HasSuffix(o, " "+workerName) || strings.Contains(o, "k8s.cni.cncf.io")
}
