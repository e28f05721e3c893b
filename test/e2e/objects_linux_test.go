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

// transientKinds are kinds of objects that controllers create and delete by themselves.
var transientKinds = []string{"Event", "Lease", "EndpointSlice", "Endpoints", "ControllerRevision", "ReplicaSet", "Pod", "ComponentStatus", "ServiceL2Status", "ConfigurationState"}

// forEachObject calls a function with every object of a cluster, except transientKinds.
func forEachObject(t *testing.T, cp *lab.ControlPlane, visit func(*unstructured.Unstructured)) {
	t.Helper()
	resources, err := discovery.NewDiscoveryClientForConfigOrDie(cp.RESTConfig()).ServerPreferredResources()
	lab.Must(t, err)
	client, err := dynamic.NewForConfig(cp.RESTConfig())
	lab.Must(t, err)
	for _, group := range resources {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		lab.Must(t, err)
		for _, r := range group.APIResources {
			if !slices.Contains(r.Verbs, "list") || slices.Contains(transientKinds, r.Kind) {
				continue
			}
			list, err := client.Resource(version.WithResource(r.Name)).List(t.Context(), metav1.ListOptions{})
			lab.Must(t, err)
			for i := range list.Items {
				visit(&list.Items[i])
			}
		}
	}
}

// listObjects returns the objects of a cluster as sorted strings "kind.group namespace name".
func listObjects(t *testing.T, cp *lab.ControlPlane) []string {
	t.Helper()
	var all []string
	forEachObject(t, cp, func(u *unstructured.Unstructured) { all = append(all, identity(u)) })
	slices.Sort(all)
	return all
}

func identity(u *unstructured.Unstructured) string {
	return strings.Join([]string{u.GroupVersionKind().GroupKind().String(), u.GetNamespace(), u.GetName()}, " ")
}

// resourceVersions returns the versions of this project's objects, and of other objects that setup changes.
func resourceVersions(t *testing.T, cp *lab.ControlPlane) map[string]string {
	t.Helper()
	versions := map[string]string{}
	forEachObject(t, cp, func(u *unstructured.Unstructured) {
		switch u.GetKind() {
		case "Infra", "ProxyServer", "StatefulSet", "Deployment", "PodDisruptionBudget": // these have a status, which changes the resourceVersion
			versions[identity(u)] = fmt.Sprint(u.GetUID(), u.GetGeneration(), u.GetLabels(), u.GetAnnotations())
		default:
			if u.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy || u.GetName() == "coredns" {
				versions[identity(u)] = u.GetResourceVersion()
			}
		}
	})
	return versions
}

// checkNothingLeft waits until the cluster has no more objects than before setup.
func (s *site) checkNothingLeft(t *testing.T, cp *lab.ControlPlane, before []string) {
	t.Helper()
	lab.Await(t, "objects of setup to be deleted", func() string {
		var more []string
		for _, o := range listObjects(t, cp) {
			if !slices.Contains(before, o) && !createdByTest(o) {
				more = append(more, o)
			}
		}
		return strings.Join(more, "\n")
	})
}

// createdByTest reports whether the test itself creates an object after setup: VMs, client Pods in namespaces
// with the test's name, and the Node of a worker with its objects and Multus' configuration.
func createdByTest(o string) bool {
	return strings.HasPrefix(o, "VirtualMachineInstance.kubevirt.io ") || strings.Contains(o, "test") ||
		strings.HasSuffix(o, " "+workerName) || strings.HasSuffix(o, " multus-cni-config") || strings.Contains(o, "k8s.cni.cncf.io")
}
