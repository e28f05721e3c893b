package guest_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/guest"
)

// TestScenarios runs the transcripts testdata/*.txt, each with a real API server of a hosted cluster. Neither OLM nor MetalLB run in
// these tests. Their APIs are real, and commands write the statuses that they would write. The first word of a line is one of commands.
// An object is KIND [NAMESPACE/]NAME, with additional fields in YAML.
func TestScenarios(t *testing.T) {
	golden.Files(t, "testdata/*.txt", func(t *testing.T, file string) {
		t.Parallel() // each has its own control plane, and mostly waits
		h := &hosted{T: t, cp: lab.New(t, lab.Config{Name: "hosted"}), wanted: newWanted("demo"), service: &corev1.Service{}}
		h.client = h.cp.Client(t)
		h.cluster = h.connect(h.cp.Kubeconfig())
		golden.Transcript(t, file, func(line string) []string {
			command, arguments, _ := strings.Cut(line, " ")
			run, ok := commands[command]
			if !ok {
				t.Fatalf("unknown command %q", line)
			}
			if text := run(h, arguments); text != "" {
				return []string{ports.ReplaceAllString(text, "127.0.0.1:PORT")}
			}
			return nil
		})
	})
}

var ports = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// hosted is a hosted cluster with an admin client.
type hosted struct {
	*testing.T

	cp       *lab.ControlPlane
	client   client.Client
	cluster  *guest.Cluster
	wanted   *guest.Wanted
	service  *corev1.Service // the apps Service, as read from the cluster
	versions map[string]string
}

// newWanted returns the requirements of an Infra that installs MetalLB.
func newWanted(infra string) *guest.Wanted {
	return &guest.Wanted{
		Infra: types.NamespacedName{Namespace: "clusters", Name: infra}, Service: types.NamespacedName{Namespace: "openshift-ingress", Name: "demo-apps"},
		Apps: &v1alpha1.AppsIngress{Enabled: true, MetalLB: &v1alpha1.AppsIngressMetalLB{
			Install: new(true), LoadBalancerClass: "metallb.io/vlan",
			IPAddressPoolRange: &v1alpha1.AddressRanges{Raw: []byte(`["192.0.2.200", "192.0.2.210-192.0.2.219", "2001:db8::40/124"]`)},
		}},
	}
}

func (h *hosted) connect(kubeconfig string) *guest.Cluster {
	h.Helper()
	data, err := os.ReadFile(kubeconfig)
	h.must(err)
	cluster, err := guest.Connect(data, "")
	h.must(err)
	h.Cleanup(cluster.Close)
	return cluster
}

// must fails the test if there is an error.
func (h *hosted) must(err error) {
	h.Helper()
	lab.Must(h, err)
}

// groups are the API groups and versions of kinds; all others are in MetalLB's group.
var groups = map[string]string{
	"Namespace": "v1", "OperatorGroup": "operators.coreos.com/v1", "Subscription": "operators.coreos.com/v1alpha1",
	"ClusterServiceVersion": "operators.coreos.com/v1alpha1", "Role": "rbac.authorization.k8s.io/v1",
	"ValidatingWebhookConfiguration": "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy": "admissionregistration.k8s.io/v1",
	"ValidatingAdmissionPolicyBinding": "admissionregistration.k8s.io/v1",
}

// installed are the kinds of what is installed.
var installed = []string{"Namespace", "OperatorGroup", "Subscription", "MetalLB", "IPAddressPool", "L2Advertisement"}

// object returns an object of a command as YAML, and without additional fields.
func object(arguments string) (whole string, o *unstructured.Unstructured) {
	kind, rest, _ := strings.Cut(arguments, " ")
	name, fields, _ := strings.Cut(rest, " ")
	o = &unstructured.Unstructured{}
	o.SetAPIVersion(groups[kind])
	if groups[kind] == "" {
		o.SetAPIVersion("metallb.io/v1beta1")
	}
	o.SetKind(kind)
	namespace, inNamespace, namespaced := strings.Cut(name, "/")
	o.SetName(name)
	if namespaced {
		o.SetNamespace(namespace)
		o.SetName(inNamespace)
	}
	text, err := o.MarshalJSON()
	if err != nil {
		panic(err)
	}
	return lab.Merge(string(text), "{"+fields+"}"), o
}

// fault returns a Fault, or "ok".
func fault(f *guest.Fault) string {
	if f == nil {
		return "ok"
	}
	return f.Error()
}

// result returns an error, which must be a Fault, or "ok".
func (h *hosted) result(err error) string {
	if f := (*guest.Fault)(nil); err != nil && !errors.As(err, &f) {
		h.Fatal(err)
	}
	if err != nil {
		return err.Error()
	}
	return "ok"
}

