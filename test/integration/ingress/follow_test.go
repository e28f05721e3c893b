package ingress_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

const frontend = "cluster.x-k8s.io/cluster-name: demo-x7k2p, cluster.x-k8s.io/tenant-service-name: frontend, cluster.x-k8s.io/tenant-service-namespace: shop"

// TestExampleVirtualIngress checks that testdata/example.yaml generates the equivalent Ingress, field by
// field.
func TestExampleVirtualIngress(t *testing.T) {
	cp := cluster.Get(t)
	start(t, cp)
	s := newSite(t, cp)
	text, err := os.ReadFile("testdata/example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, u); err != nil {
		t.Fatal(err)
	}
	u.SetNamespace(s.namespace)
	u.SetFinalizers(nil)
	strict := client.WithFieldValidation(s.client, metav1.FieldValidationStrict)
	if err := strict.Create(t.Context(), u); err != nil {
		t.Fatalf("the API server rejects the example: %v", err)
	}
	s.awaitReason("shop", v1alpha1.ReasonNoMatchingService)
	s.service("a1b2c3d4", frontend, "{name: http, port: 80}")
	s.awaitReason("shop", v1alpha1.ReasonResolved)

	// The same YAML, as an Ingress that names the Service.
	want := &networkingv1.Ingress{}
	plain := strings.NewReplacer("hostedcluster.densityops.com/v1alpha1", "networking.k8s.io/v1", "kind: VirtualIngress", "kind: Ingress").Replace(string(text))
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(plain), &fields); err != nil {
		t.Fatal(err)
	}
	setServiceName(fields, "a1b2c3d4")
	named, err := yaml.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(named, want); err != nil {
		t.Fatal(err)
	}
	want.Namespace, want.Name = s.namespace, "shop-generated"
	for _, tracked := range []string{"argocd.argoproj.io/tracking-id", "kubectl.kubernetes.io/last-applied-configuration"} {
		delete(want.Annotations, tracked)
	}
	delete(want.Labels, "app.kubernetes.io/instance")

	got := s.ingress("shop-generated")
	owners := []metav1.OwnerReference{{
		APIVersion: "hostedcluster.densityops.com/v1alpha1", Kind: "VirtualIngress", Name: "shop", UID: s.virtual("shop").UID, Controller: new(true),
	}}
	if diff := cmp.Diff(owners, got.OwnerReferences); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	ownAnnotations := map[string]string{}
	for key, value := range got.Annotations {
		if name, own := strings.CutPrefix(key, v1alpha1.GroupName+"/"); own {
			ownAnnotations[name] = value
			delete(got.Annotations, key)
		}
	}
	if ownAnnotations["virtualingress"] != s.namespace+"/shop" || ownAnnotations["resolution"] != "Resolved" || len(ownAnnotations) != 2 {
		t.Errorf("the Ingress has annotations %v", ownAnnotations)
	}
	// Ignore fields that the API server sets.
	got.TypeMeta = want.TypeMeta
	got.UID, got.ResourceVersion, got.Generation, got.CreationTimestamp, got.ManagedFields = "", "", 0, metav1.Time{}, nil
	got.OwnerReferences = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Ingress (-want +got):\n%s", diff)
	}
}

// setServiceName replaces every matchLabels by a Service's name.
func setServiceName(value any, name string) {
	switch value := value.(type) {
	case map[string]any:
		if _, has := value["matchLabels"]; has {
			delete(value, "matchLabels")
			value["name"] = name
		}
		for _, v := range value {
			setServiceName(v, name)
		}
	case []any:
		for _, v := range value {
			setServiceName(v, name)
		}
	}
}

