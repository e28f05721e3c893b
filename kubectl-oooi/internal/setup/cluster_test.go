package cmd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

var management = lab.Shared{
	Config: lab.Config{Name: "management", ControllerManager: true, CRDs: clusterCRDs()},
}

// clusterCRDs are those of a management cluster without ours.
func clusterCRDs() []lab.CRDSet {
	return []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.NetworkAttachmentDefinition, lab.OpenShiftDNS, lab.KubeVirt}
}

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	lab.Main(m, &management)
}

// site is a management cluster with a hosted one, and the Infra to set up there. Nothing of ours
// is installed. Each test has a namespace of its own.
type site struct {
	*testing.T

	cp         *lab.ControlPlane
	client     client.Client
	namespace  string
	kubeconfig string
	infra      string // the text of the file
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, cp: management.Get(t)}
	s.kubeconfig, s.namespace = s.cp.Kubeconfig(), s.cp.Namespace(t)
	c, err := client.New(s.cp.RESTConfig(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.client = c
	// Tests have one cluster, and the same addresses: the next is not to find this one's.
	t.Cleanup(func() {
		for _, kind := range []string{"Infra", "ProxyServer"} {
			ours := &unstructured.Unstructured{}
			ours.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind))
			err := c.DeleteAllOf(s.cleanup(), ours, client.InNamespace(s.namespace))
			if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}
	})
	s.apply(lab.HostedCluster{Namespace: s.namespace, Name: "demo", BaseDomain: s.namespace + ".example.com", More: "  infraID: demo-x7k2p"}.YAML() + fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s-demo}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan100, namespace: %[1]s}
spec: {config: '{"cniVersion": "0.3.1", "name": "vlan100", "type": "bridge", "bridge": "br-vlan100"}'}
`, s.namespace))
	s.infra = fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: demo, namespace: %[1]s}
spec:
  hostedClusterRef: {name: demo, namespace: %[1]s}
  networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: vlan100, dnsServers: [203.0.113.53]}
  infraComponents:
    dhcp: {serverIP: 192.0.2.2, rangeStart: 192.0.2.10, rangeEnd: 192.0.2.99}
    dns: {serverIP: 192.0.2.3}
    proxy: {serverIP: 192.0.2.4}
`, s.namespace)
	return s
}

// cleanup is for what is done after the test, whose own context has ended by then.
func (s *site) cleanup() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	s.Cleanup(cancel)
	return ctx
}

func (s *site) apply(yaml string) {
	s.Helper()
	if err := s.cp.ApplyYAML(s.Context(), []byte(yaml)); err != nil {
		s.Fatal(err)
	}
}

// run runs a command line with the Infra in a file, whose name stands for FILE.
func (s *site) run(args ...string) (out, said string, code int) {
	s.Helper()
	file := filepath.Join(s.TempDir(), "infra.yaml")
	if err := os.WriteFile(file, []byte(s.infra), 0o600); err != nil {
		s.Fatal(err)
	}
	line := []string{"kubectl-oooi", "--kubeconfig", s.kubeconfig}
	for _, arg := range args {
		line = append(line, strings.ReplaceAll(arg, "FILE", file))
	}
	var stdout, stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(s.Context(), 2*time.Minute)
	defer cancel()
	code = Main(ctx, line, genericiooptions.IOStreams{In: strings.NewReader(s.infra), Out: &stdout, ErrOut: &stderr})
	return stdout.String(), stderr.String(), code
}

// setup sets up, and returns what it said of objects.
func (s *site) setup(more ...string) string {
	s.Helper()
	_, said, code := s.run(append([]string{"setup", "-f", "FILE", "--wait=false"}, more...)...)
	if code != 0 {
		s.Fatalf("setup ended with %d: %s", code, said)
	}
	return said
}

// refused runs setup, which is to say this and leave nothing behind.
func (s *site) refused(says string, more ...string) {
	s.Helper()
	before := s.everything()
	_, said, code := s.run(append([]string{"setup", "-f", "FILE", "--wait=false"}, more...)...)
	if code != 1 || !strings.Contains(said, says) {
		s.Errorf("setup ended with %d and said %q, want %q", code, said, says)
	}
	s.unchanged(before)
}

// unchanged compares what there is with what there was. What was deleted may take a moment to go.
func (s *site) unchanged(before []string) {
	s.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		after := s.everything()
		if slices.Equal(before, after) {
			return
		}
		if time.Now().After(end) {
			s.Errorf("there was\n%s\nthere is\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
			return
		}
	}
}

// everything is what there is in the cluster that setup could have made or changed, with the
// versions.
func (s *site) everything() []string {
	s.Helper()
	var all []string
	for _, kind := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "Namespace"}, {Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		{Version: "v1", Kind: "ServiceAccount"}, {Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Service"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
		{Group: "apps", Version: "v1", Kind: "StatefulSet"}, {Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}, {Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
		{Group: "k8s.cni.cncf.io", Version: "v1", Kind: "NetworkAttachmentDefinition"},
		{Group: "hostedcluster.densityops.com", Version: "v1alpha1", Kind: "Infra"}, {Group: "hostedcluster.densityops.com", Version: "v1alpha1", Kind: "ProxyServer"},
	} {
		list := &metav1.PartialObjectMetadataList{} // of CRDs the rest is megabytes
		list.SetGroupVersionKind(kind)
		if err := s.client.List(s.Context(), list); err != nil {
			if apierrors.IsNotFound(err) || strings.Contains(err.Error(), "no matches for kind") {
				continue
			}
			s.Fatal(err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			if o.GetNamespace() != "" && !strings.HasPrefix(o.GetNamespace(), s.namespace) && o.GetNamespace() != "oooi-system" {
				continue
			}
			if kind.Kind == "Namespace" && !strings.HasPrefix(o.GetName(), s.namespace) && o.GetName() != "oooi-system" {
				continue
			}
			if o.GetName() == "kube-root-ca.crt" || o.GetName() == "default" || strings.HasPrefix(o.GetName(), "system:") {
				continue
			}
			version := fmt.Sprint(o.GetGeneration())
			if o.GetGeneration() == 0 && kind.Kind != "Namespace" {
				version = o.GetResourceVersion()
			}
			all = append(all, fmt.Sprintf("%s %s/%s %s %s", kind.Kind, o.GetNamespace(), o.GetName(), o.GetUID(), version))
		}
	}
	slices.Sort(all)
	return all
}