// commands are the commands, by their first word. They return the output.
var commands = map[string]func(h *hosted, arguments string) string{
	// Changes by other clients.
	"crds": func(h *hosted, arguments string) string {
		for set := range strings.FieldsSeq(arguments) {
			h.must(h.cp.InstallCRDs(h.Context(), lab.CRDSet(set)))
		}
		return ""
	},
	"apply": func(h *hosted, arguments string) string {
		text, _ := object(arguments)
		h.must(h.cp.ApplyYAML(h.Context(), []byte(text)))
		return ""
	},
	"status": func(h *hosted, arguments string) string {
		text, _ := object(arguments)
		h.must(h.cp.ApplyStatusYAML(h.Context(), []byte(text)))
		return ""
	},
	"delete": func(h *hosted, arguments string) string {
		text, _ := object(arguments)
		h.must(h.cp.DeleteYAML(h.Context(), []byte(text)))
		return ""
	},
	"reject": func(h *hosted, arguments string) string { // waits until the API server, which loads webhooks asynchronously, rejects an object
		text, _ := object(arguments)
		lab.Poll(h, "a rejection", func() bool {
			err := h.cp.ApplyYAML(h.Context(), []byte(text))
			h.must(h.cp.DeleteYAML(h.Context(), []byte(text)))
			return err != nil
		})
		return ""
	},
	"kill": func(h *hosted, _ string) string { h.must(h.cp.KillAPIServer()); return "" },
	"user": func(h *hosted, arguments string) string { // the client of the cluster from then on; "admin" has all permissions
		kubeconfig := h.cp.Kubeconfig()
		if arguments != "admin" {
			var err error
			kubeconfig, err = h.cp.UserKubeconfig(arguments)
			h.must(err)
		}
		h.cluster = h.connect(kubeconfig)
		return ""
	},

	// The Infra, and the Service that the cluster has for it.
	"infra": func(h *hosted, arguments string) string { h.wanted = newWanted(arguments); return "" },
	"metallb": func(h *hosted, arguments string) string { // merges fields of the Infra's metallb
		if arguments == "null" {
			h.wanted.Apps.MetalLB = nil
			return ""
		}
		text, err := yaml.Marshal(h.wanted.Apps.MetalLB)
		h.must(err)
		h.wanted.Apps.MetalLB = &v1alpha1.AppsIngressMetalLB{}
		merged := strings.TrimSuffix(lab.Merge(string(text), arguments), "---\n")
		h.must(yaml.UnmarshalStrict([]byte(merged), h.wanted.Apps.MetalLB))
		return ""
	},
	"pool": func(h *hosted, arguments string) string { // of the Service's address, in MetalLB's annotation
		key, pool, _ := strings.Cut(arguments, "=")
		h.service.Annotations = map[string]string{key: pool}
		return ""
	},

	// Actions of the Cluster, and what they have left.
	"ensure": func(h *hosted, _ string) string { return fault(h.cluster.EnsureMetalLB(h.Context(), h.wanted)) },
	"await": func(h *hosted, _ string) string {
		lab.Await(h, "MetalLB to be ensured", func() string { return strings.TrimPrefix(fault(h.cluster.EnsureMetalLB(h.Context(), h.wanted)), "ok") })
		return ""
	},
	"announcement": func(h *hosted, _ string) string {
		f, warning := h.cluster.AnnouncementFault(h.Context(), h.wanted, h.service)
		if warning != "" {
			return fault(f) + ", warning: " + warning
		}
		return fault(f)
	},
	"service": func(h *hosted, arguments string) string { // waits until the result contains the arguments
		text := ""
		lab.Await(h, "the result "+arguments, func() string {
			_, err := h.cluster.EnsureService(h.Context(), h.wanted)
			if text = h.result(err); strings.Contains(text, arguments) {
				return ""
			}
			return text
		})
		return text
	},
	"reader": func(h *hosted, _ string) string {
		_, err := h.cluster.EnsureReader(h.Context(), h.wanted)
		return h.result(err)
	},
	"show": func(h *hosted, arguments string) string {
		_, o := object(arguments)
		err := h.client.Get(h.Context(), client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) {
			return "absent"
		}
		h.must(err)
		spec, err := yaml.Marshal(o.Object["spec"])
		h.must(err)
		spec, err = yaml.YAMLToJSON(spec)
		h.must(err)
		return fmt.Sprintf("managed by %q for %q: %s", o.GetLabels()["app.kubernetes.io/managed-by"], o.GetAnnotations()["hostedcluster.densityops.com/infra"], spec)
	},
	"changes": func(h *hosted, _ string) string { // the installed objects that were created, changed or deleted since the last time
		before := h.versions
		h.versions = map[string]string{}
		for _, kind := range installed {
			_, o := object(kind + " x")
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(o.GroupVersionKind())
			if err := h.client.List(h.Context(), list); meta.IsNoMatchError(err) {
				continue
			} else if err != nil {
				h.Fatal(err)
			}
			for _, item := range list.Items {
				h.versions[strings.TrimSuffix(kind+" "+item.GetNamespace(), " ")+"/"+item.GetName()] = item.GetResourceVersion()
			}
		}
		var changed []string
		for name := range maps.All(h.versions) {
			if !strings.HasPrefix(name, "Namespace/kube-") && name != "Namespace/default" && before[name] != h.versions[name] {
				changed = append(changed, name)
			}
		}
		slices.Sort(changed)
		for name := range before {
			if h.versions[name] == "" {
				changed = append(changed, name+" deleted")
			}
		}
		return "changed: " + strings.Join(changed, ", ")
	},
}