func TestIngressFollowsTheService(t *testing.T) {
	cp := cluster.Get(t)
	r := start(t, cp)
	s := newSite(t, cp)
	s.apply(virtualIngressYAML("web", "app: web, tier: front", "name: http", ""))
	if message := s.awaitReason("web", v1alpha1.ReasonNoMatchingService); message != "no Service in namespace "+s.namespace+" has the labels app=web,tier=front; the Ingress does not exist yet" {
		t.Errorf("message %q", message)
	}
	if s.ingress("web-generated") != nil {
		t.Error("an Ingress without a Service was created")
	}
	await(t, "the metric of unresolved VirtualIngresses", func() string {
		return differs(r.metric(t, `xdsd_virtual_ingress_unresolved{reason="NoMatchingService"}`), "1")
	})
	s.service("first", "app: web, tier: front", "{name: http, port: 80}")
	s.awaitBackend("web-generated", "first")
	s.awaitReason("web", v1alpha1.ReasonResolved)
	if v := s.virtual("web"); v.Status.IngressName != "web-generated" || len(v.Status.Backends) != 1 || v.Status.Backends[0].Service != "first" {
		t.Errorf("status is %+v", v.Status)
	}

	t.Run("recreated under another name", func(t *testing.T) {
		s.removeService("first")
		if message := s.awaitReason("web", v1alpha1.ReasonNoMatchingService); !strings.HasSuffix(message, "the Ingress names the last valid Service") {
			t.Errorf("message %q", message)
		}
		if got := s.backend("web-generated"); got != "first" {
			t.Errorf("the Ingress names %q meanwhile, want first", got)
		}
		await(t, "the Ingress's resolution annotation", func() string {
			return differs(s.ingress("web-generated").Annotations[v1alpha1.AnnotationResolution], "NoMatchingService")
		})
		s.service("second", "app: web, tier: front", "{name: http, port: 80}")
		s.awaitBackend("web-generated", "second")
		s.awaitReason("web", v1alpha1.ReasonResolved)
	})
	t.Run("labels moved to another Service", func(*testing.T) {
		s.service("third", "app: other", "{name: http, port: 80}")
		s.service("second", "app: other", "{name: http, port: 80}")
		s.awaitReason("web", v1alpha1.ReasonNoMatchingService)
		s.service("third", "app: web, tier: front, more: labels", "{name: http, port: 80}")
		s.awaitBackend("web-generated", "third")
		s.awaitReason("web", v1alpha1.ReasonResolved)
	})
	t.Run("port renamed", func(t *testing.T) {
		s.service("third", "app: web, tier: front", "{name: web, port: 80}")
		if message := s.awaitReason("web", v1alpha1.ReasonPortNotFound); !strings.HasPrefix(message, `Service third has no port http: it has ["80 web"]`) {
			t.Errorf("message %q", message)
		}
		if got := s.backend("web-generated"); got != "third" {
			t.Errorf("the Ingress names %q", got)
		}
		s.apply(virtualIngressYAML("web", "app: web, tier: front", "name: web", ""))
		s.awaitReason("web", v1alpha1.ReasonResolved)
		if port := s.ingress("web-generated").Spec.Rules[0].HTTP.Paths[0].Backend.Service.Port.Name; port != "web" {
			t.Errorf("port is %s, want web", port)
		}
	})
	t.Run("two matches", func(t *testing.T) {
		s.service("fourth", "app: web, tier: front", "{name: web, port: 80}")
		message := s.awaitReason("web", v1alpha1.ReasonMultipleMatches)
		if !strings.Contains(message, "third, fourth: set onMultiple") && !strings.Contains(message, "fourth, third: set onMultiple") {
			t.Errorf("message %q", message)
		}
		if got := s.backend("web-generated"); got != "third" {
			t.Errorf("the Ingress names %q, want third as before", got)
		}
		s.removeService("third")
		s.awaitBackend("web-generated", "fourth")
		s.awaitReason("web", v1alpha1.ReasonResolved)
	})
	await(t, "Events of both objects", func() string { return s.missingEvents("VirtualIngress/web", "Ingress/web-generated") })
	if got := r.metric(t, `controller_runtime_reconcile_total{controller="virtualingress",result="success"}`); got == "" || got == "0" {
		t.Errorf("%q reconciles were counted", got)
	}
}

// missingEvents returns which of the objects has no Event, or "".
func (s *site) missingEvents(objects ...string) string {
	list := &corev1.EventList{}
	if err := s.client.List(s.t.Context(), list, client.InNamespace(s.namespace)); err != nil {
		s.t.Fatal(err)
	}
	have := map[string]bool{}
	for _, e := range list.Items {
		have[e.InvolvedObject.Kind+"/"+e.InvolvedObject.Name] = true
	}
	for _, o := range objects {
		if !have[o] {
			return "no Event of " + o
		}
	}
	return ""
}

