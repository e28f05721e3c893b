//go:build e2e

package e2e_test

import (
	"context"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patient is a site on the node that can be broken, and mended.
type patient struct {
	*site

	client client.Client
	undo   []func()
}

var (
	setKind        = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"}
	deploymentKind = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	sliceKind      = schema.GroupVersionKind{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"}
	serviceKind    = schema.GroupVersionKind{Version: "v1", Kind: "Service"}
	policyKind     = schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}
	infraKind      = schema.GroupVersionKind{Group: "hostedcluster.densityops.com", Version: "v1alpha1", Kind: "Infra"}
)

func (p *patient) there(t *testing.T, kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	if err := p.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, u); err != nil {
		t.Fatal(err)
	}
	return u
}

// patch changes the spec of an object until it is mended.
func (p *patient) patch(t *testing.T, kind schema.GroupVersionKind, namespace, name, body string) {
	t.Helper()
	before := p.there(t, kind, namespace, name)
	if err := p.client.Patch(t.Context(), before.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		t.Fatal(err)
	}
	p.undo = append(p.undo, func() {
		now := p.there(t, kind, namespace, name)
		was := now.DeepCopy()
		was.Object["spec"] = before.Object["spec"]
		if err := p.client.Patch(t.Context(), was, client.MergeFrom(now)); err != nil {
			t.Fatal(err)
		}
	})
}

// remove deletes an object until it is mended.
func (p *patient) remove(t *testing.T, kind schema.GroupVersionKind, namespace, name string) {
	t.Helper()
	before := p.there(t, kind, namespace, name)
	if err := p.client.Delete(t.Context(), before.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	p.undo = append(p.undo, func() {
		before.SetResourceVersion("")
		before.SetUID("")
		if err := p.client.Create(t.Context(), before); err != nil {
			t.Fatal(err)
		}
	})
}

// found is what doctor finds, without what was skipped.
func (p *patient) found(t *testing.T) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.binary, "--kubeconfig", p.cp.Kubeconfig(), "-n", "clusters", "doctor", "demo", "-o", "json", "--fail-on", "never")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	var diagnosis struct {
		Results []struct{ Code, Status string }
	}
	if err := json.Unmarshal(out, &diagnosis); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var found []string
	for _, r := range diagnosis.Results {
		if r.Status != "pass" && r.Status != "skip" {
			found = append(found, strings.TrimPrefix(r.Code, "OOOI-")+" "+r.Status)
		}
	}
	return found
}

// await waits until doctor finds this, and, a moment later, still does.
func (p *patient) await(t *testing.T, want ...string) {
	t.Helper()
	var found []string
	settled := 0
	for end := time.Now().Add(2 * time.Minute); settled < 3; time.Sleep(500 * time.Millisecond) {
		if found = p.found(t); slices.Equal(found, want) {
			settled++
		} else {
			settled = 0
		}
		if time.Now().After(end) {
			t.Fatalf("doctor finds %q, want %q", found, want)
		}
	}
}

// TestDoctorOnTheNode breaks what runs, and has doctor find the root, and nothing when it is mended.
func TestDoctorOnTheNode(t *testing.T) {
	p := &patient{site: newSite(t)}
	p.setup(t, infra, "--cluster-dns", "print")
	vlanServer(t, p.ca, "shop.apps."+domain)
	c, err := client.New(p.cp.RESTConfig(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p.client = c
	// The cluster's DNS is not told of anything here.
	const always = "DNS-004 warn"
	p.await(t, always)
	for _, tc := range []struct {
		name  string
		fault func(t *testing.T)
		want  []string
	}{
		{"no DNS pod", func(t *testing.T) { p.patch(t, setKind, "clusters", "demo-dns", `{"spec": {"replicas": 0}}`) }, []string{"POD-002 fail", always}},
		{"an image that nobody has", func(t *testing.T) {
			before := p.there(t, setKind, "clusters", "demo-dhcp")
			containers, _, err := unstructured.NestedSlice(before.Object, "spec", "template", "spec", "containers")
			if err != nil {
				t.Fatal(err)
			}
			container, ok := containers[0].(map[string]any)
			if !ok {
				t.Fatalf("a container is a %T", containers[0])
			}
			container["image"] = "localhost/nobody:has"
			body, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": containers}}}})
			if err != nil {
				t.Fatal(err)
			}
			p.patch(t, setKind, "clusters", "demo-dhcp", string(body))
			mend := p.undo[len(p.undo)-1]
			p.undo[len(p.undo)-1] = func() { // a StatefulSet waits for ever for a pod that does not start
				mend()
				p.remove(t, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, "clusters", "demo-dhcp-0")
				p.undo = p.undo[:len(p.undo)-1]
			}
		}, []string{"POD-002 fail", "POD-004 warn", always}},
		{"no control, and an Infra that was edited", func(t *testing.T) {
			p.patch(t, deploymentKind, "oooi-system", "oooi-control", `{"spec": {"replicas": 0}}`)
			p.patch(t, infraKind, "clusters", "demo", `{"spec": {"infraComponents": {"proxy": {"logLevel": "debug"}}}}`)
		}, []string{"CTL-001 fail", always}},
		{"no endpoint of the API server", func(t *testing.T) { p.remove(t, sliceKind, "clusters-demo", "kube-apiserver-1") }, []string{always, "PRX-002 fail"}},
		{"no konnectivity", func(t *testing.T) { p.remove(t, serviceKind, "clusters-demo", "konnectivity-server") }, []string{always, "PRX-002 fail"}},
		{"policies that keep the proxy out", func(t *testing.T) {
			apply(t, p.cp, "%s", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: kas, namespace: clusters-demo}\nspec: {podSelector: {matchLabels: {app: kube-apiserver}}, policyTypes: [Ingress]}\n")
			p.remove(t, policyKind, "clusters-demo", "oooi-clusters-demo-proxy")
		}, []string{always, "PRX-005 fail"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.fault(t)
			p.await(t, tc.want...)
			for _, undo := range slices.Backward(p.undo) {
				undo()
			}
			p.undo = nil
			p.await(t, always)
		})
	}
}
