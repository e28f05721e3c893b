package setup_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/cmd"
	"github.com/densityops/oooi/kubectl-oooi/internal/cmdtest"
	"github.com/densityops/oooi/test/lab"
)

var management = lab.Shared{Config: cmdtest.Management(), Prepare: cmdtest.Install}

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	lab.Main(m, &management)
}

// A site is a management cluster with a hosted cluster and its control plane's namespace, in which setup has not run.
type site struct {
	*cmdtest.Site
}

func newSite(t *testing.T) *site {
	t.Helper()
	return &site{cmdtest.New(t, management.Get(t), cmd.Main)}
}

// TestTranscripts runs setup on sites whose pods do not start: what it refuses, warns of and changes.
func TestTranscripts(t *testing.T) {
	cmdtest.Transcripts(t, "testdata/transcripts", func(t *testing.T) (*cmdtest.Site, map[string]cmdtest.Command) {
		s := newSite(t).Site
		return s, map[string]cmdtest.Command{
			// isolate writes the configuration with which Multus isolates namespaces.
			"isolate": func(string) []string {
				s.CreateForTest(&corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "multus-daemon-config"},
					Data:       map[string]string{"daemon-config.json": model.OpenShiftIsolation.String()},
				})
				return nil
			},
			// system waits until the namespace oooi-system exists.
			"system": func(string) []string {
				s.WaitForSystemNamespace()
				return nil
			},
		}
	})
}

// TestGuide sets up the objects of the earlier operator's guide, in the namespaces and with the Services that it refers to.
func TestGuide(t *testing.T) {
	cmdtest.Transcripts(t, "testdata/guide", func(t *testing.T) (*cmdtest.Site, map[string]cmdtest.Command) {
		s := cmdtest.NewEmpty(t, management.Get(t), "hosted-clusters", cmd.Main)
		hosted := lab.HostedCluster{Namespace: "clusters", Name: "mycluster", BaseDomain: "example.com"}
		objects := hosted.YAML() + string(lab.ReadFile(t, "kubectl-oooi/internal/setup/testdata/guide-network.yaml"))
		for _, namespace := range []string{"hosted-clusters", "clusters", "clusters-mycluster"} {
			s.Apply("{apiVersion: v1, kind: Namespace, metadata: {name: " + namespace + "}}")
		}
		for name, port := range map[string]int{"kube-apiserver": 6443, "oauth-openshift": 6443, "ignition-server-proxy": 443, "konnectivity-server": 8091} {
			objects += fmt.Sprintf("---\n{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: clusters-mycluster}, spec: {ports: [{port: %d}]}}\n", name, port)
		}
		s.Apply(objects)
		t.Cleanup(func() { s.Must(s.ControlPlane.DeleteYAML(s.AfterTest(), []byte(hosted.YAML()))) })
		return s, nil
	})
}

// TestInfraThatIsSetUpAtTheSameTime lets another Infra create an object of the same name after setup has compared its objects.
func TestInfraThatIsSetUpAtTheSameTime(t *testing.T) {
	s := newSite(t)
	role := "oooi-" + s.Namespace + "-demo-proxy"
	other := fmt.Sprintf(`---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: %s, namespace: %[2]s, labels: {app.kubernetes.io/managed-by: oooi}, annotations: {hostedcluster.densityops.com/infra: %[2]s/other}}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
`, role, s.Namespace)
	file := filepath.Join(t.TempDir(), "infra.yaml")
	s.Must(os.WriteFile(file, []byte(s.Infra), 0o600))
	var printed strings.Builder
	stderr := writerFunc(func(text []byte) {
		before := printed.Len() > 0
		if printed.Write(text); !before {
			s.Apply(strings.Replace(s.Infra, "name: demo, namespace: "+s.Namespace+"}\nspec", "name: other, namespace: "+s.Namespace+"}\nspec", 1) + other)
		}
	})
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: stderr}
	code := cmd.Main(t.Context(), []string{"kubectl-oooi", "--kubeconfig", s.Kubeconfig, "setup", "-f", file, "--wait=false"}, streams)
	want := fmt.Sprintf("Role %s/%s exists and belongs to Infra or ProxyServer %[1]s/other: rename the Infra", s.Namespace, role)
	if code != 1 || !strings.Contains(printed.String(), want) {
		t.Errorf("setup exited with %d, stderr %s; want %s", code, printed.String(), want)
	}
}

// A writerFunc is called with everything that is written.
type writerFunc func([]byte)

func (f writerFunc) Write(text []byte) (int, error) {
	f(text)
	return len(text), nil
}

// TestControlCleansUpBeforeItsRoleIsDeleted disables apps ingress. Control, which the test simulates, deletes its
// objects in the hosted cluster, and the reader's Secret last, with the permissions of a Role that setup deletes
// afterwards.
func TestControlCleansUpBeforeItsRoleIsDeleted(t *testing.T) {
	s := newSite(t)
	without := s.Infra
	s.Infra = strings.Replace(s.Infra, "  infraComponents:", "  appsIngress: {enabled: true, hostedClusterRef: {name: demo, namespace: "+s.Namespace+"}, metallb: {loadBalancerClass: example.com/metallb}}\n  infraComponents:", 1)
	s.Setup()
	s.Apply("apiVersion: v1\nkind: Secret\nmetadata: {name: demo-apps-reader, namespace: " + s.Namespace + "}\n")
	role := &rbacv1.Role{}
	role.Namespace, role.Name = s.Namespace, "oooi-"+s.Namespace+"-demo-control"
	roleExists := func() bool {
		err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(role), role)
		if client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
		return err == nil
	}
	if !roleExists() {
		t.Fatal("control has no Role")
	}
	s.Infra = without
	stderr := make(chan string)
	go func() {
		_, all, _ := s.Run("setup", "-f", "FILE", "--wait=false")
		stderr <- all
	}()
	lab.Poll(t, "setup to update the Infra", func() bool {
		infra := s.Object(v1alpha1.SchemeGroupVersion.WithKind("Infra"), "demo")
		enabled, _, _ := unstructured.NestedBool(infra.Object, "spec", "appsIngress", "enabled")
		return !enabled
	})
	time.Sleep(time.Second) // enough for setup to delete the Role if it did not wait
	if !roleExists() {
		t.Error("setup deleted the Role before control cleaned up")
	}
	s.Must(s.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "demo-apps-reader"}}))
	if stderr := <-stderr; !strings.Contains(stderr, "Role "+s.Namespace+"/"+role.Name+" deleted") || roleExists() {
		t.Errorf("the Role was not deleted; stderr %s", stderr)
	}
}