func differs(got, want string) string {
	if got != want {
		return "got " + got + ", want " + want
	}
	return ""
}

func TestOnMultiplePolicies(t *testing.T) {
	cp := cluster.Get(t)
	start(t, cp)
	s := newSite(t, cp)
	s.service("z-old", "app: web", "{port: 80}")
	time.Sleep(1100 * time.Millisecond) // creation timestamps have a resolution of seconds
	s.service("a-new", "app: web", "{port: 80}")
	s.apply(virtualIngressYAML("fail", "app: web", "number: 80", ""))
	s.apply(virtualIngressYAML("newest", "app: web", "number: 80", "  onMultiple: Newest"))
	s.apply(virtualIngressYAML("oldest", "app: web", "number: 80", "  onMultiple: Oldest"))
	s.awaitBackend("newest-generated", "a-new")
	s.awaitBackend("oldest-generated", "z-old")
	s.awaitReason("newest", v1alpha1.ReasonResolved)
	s.awaitReason("oldest", v1alpha1.ReasonResolved)
	if message := s.awaitReason("fail", v1alpha1.ReasonMultipleMatches); !strings.Contains(message, "z-old, a-new") || !strings.HasSuffix(message, "the Ingress does not exist yet") {
		t.Errorf("message %q", message)
	}
	if s.ingress("fail-generated") != nil {
		t.Error("an Ingress was created although two Services match")
	}
}

func TestOnNoMatchDelete(t *testing.T) {
	cp := cluster.Get(t)
	start(t, cp)
	s := newSite(t, cp)
	s.service("first", "app: web", "{port: 80}")
	s.apply(virtualIngressYAML("web", "app: web", "number: 80", "  onNoMatch: Delete"))
	s.awaitBackend("web-generated", "first")
	s.removeService("first")
	s.awaitBackend("web-generated", "")
	if message := s.awaitReason("web", v1alpha1.ReasonNoMatchingService); !strings.HasSuffix(message, "the Ingress is deleted until a Service matches") {
		t.Errorf("message %q", message)
	}
	s.service("second", "app: web", "{port: 80}")
	s.awaitBackend("web-generated", "second")
}

// TestBrokenObjectsDoNotAffectOthers applies VirtualIngresses with each kind of fault beside a valid one.
func TestBrokenObjectsDoNotAffectOthers(t *testing.T) {
	cp := cluster.Get(t)
	start(t, cp)
	s := newSite(t, cp)
	s.apply(`{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: taken-generated}, spec: {defaultBackend: {service: {name: theirs, port: {number: 80}}}}}`)
	s.service("first", "app: web", "{port: 80}")
	s.apply(virtualIngressYAML("taken", "app: web", "number: 80", ""))
	s.apply(strings.Replace(virtualIngressYAML("rejected", "app: web", "number: 80", ""), "path: /,", "path: /a//b,", 1))
	s.apply(virtualIngressYAML("good", "app: web", "number: 80", ""))
	s.awaitReason("good", v1alpha1.ReasonResolved)
	if message := s.awaitReason("taken", v1alpha1.ReasonConflict); !strings.HasPrefix(message, "Ingress taken-generated already exists") {
		t.Errorf("message %q", message)
	}
	if message := s.awaitReason("rejected", v1alpha1.ReasonRejected); !strings.Contains(message, "spec.rules[0].http.paths[0].path") {
		t.Errorf("message %q", message)
	}
	foreign := s.ingress("taken-generated")
	if foreign.Spec.DefaultBackend == nil || len(foreign.OwnerReferences) > 0 || len(foreign.Spec.Rules) > 0 {
		t.Errorf("the foreign Ingress was changed: %+v", foreign)
	}
	// When the foreign Ingress is deleted, its name is free.
	s.remove(foreign)
	s.awaitBackend("taken-generated", "first")
	s.awaitReason("taken", v1alpha1.ReasonResolved)
}

