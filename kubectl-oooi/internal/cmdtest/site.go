// Package cmdtest runs command lines of kubectl oooi in a management cluster.
package cmdtest

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

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/test/lab"
)

// Site is a management cluster with a hosted one, and the Infra to set up there. Nothing of ours
// is installed. Each test has a namespace of its own.
type Site struct {
	*testing.T

	ControlPlane *lab.ControlPlane
	Client       client.Client
	Namespace    string
	Kubeconfig   string
	Infra        string // the text of the file

	main Main
}

// Main runs a command line, and returns the code that it ends with: cmd.Main.
type Main func(ctx context.Context, args []string, streams genericiooptions.IOStreams) int

// CRDs are those of a management cluster without ours.
func CRDs() []lab.CRDSet {
	return []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.NetworkAttachmentDefinition, lab.OpenShiftDNS, lab.KubeVirt}
}

// Management is the configuration of a control plane for New. Install prepares it.
func Management() lab.Config {
	return lab.Config{Name: "management", CRDs: append(CRDs(), lab.Oooi)}
}

// Install has our CRDs as if setup had created them, and starts the controller manager. It comes last because its
// garbage collector looks for new kinds twice a minute: a deletion with dependents would wait for that.
func Install(ctx context.Context, cp *lab.ControlPlane) error {
	crds, err := lab.CRDs(ctx, lab.Oooi)
	if err != nil {
		return err
	}
	c, err := client.New(cp.RESTConfig(), client.Options{})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	label := fmt.Appendf(nil, `{"metadata": {"labels": {%q: %q}}}`, v1alpha1.LabelManagedBy, v1alpha1.ManagedBy)
	for _, crd := range crds {
		if err := c.Patch(ctx, crd, client.RawPatch(types.MergePatchType, label)); err != nil {
			return fmt.Errorf("labelling CRD %s: %w", crd.GetName(), err)
		}
	}
	if err := cp.ApplyYAML(ctx, []byte(SystemNamespace)); err != nil {
		return fmt.Errorf("making the namespace oooi-system: %w", err)
	}
	return cp.StartControllerManager(ctx)
}

// SystemNamespace is control's, as somebody else has created it: teardown leaves it, and need not wait five seconds for
// its end.
const SystemNamespace = "{apiVersion: v1, kind: Namespace, metadata: {name: oooi-system}}"

// On is a site in a control plane where the rest of it is yet to be made.
func On(t *testing.T, cp *lab.ControlPlane, namespace string, main Main) *Site {
	t.Helper()
	c, err := client.New(cp.RESTConfig(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &Site{T: t, ControlPlane: cp, Client: c, Namespace: namespace, Kubeconfig: cp.Kubeconfig(), main: main}
}

// New makes a site in a control plane that other tests have theirs in.
func New(t *testing.T, cp *lab.ControlPlane, main Main) *Site {
	t.Helper()
	s := On(t, cp, cp.Namespace(t), main)
	// Tests share a cluster and use the same addresses: the next test must not find these objects, nor the
	// image of this control.
	t.Cleanup(func() {
		control := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: render.SystemNamespace, Name: render.ControlName}}
		if err := client.IgnoreNotFound(s.Client.Delete(s.AfterTest(), control, client.PropagationPolicy(metav1.DeletePropagationBackground))); err != nil {
			t.Error(err)
		}
		for _, kind := range []string{"Infra", "ProxyServer"} {
			ours := &unstructured.Unstructured{}
			ours.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind))
			err := s.Client.DeleteAllOf(s.AfterTest(), ours, client.InNamespace(s.Namespace))
			if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}
	})
	s.Apply(lab.HostedCluster{Namespace: s.Namespace, Name: "demo", BaseDomain: s.Namespace + ".example.com", More: "  infraID: demo-x7k2p"}.YAML() + fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s-demo}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan100, namespace: %[1]s}
spec: {config: '{"cniVersion": "0.3.1", "name": "vlan100", "type": "bridge", "bridge": "br-vlan100"}'}
`, s.Namespace))
	s.Infra = fmt.Sprintf(`
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
`, s.Namespace)
	return s
}

// AfterTest is for what is done after the test, whose own context has ended by then.
func (s *Site) AfterTest() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	s.Cleanup(cancel)
	return ctx
}

// Apply applies objects.
func (s *Site) Apply(yaml string) {
	s.Helper()
	if err := s.ControlPlane.ApplyYAML(s.Context(), []byte(yaml)); err != nil {
		s.Fatal(err)
	}
}

// Run runs a command line with the Infra in a file, whose name stands for FILE.
func (s *Site) Run(args ...string) (out, said string, code int) {
	s.Helper()
	file := filepath.Join(s.TempDir(), "infra.yaml")
	if err := os.WriteFile(file, []byte(s.Infra), 0o600); err != nil {
		s.Fatal(err)
	}
	line := []string{"kubectl-oooi", "--kubeconfig", s.Kubeconfig}
	for _, arg := range args {
		line = append(line, strings.ReplaceAll(arg, "FILE", file))
	}
	var stdout, stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(s.Context(), 2*time.Minute)
	defer cancel()
	code = s.main(ctx, line, genericiooptions.IOStreams{In: strings.NewReader(s.Infra), Out: &stdout, ErrOut: &stderr})
	return stdout.String(), stderr.String(), code
}

// Setup sets up, and returns what it said of objects.
func (s *Site) Setup(more ...string) string {
	s.Helper()
	_, said, code := s.Run(append([]string{"setup", "-f", "FILE", "--wait=false"}, more...)...)
	if code != 0 {
		s.Fatalf("setup ended with %d: %s", code, said)
	}
	return said
}

// Everything is what there is in the cluster that setup could have made or changed, with the
// versions.
func (s *Site) Everything() []string {
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
		if err := s.Client.List(s.Context(), list); err != nil {
			if apierrors.IsNotFound(err) || strings.Contains(err.Error(), "no matches for kind") {
				continue
			}
			s.Fatal(err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			if o.GetNamespace() != "" && !strings.HasPrefix(o.GetNamespace(), s.Namespace) && o.GetNamespace() != "oooi-system" {
				continue
			}
			if kind.Kind == "Namespace" && !strings.HasPrefix(o.GetName(), s.Namespace) && o.GetName() != "oooi-system" {
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

// Refused runs setup, which is to say this and leave nothing behind.
func (s *Site) Refused(says string, more ...string) {
	s.Helper()
	before := s.Everything()
	_, said, code := s.Run(append([]string{"setup", "-f", "FILE", "--wait=false"}, more...)...)
	if code != 1 || !strings.Contains(said, says) {
		s.Errorf("setup ended with %d and said %q, want %q", code, said, says)
	}
	s.Unchanged(before)
}

// Unchanged compares what there is with what there was. What was deleted may take a moment to go.
func (s *Site) Unchanged(before []string) {
	s.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		after := s.Everything()
		if slices.Equal(before, after) {
			return
		}
		if time.Now().After(end) {
			s.Errorf("there was\n%s\nthere is\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
			return
		}
	}
}
