// Package cmdtest runs command lines of kubectl oooi against a management cluster of the lab, for tests.
package cmdtest

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/release"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/test/lab"
)

// A Site is a management cluster with a hosted cluster, and the Infra to set up there. Setup has not run. Each test
// has a separate namespace.
type Site struct {
	*testing.T

	ControlPlane *lab.ControlPlane
	Client       client.Client
	Namespace    string
	Kubeconfig   string
	Infra        string // YAML, which Run writes to a file
	Bridge       string // of the VLAN; unique, because sites use the same addresses

	main Main
}

// The tests run the plugin of a release, which has an image.
func init() {
	release.Image = release.Repository + "@sha256:" + strings.Repeat("0", 64)
}

// Main runs a command line and returns its exit code. It is cmd.Main, which this package cannot import because the
// tests of package cmd import it.
type Main func(ctx context.Context, args []string, streams genericiooptions.IOStreams) int

// CRDs returns the CRDs of a management cluster, without oooi's.
func CRDs() []lab.CRDSet {
	return []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.NetworkAttachmentDefinition, lab.OpenShiftDNS, lab.KubeVirt}
}

// Management returns the configuration of a control plane for New. Install must prepare the control plane.
func Management() lab.Config {
	return lab.Config{Name: "management", CRDs: append(CRDs(), lab.Oooi)}
}

// Install labels oooi's CRDs as if setup had created them, creates the namespace oooi-system, and starts the controller
// manager last: its garbage collector discovers new kinds only twice a minute, which would delay deletions with
// dependents.
func Install(ctx context.Context, cp *lab.ControlPlane) error {
	crds, err := lab.CRDs(ctx, lab.Oooi)
	if err != nil {
		return err
	}
	c, err := client.New(cp.RESTConfig(), client.Options{})
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	label := fmt.Appendf(nil, `{"metadata": {"labels": {%q: %q}}}`, v1alpha1.LabelManagedBy, v1alpha1.ManagedBy)
	for _, crd := range crds {
		if err := c.Patch(ctx, crd, client.RawPatch(types.MergePatchType, label)); err != nil {
			return fmt.Errorf("labelling CRD %s: %w", crd.GetName(), err)
		}
	}
	if err := cp.ApplyYAML(ctx, []byte(SystemNamespace)); err != nil {
		return fmt.Errorf("creating the namespace oooi-system: %w", err)
	}
	return cp.StartControllerManager(ctx)
}

// SystemNamespace is the manifest of control's namespace, without the label of setup, so that teardown keeps the
// namespace. Deleting it would take five seconds in each test.
const SystemNamespace = "{apiVersion: v1, kind: Namespace, metadata: {name: oooi-system}}"

