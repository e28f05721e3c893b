package ingress

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

var defaults = Policy{OnMultiple: v1alpha1.OnMultipleFail, OnNoMatch: v1alpha1.OnNoMatchKeep, Suffix: v1alpha1.DefaultIngressSuffix, Aliases: true, CrossNamespace: true}

// load returns a directory with the Services and Namespaces of a YAML text, and its VirtualIngresses.
func load(t testing.TB, text string) (*directory, []*v1alpha1.VirtualIngress) {
	t.Helper()
	d := newDirectory()
	var all []*v1alpha1.VirtualIngress
	objects, err := lab.ParseYAML([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		data, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		switch o.GetKind() {
		case "Service":
			s := &corev1.Service{}
			if err := yaml.UnmarshalStrict(data, s); err != nil {
				t.Fatal(err)
			}
			d.setService(keyOf(s), s)
		case "Namespace":
			d.setConsent(o.GetName(), o.GetAnnotations()[v1alpha1.AnnotationAllowAliases])
		case kindVirtualIngress:
			v := &v1alpha1.VirtualIngress{}
			if err := yaml.UnmarshalStrict(data, v); err != nil {
				t.Fatal(err)
			}
			v.UID = types.UID("uid-of-" + v.Name)
			all = append(all, v)
		}
	}
	return d, all
}

// TestGolden compares resolutions and generated objects with golden files.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			d, all := load(t, string(text))
			var out strings.Builder
			for _, v := range all {
				describe(t, &out, v, resolve(v, defaults, d))
			}
			golden.Check(t, filepath.Join("testdata", name+".golden"), out.String())
		})
	}
}

// TestExampleIngressIsCurrent compares the generated Ingress with that in manifests/examples/virtual-ingress.
func TestExampleIngressIsCurrent(t *testing.T) {
	const folder = "manifests/examples/virtual-ingress"
	text := slices.Concat(lab.ReadFile(t, folder, "virtualingress.yaml"), []byte("---\n"), lab.ReadFile(t, folder, "cluster.yaml"))
	d, all := load(t, string(text))
	if len(all) != 1 {
		t.Fatalf("got %d VirtualIngresses, want 1", len(all))
	}
	r := resolve(all[0], defaults, d)
	if !r.complete() {
		t.Fatal(r.fault())
	}
	out, err := fieldsOf(translate(all[0], defaults, r, v1alpha1.ReasonResolved))
	if err != nil {
		t.Fatal(err)
	}
	ingress, err := yaml.Marshal(out.Object)
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, filepath.Join("..", "..", "..", folder, "ingress.yaml"), "# The Ingress that 'xdsd ingress' generates from virtualingress.yaml.\n"+string(ingress))
}

// describe writes the resolution of a VirtualIngress and its generated objects.
func describe(t *testing.T, out *strings.Builder, v *v1alpha1.VirtualIngress, r *resolution) {
	t.Helper()
	reason, message := r.fault()
	fmt.Fprintf(out, "# %s/%s: complete %v, remove %v, %s %s\n", v.Namespace, v.Name, r.complete(), r.remove, reason, message)
	var objects []any
	for _, b := range r.backends {
		fmt.Fprintf(out, "#   %s: Service %q, alias %q, %s\n", b.source.key(), b.inUse, b.alias, b.reason)
		if b.alias != "" && b.service != nil {
			objects = append(objects, aliasService(v, b))
		}
	}
	if r.complete() && !r.remove {
		objects = append(objects, translate(v, defaults, r, "Reason"))
	}
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n" + strings.ReplaceAll(strings.ReplaceAll(string(text), "status:\n  loadBalancer: {}\n", ""), "  creationTimestamp: null\n", ""))
	}
}

// FuzzDirectory compares the results of the directory with those of a search through all objects.
func FuzzDirectory(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
	f.Add([]byte("services come and go, and so do those who ask for them"))
	f.Fuzz(func(t *testing.T, ops []byte) {
		d := newDirectory()
		services := map[types.NamespacedName]*corev1.Service{}
		entries := map[types.NamespacedName]source{}
		labels := func(b byte) map[string]string {
			all := map[string]string{}
			for i, key := range []string{"a", "b", "c"} {
				if b>>(2*i)&1 == 1 {
					all[key] = fmt.Sprint(b >> (2*i + 1) & 1)
				}
			}
			return all
		}
		for i := 0; i+2 < len(ops); i += 3 {
			key := types.NamespacedName{Namespace: fmt.Sprint(ops[i+1] & 1), Name: fmt.Sprint("x", ops[i+1]>>1&7)}
			switch ops[i] & 3 {
			case 0, 1:
				now := &corev1.Service{}
				now.Namespace, now.Name, now.Labels = key.Namespace, key.Name, labels(ops[i+2])
				if ops[i]&4 != 0 {
					now = nil
				}
				got := d.setService(key, now)
				want := map[types.NamespacedName]bool{}
				for v, s := range entries {
					was := services[key]
					before, after := was != nil && s.matches(key, was.Labels), now != nil && s.matches(key, now.Labels)
					if (before || after) && (was == nil || now == nil || !sameService(was, now)) {
						want[v] = true
					}
				}
				if len(got) != len(want) || slices.ContainsFunc(got, func(v types.NamespacedName) bool { return !want[v] }) {
					t.Fatalf("got affected VirtualIngresses %v, want %v", got, want)
				}
				if delete(services, key); now != nil {
					services[key] = now
				}
			case 2:
				s := source{namespace: key.Namespace, labels: labels(ops[i+2] | 1)}
				if ops[i]&4 != 0 {
					s = source{namespace: key.Namespace, name: key.Name}
				}
				d.setEntry(key, []source{s}, nil)
				entries[key] = s
			case 3:
				d.forget(key)
				delete(entries, key)
			}
			for _, s := range entries {
				count := 0
				for key, one := range services {
					if s.matches(key, one.Labels) {
						count++
					}
				}
				if found := d.find(s); len(found) != count {
					t.Fatalf("found %d Services, want %d", len(found), count)
				}
			}
		}
		for key := range services {
			d.setService(key, nil)
		}
		for key := range entries {
			d.forget(key)
		}
		if len(d.servicesByKey)+len(d.bySource)+len(d.services)+len(d.entries) > 0 {
			t.Fatal("entries remain after everything was removed")
		}
	})
}
