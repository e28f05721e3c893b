package objects_test

import (
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/test/lab"
)

// decoders have both ways to decode each kind of object: Decode, and JSON alone.
var decoders = map[string]struct {
	decode func(*unstructured.Unstructured) objects.Object
	byJSON func(*unstructured.Unstructured) (objects.Object, error)
}{
	"HostedCluster": {objects.Decode[objects.HostedCluster], objects.DecodeByJSON[objects.HostedCluster]},
	"Infra":         {objects.Decode[v1alpha1.Infra], objects.DecodeByJSON[v1alpha1.Infra]},
	"ProxyServer":   {objects.Decode[v1alpha1.ProxyServer], objects.DecodeByJSON[v1alpha1.ProxyServer]},
	"Route":         {objects.Decode[objects.Route], objects.DecodeByJSON[objects.Route]},
	"Service":       {objects.Decode[objects.LabelledService], objects.DecodeByJSON[objects.LabelledService]},
	"EndpointSlice": {objects.Decode[objects.EndpointSlice], objects.DecodeByJSON[objects.EndpointSlice]},
}

// TestDecodeEqualsJSON decodes all objects in the repository's YAML files, and variants with other values in random places,
// as Decode and as encoding/json do. The results must be equal.
func TestDecodeEqualsJSON(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	counts, broken := map[string]int{}, 0
	check := func(u *unstructured.Unstructured) {
		d, ok := decoders[u.GetKind()]
		if !ok {
			return
		}
		counts[u.GetKind()]++
		got := d.decode(u)
		want, err := d.byJSON(u)
		if err != nil {
			broken++
			b, ok := got.(*objects.Broken)
			if !ok || !strings.HasSuffix(b.Error, err.Error()) {
				t.Fatalf("decoding %v: got %+v, want the error %v", u.Object, got, err)
			}
			return
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("decoding %v (-want +got):\n%s", u.Object, diff)
		}
	}
	for _, u := range allObjects(t) {
		check(u)
		for range 100 {
			object := runtime.DeepCopyJSON(u.Object)
			object["spec"] = changed(random, object["spec"])
			object["status"] = changed(random, object["status"])
			if metadata := changed(random, object["metadata"]); random.IntN(4) == 0 {
				object["metadata"] = metadata
			}
			check(&unstructured.Unstructured{Object: object})
		}
	}
	for kind := range decoders {
		if counts[kind] == 0 {
			t.Errorf("no %s was decoded", kind)
		}
	}
	if broken == 0 {
		t.Error("every object could be decoded")
	}
}

// allObjects returns the objects in the repository's YAML files.
func allObjects(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for _, dir := range []string{"../model/testdata", "../../manifests/examples", "../../xdsd/internal/envoy/testdata"} {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for document := range strings.SplitSeq(string(text), "\n---") {
				u := &unstructured.Unstructured{}
				if json, err := yaml.YAMLToJSON([]byte(document)); err == nil && u.UnmarshalJSON(json) == nil {
					all = append(all, u)
				}
			}
			return nil
		})
		lab.Must(t, err)
	}
	return all
}

// changed returns a JSON value with another value in a random place.
func changed(random *rand.Rand, value any) any {
	switch value := value.(type) {
	case map[string]any:
		if len(value) > 0 && random.IntN(4) > 0 {
			keys := slices.Sorted(maps.Keys(value))
			key := keys[random.IntN(len(keys))]
			value[key] = changed(random, value[key])
			return value
		}
	case []any:
		if len(value) > 0 && random.IntN(4) > 0 {
			i := random.IntN(len(value))
			value[i] = changed(random, value[i])
			return value
		}
	}
	values := []any{
		nil, "", "x", "2026-01-02T03:04:05Z", "192.0.2.1", true, int64(0), int64(7), int64(-1), int64(1) << 40, 3.0, 0.5, 1e30,
		[]any{}, []any{nil}, []any{"x"}, []any{map[string]any{}}, map[string]any{}, map[string]any{"name": "x"}, map[string]any{"x": nil},
	}
	return values[random.IntN(len(values))]
}

// BenchmarkDecode compares Decode with decoding the object's JSON, as Decode did earlier.
func BenchmarkDecode(b *testing.B) {
	u := &unstructured.Unstructured{}
	lab.Must(b, yaml.Unmarshal([]byte(fullHostedCluster), &u.Object))
	b.Run("Decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			objects.Decode[objects.HostedCluster](u)
		}
	})
	b.Run("JSON", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := objects.DecodeByJSON[objects.HostedCluster](u); err != nil {
				b.Fatal(err)
			}
		}
	})
}
