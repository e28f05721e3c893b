package objects_test

import (
	_ "embed"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// object decodes YAML into the form of an API server's response.
func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	lab.Must(t, yaml.Unmarshal([]byte(text), &u.Object))
	return u
}

// full has all fields that are decoded, among many that are not.
//
//go:embed testdata/hostedcluster.yaml
var fullHostedCluster string

// fullRoute is a Route with fields that are decoded, and others.
//
//go:embed testdata/route.yaml
var fullRoute string

func TestDecode(t *testing.T) {
	for name, o := range map[string]objects.Object{
		"hostedcluster": objects.Decode[objects.HostedCluster](object(t, fullHostedCluster)), "route": objects.Decode[objects.Route](object(t, fullRoute)),
	} {
		data, err := yaml.Marshal(o)
		lab.Must(t, err)
		golden.Check(t, "testdata/"+name+".golden", string(data))
	}
}

func TestDecodedObjectsSurviveTheSnapshotFile(t *testing.T) {
	before := objects.Decode[objects.HostedCluster](object(t, fullHostedCluster))
	data, err := json.Marshal(before)
	lab.Must(t, err)
	after := &objects.HostedCluster{}
	lab.Must(t, json.Unmarshal(data, after))
	if diff := cmp.Diff(before, objects.Object(after)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func TestDecodeKeepsOnlyMetadataInUse(t *testing.T) {
	const metadata = `
metadata:
  name: demo
  namespace: clusters
  uid: 11111111-2222-3333-4444-555555555555
  creationTimestamp: "2026-01-02T03:04:05Z"
  deletionTimestamp: "2026-02-03T04:05:06Z"
  deletionGracePeriodSeconds: 30
  generateName: demo-
  selfLink: /apis/x
  resourceVersion: "123"
  generation: 7
  labels: {a: b}
  annotations: {a: b}
  finalizers: [a/b]
  ownerReferences: [{apiVersion: v1, kind: A, name: b, uid: c}]
  managedFields: [{manager: kubectl, operation: Update, fieldsType: FieldsV1, fieldsV1: {"f:spec": {}}}]
`
	created := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	deleted := metav1.NewTime(time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC))
	want := metav1.ObjectMeta{
		Namespace: "clusters", Name: "demo", UID: "11111111-2222-3333-4444-555555555555",
		CreationTimestamp: created, DeletionTimestamp: &deleted,
	}
	for kind, decode := range map[string]func(*unstructured.Unstructured) objects.Object{
		"HostedCluster": objects.Decode[objects.HostedCluster],
		"Route":         objects.Decode[objects.Route],
		"Service":       objects.Decode[objects.Service],
		"Infra":         objects.Decode[v1alpha1.Infra],
	} {
		t.Run(kind, func(t *testing.T) {
			got := decode(object(t, "apiVersion: x/v1\nkind: "+kind+metadata))
			meta := reflect.ValueOf(got).Elem().FieldByName("ObjectMeta").Interface()
			if diff := cmp.Diff(want, meta); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeInvalidType(t *testing.T) {
	u := object(t, `
apiVersion: hypershift.openshift.io/v1beta1
kind: HostedCluster
metadata:
  name: demo
  namespace: clusters
  uid: 11111111-2222-3333-4444-555555555555
  creationTimestamp: "2026-01-02T03:04:05Z"
  labels: {a: b}
spec: {dns: example.com}
`)
	got, ok := objects.Decode[objects.HostedCluster](u).(*objects.Broken)
	if !ok {
		t.Fatal("a string in place of an object was decoded")
	}
	want := metav1.ObjectMeta{
		Namespace: "clusters", Name: "demo", UID: types.UID("11111111-2222-3333-4444-555555555555"),
		CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
	}
	if diff := cmp.Diff(want, got.ObjectMeta); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	if got.Kind != "HostedCluster" || !strings.HasPrefix(got.Error, "decoding HostedCluster: json: ") || !strings.Contains(got.Error, "spec.dns") {
		t.Errorf("%s: error %q does not name the field", got.Kind, got.Error)
	}
}
