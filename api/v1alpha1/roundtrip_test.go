package v1alpha1

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"
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
	funcs := fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, func(serializer.CodecFactory) []any {
		return []any{fillAddressRanges}
	})
	const seed, rounds = 1, 200
	filler := randfill.NewWithSeed(seed).NilChance(0.3).NumElements(1, 3).MaxDepth(20).
		Funcs(funcs(serializer.NewCodecFactory(scheme))...)
	for range rounds {
		for _, object := range []runtime.Object{&Infra{}, &ProxyServer{}, &VirtualIngress{}} {
			filler.Fill(object)

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

func newOfSameKind(object runtime.Object) runtime.Object {
	switch object.(type) {
	case *Infra:
		return &Infra{}
	case *VirtualIngress:
		return &VirtualIngress{}
	}
	return &ProxyServer{}
}

// fillAddressRanges sets r to a random value that UnmarshalJSON can produce.
func fillAddressRanges(r *AddressRanges, c randfill.Continue) {
	texts := []any{c.String(0), []string{c.String(0), c.String(0)}, c.Int31(), map[string]any{"a": []any{nil, true}}}
	raw, err := json.Marshal(texts[c.Intn(len(texts))])
	if err != nil {
		panic(err)
	}
	r.Raw = raw
}

// checkUnchanged compares objects as JSON, so that nil and empty fields that encode the same are equal.
func checkUnchanged(t *testing.T, want []byte, got runtime.Object) {
	t.Helper()
	data, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(data)); diff != "" {
		t.Fatalf("changed (-before +after):\n%s", diff)
	}
}
