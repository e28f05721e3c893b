package v1alpha1

import (
	"encoding/json"
	"math/rand"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

func TestSchemeRecognizesAllKinds(t *testing.T) {
	scheme := newScheme(t)
	for _, kind := range []string{"Infra", "InfraList", "ProxyServer", "ProxyServerList", "VirtualIngress", "VirtualIngressList"} {
		if !scheme.Recognizes(SchemeGroupVersion.WithKind(kind)) {
			t.Errorf("no %s", kind)
		}
	}
	if got := Resource("infras").String(); got != "infras.hostedcluster.densityops.com" {
		t.Errorf("Resource gives %s", got)
	}
}

// TestRoundTrip checks that objects with random field values are unchanged after encoding and decoding, as
// JSON and as the unstructured form that dynamic clients use.
func TestRoundTrip(t *testing.T) {
	scheme := newScheme(t)
	const seed, rounds = 1, 200
	random := rand.New(rand.NewSource(seed))
	filler := fuzzer.FuzzerFor(metafuzzer.Funcs, random, serializer.NewCodecFactory(scheme)).NilChance(0.3).NumElements(1, 3).MaxDepth(20)
	// The field with a JSON value of any type.
	ranges := []string{`"a"`, `["a","b"]`, `3`, `{"a":[null,true]}`}
	for range rounds {
		for _, object := range []runtime.Object{&Infra{}, &ProxyServer{}, &VirtualIngress{}} {
			filler.Fill(object)
			if infra, ok := object.(*Infra); ok && infra.Spec.AppsIngress != nil && infra.Spec.AppsIngress.MetalLB != nil && infra.Spec.AppsIngress.MetalLB.IPAddressPoolRange != nil {
				infra.Spec.AppsIngress.MetalLB.IPAddressPoolRange.Raw = []byte(ranges[random.Intn(len(ranges))])
			}

			data, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			fromJSON := newOfSameKind(object)
			if err := json.Unmarshal(data, fromJSON); err != nil {
				t.Fatal(err)
			}
			checkUnchanged(t, data, fromJSON)

			u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
			if err != nil {
				t.Fatal(err)
			}
			fromUnstructured := newOfSameKind(object)
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u, fromUnstructured, true); err != nil {
				t.Fatal(err)
			}
			checkUnchanged(t, data, fromUnstructured)
		}
	}
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return scheme
}

func newOfSameKind(object runtime.Object) any {
	return reflect.New(reflect.TypeOf(object).Elem()).Interface()
}

// checkUnchanged compares objects as JSON, so that nil and empty fields that encode the same are equal.
func checkUnchanged(t *testing.T, want []byte, got any) {
	t.Helper()
	data, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(data)); diff != "" {
		t.Fatalf("changed (-before +after):\n%s", diff)
	}
}