func TestDeletedVirtualIngress(t *testing.T) {
	cp := cluster.Get(t)
	start(t, cp)
	s := newSite(t, cp)
	s.service("first", "app: web", "{port: 80}")
	s.apply(virtualIngressYAML("web", "app: web", "number: 80", ""))
	s.awaitBackend("web-generated", "first")
	v := s.virtual("web")
	s.remove(v)
	s.awaitBackend("web-generated", "")

	// A new VirtualIngress of the same name has an Ingress of its own.
	s.apply(virtualIngressYAML("web", "app: web", "number: 80", ""))
	s.awaitBackend("web-generated", "first")
	owners := s.ingress("web-generated").OwnerReferences
	if len(owners) != 1 || owners[0].UID == v.UID || owners[0].UID != s.virtual("web").UID {
		t.Errorf("owners of the new Ingress: %+v", owners)
	}

	// Another suffix renames the Ingress.
	s.apply(virtualIngressYAML("web", "app: web", "number: 80", "  suffix: \"\""))
	s.awaitBackend("web", "first")
	s.awaitBackend("web-generated", "")
}

func TestRemovedFieldsAreRemovedFromTheIngress(t *testing.T) {
	cp := cluster.Get(t)
	start(t, cp)
	s := newSite(t, cp)
	s.service("first", "app: web", "{port: 80}")
	with := strings.Replace(virtualIngressYAML("web", "app: web", "number: 80", "  ingressClassName: nginx\n  tls: [{hosts: [a.example.com], secretName: a}]"), "{name: web}", "{name: web, annotations: {a.example.com/x: one, b.example.com/y: two}}", 1)
	s.apply(with)
	s.awaitBackend("web-generated", "first")

	// Annotations of other managers are kept.
	s.apply(`{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web-generated, annotations: {theirs.example.com/z: three}}}`)
	without := strings.Replace(virtualIngressYAML("web", "app: web", "number: 80", ""), "{name: web}", "{name: web, annotations: {a.example.com/x: one}}", 1)
	s.apply(without)
	await(t, "the Ingress to be updated", func() string {
		i := s.ingress("web-generated")
		if i.Annotations["b.example.com/y"] != "" || i.Spec.IngressClassName != nil || len(i.Spec.TLS) > 0 {
			return "removed fields remain"
		}
		return ""
	})
	if i := s.ingress("web-generated"); i.Annotations["a.example.com/x"] != "one" || i.Annotations["theirs.example.com/z"] != "three" {
		t.Errorf("annotations %v", i.Annotations)
	}
}

// TestAPIServerOutage checks readiness without the API server, and that changes after the outage are served.
func TestAPIServerOutage(t *testing.T) {
	cp := lab.New(t, lab.Config{Name: "outage", ControllerManager: true, CRDs: []lab.CRDSet{lab.Oooi}})
	r := start(t, cp, "--lease-duration", "60s")
	s := newSite(t, cp)
	s.service("first", "app: web", "{port: 80}")
	s.apply(virtualIngressYAML("web", "app: web", "number: 80", ""))
	s.awaitBackend("web-generated", "first")
	if err := cp.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	if status, body := r.get(t, "/readyz"); status != 200 {
		t.Errorf("not ready without the API server: %s", body)
	}
	if err := cp.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.removeService("first")
	s.service("second", "app: web", "{port: 80}")
	s.awaitBackend("web-generated", "second")
	s.awaitReason("web", v1alpha1.ReasonResolved)
}

// TestLastServiceIsKeptAcrossARestart restarts the daemon while two Services match.
func TestLastServiceIsKeptAcrossARestart(t *testing.T) {
	cp := cluster.Get(t)
	r := start(t, cp)
	s := newSite(t, cp)
	s.service("z-first", "app: web", "{port: 80}")
	s.apply(virtualIngressYAML("web", "app: web", "number: 80", ""))
	s.awaitReason("web", v1alpha1.ReasonResolved)
	s.service("a-second", "app: web", "{port: 80}")
	s.awaitReason("web", v1alpha1.ReasonMultipleMatches)
	r.Terminate(t)
	s.apply(virtualIngressYAML("web", "app: web", "number: 80", "  ingressClassName: other"))
	r.Start(t)
	r.awaitLead(t)
	await(t, "the Ingress to be updated", func() string {
		i := s.ingress("web-generated")
		if i.Spec.IngressClassName == nil {
			return "the Ingress has no class"
		}
		return ""
	})
	if got := s.backend("web-generated"); got != "z-first" {
		t.Errorf("the Ingress names %s, want z-first", got)
	}
}