// NewEmpty returns a site without a hosted cluster and without an Infra.
func NewEmpty(t *testing.T, cp *lab.ControlPlane, namespace string, main Main) *Site {
	t.Helper()
	c, err := client.New(cp.RESTConfig(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &Site{T: t, ControlPlane: cp, Client: c, Namespace: namespace, Kubeconfig: cp.Kubeconfig(), main: main}
}

// New creates a site in a control plane that tests share.
func New(t *testing.T, cp *lab.ControlPlane, main Main) *Site {
	t.Helper()
	s := NewEmpty(t, cp, cp.Namespace(t), main)
	s.Bridge = "br-" + s.Namespace[max(0, len(s.Namespace)-6):]
	// Tests share a cluster and use the same addresses: the next test must not find these objects, nor control with
	// its image, nor the remembered flags.
	t.Cleanup(func() {
		s.DeleteRecords()
		control := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: render.SystemNamespace, Name: render.ControlName}}
		if err := client.IgnoreNotFound(s.Client.Delete(s.AfterTest(), control, client.PropagationPolicy(metav1.DeletePropagationBackground))); err != nil {
			t.Error(err)
		}
		for _, kind := range []string{"Infra", "ProxyServer"} {
			list := &unstructured.Unstructured{}
			list.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind))
			err := s.Client.DeleteAllOf(s.AfterTest(), list, client.InNamespace(s.Namespace))
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
spec: {config: '{"cniVersion": "0.3.1", "name": "vlan100", "type": "bridge", "bridge": "%[2]s"}'}
`, s.Namespace, s.Bridge))
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

// AfterTest returns a context for cleanups, which run after the context of the test has ended. It ends after a minute.
func (s *Site) AfterTest() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	s.Cleanup(cancel)
	return ctx
}

// Apply applies the objects of a YAML text.
func (s *Site) Apply(yaml string) {
	s.Helper()
	s.Must(s.ControlPlane.ApplyYAML(s.Context(), []byte(yaml)))
}

// Run runs a command line with the Infra in a file and on standard input. It replaces FILE in the arguments by the
// name of the file.
func (s *Site) Run(args ...string) (out, stderr string, code int) {
	s.Helper()
	file := filepath.Join(s.TempDir(), "infra.yaml")
	s.Must(os.WriteFile(file, []byte(s.Infra), 0o600))
	line := []string{"kubectl-oooi", "--kubeconfig", s.Kubeconfig}
	for _, arg := range args {
		line = append(line, strings.ReplaceAll(arg, "FILE", file))
	}
	var outBuffer, errBuffer bytes.Buffer
	ctx, cancel := context.WithTimeout(s.Context(), 2*time.Minute)
	defer cancel()
	code = s.main(ctx, line, genericiooptions.IOStreams{In: strings.NewReader(s.Infra), Out: &outBuffer, ErrOut: &errBuffer})
	return outBuffer.String(), errBuffer.String(), code
}

// NetworkOf returns the name of the NetworkAttachmentDefinition of a StatefulSet's pods.
func (s *Site) NetworkOf(set string) string {
	s.Helper()
	return render.NetworkOf(s.Object(appsv1.SchemeGroupVersion.WithKind("StatefulSet"), set))
}

// ConfigOf returns the name of the ConfigMap with the configuration of a StatefulSet's pods.
func (s *Site) ConfigOf(set string) string {
	s.Helper()
	o := &appsv1.StatefulSet{}
	s.Get(set, o)
	for _, v := range o.Spec.Template.Spec.Volumes {
		if v.ConfigMap != nil {
			return v.ConfigMap.Name
		}
	}
	s.Fatalf("the pods of %s lack a ConfigMap", set)
	return ""
}

// Records returns the Secrets in which setup has stored the revisions of the Infra.
func (s *Site) Records() []corev1.Secret {
	s.Helper()
	var list corev1.SecretList
	s.Must(s.Client.List(s.AfterTest(), &list, client.InNamespace(render.SystemNamespace)))
	return slices.DeleteFunc(list.Items, func(o corev1.Secret) bool { return !strings.HasPrefix(o.Name, "oooi.v1."+s.Namespace+".demo.v") })
}

// DeleteRecords deletes the Records.
func (s *Site) DeleteRecords() {
	s.Helper()
	for _, o := range s.Records() {
		s.Must(s.Client.Delete(s.AfterTest(), &o))
	}
}

// RecordData returns the data of a record's Secret with a JSON text.
func (s *Site) RecordData(text string) map[string][]byte {
	s.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(text))
	s.Must(errors.Join(err, z.Close()))
	return map[string][]byte{"record": b.Bytes()}
}

// Setup runs setup without waiting for components, and returns its standard error: a line for each changed object.
func (s *Site) Setup(more ...string) string {
	s.Helper()
	_, stderr, code := s.Run(append([]string{"setup", "-f", "FILE", "--wait=false"}, more...)...)
	if code != 0 {
		s.Fatalf("setup exited with %d: %s", code, stderr)
	}
	return stderr
}

// Everything lists the objects in the cluster that setup could have created or changed, each as kind, name, UID and
// generation or, if the kind has none, resource version.
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
		{Group: "hostedcluster.densityops.com", Version: "v1alpha1", Kind: "Infra"},
		{Group: "hostedcluster.densityops.com", Version: "v1alpha1", Kind: "ProxyServer"},
	} {
		list := &metav1.PartialObjectMetadataList{} // without the spec: CRDs are megabytes
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

// Expect runs a command line, in which words are separated by spaces, and checks its exit code, and that its standard error
// contains texts. $NS stands for the site's namespace in all of these.
func (s *Site) Expect(code int, line string, texts ...string) {
	s.Helper()
	expand := strings.NewReplacer("$NS", s.Namespace)
	line = expand.Replace(line)
	out, stderr, got := s.Run(strings.Fields(line)...)
	if got != code {
		s.Errorf("%s exited with %d, want %d; stdout\n%s\nstderr\n%s", line, got, code, out, stderr)
	}
	for _, text := range texts {
		if text = expand.Replace(text); !strings.Contains(stderr, text) {
			s.Errorf("%s did not print %q; stderr\n%s", line, text, stderr)
		}
	}
}

// Refused runs setup and checks that it fails with a message that contains want, and changes no object.
func (s *Site) Refused(want string, more ...string) {
	s.Helper()
	before := s.Everything()
	_, stderr, code := s.Run(append([]string{"setup", "-f", "FILE", "--wait=false"}, more...)...)
	if code != 1 || !strings.Contains(stderr, want) {
		s.Errorf("setup exited with %d, stderr %q, want %q", code, stderr, want)
	}
	s.Unchanged(before)
}

// Unchanged checks that Everything returns the same as before. It waits up to 30 seconds for deletions.
func (s *Site) Unchanged(before []string) {
	s.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		diff := cmp.Diff(before, s.Everything())
		if diff == "" {
			return
		}
		if time.Now().After(end) {
			s.Errorf("objects changed (-before +after):\n%s", diff)
			return
		}
	}
}
