package setup

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// Values of Record.Status.
const (
	StatusPending    = "pending"    // setup applies the revision, or was killed
	StatusDeployed   = "deployed"   // setup applied the revision, and it worked
	StatusSuperseded = "superseded" // a later revision was deployed
	StatusFailed     = "failed"     // the revision did not work, and setup restored the deployed one
)

// maxRecords is how many revisions of an Infra are kept.
const maxRecords = 10

// A Record is one revision of an Infra or standalone ProxyServer: what one setup applied. It is stored in a Secret of namespace
// oooi-system. It is not in the Infra's namespace: setup applies its objects with the rights of the user who runs setup, so that
// users who may write it must have these rights, too.
type Record struct {
	// Version is the version of the plugin; see Remembered.Version.
	Version string `json:"version,omitempty"`
	// Flags are the remembered flags of the setup.
	Flags *Remembered `json:"flags,omitempty"`
	// Objects are the objects of the Infra, without those that all Infras share, in the order in which they are applied.
	Objects []map[string]any `json:"objects"`

	// Revision counts the setups of the Infra that changed something, from 1.
	Revision int `json:"-"`
	// Status is one of StatusPending, StatusDeployed, StatusSuperseded and StatusFailed.
	Status string `json:"-"`
	// Message is why the revision failed, or which one it restored.
	Message string `json:"-"`
	// Created is when setup began to apply the revision.
	Created time.Time `json:"-"`

	secret *corev1.Secret
}

// Labels and annotations of the Secret of a record.
const (
	labelStatus        = v1alpha1.GroupName + "/status"
	annotationMessage  = v1alpha1.GroupName + "/message"
	annotationHolder   = v1alpha1.GroupName + "/holder"  // the process that applies a pending revision
	annotationRenewed  = v1alpha1.GroupName + "/renewed" // when it last renewed the record
	recordKey          = "record"                        // of the record in the Secret: JSON, compressed by gzip
	recordNamespace    = render.SystemNamespace
	maxRecordBytes     = 16 << 20 // decompressed
	maxMessageLength   = 1000
	recordSecretPrefix = "oooi.v1."
)

const recordType = corev1.SecretType(v1alpha1.GroupName + "/setup.v1")

// recordPrefix returns the name of a record's Secret without the revision. Names of namespaces and Infras have no dots.
func recordPrefix(infra types.NamespacedName) string {
	return recordSecretPrefix + infra.Namespace + "." + infra.Name + ".v"
}

// A history has the records of an Infra or standalone ProxyServer.
type history struct {
	client  client.Client
	infra   types.NamespacedName
	records []*Record // by revision
}

// listRecords reads the records of an Infra or standalone ProxyServer, without what they contain.
func listRecords(ctx context.Context, c client.Client, infra types.NamespacedName) (*history, error) {
	var list corev1.SecretList
	if err := c.List(ctx, &list, client.InNamespace(recordNamespace), client.MatchingLabels{v1alpha1.LabelInfra: infra.Name, v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}); err != nil {
		return nil, fmt.Errorf("listing the records of %s: %w", infra, err)
	}
	h := &history{client: c, infra: infra}
	for i := range list.Items {
		secret := &list.Items[i]
		number, isRecord := strings.CutPrefix(secret.Name, recordPrefix(infra))
		revision, err := strconv.Atoi(number)
		if !isRecord || err != nil || secret.Type != recordType {
			continue
		}
		h.records = append(h.records, &Record{
			Revision: revision, Status: secret.Labels[labelStatus], Message: secret.Annotations[annotationMessage], Created: secret.CreationTimestamp.Time, secret: secret,
		})
	}
	slices.SortFunc(h.records, func(a, b *Record) int { return a.Revision - b.Revision })
	return h, nil
}

// readHistory reads the records of an Infra or standalone ProxyServer. It returns an error for one that cannot be decoded.
func readHistory(ctx context.Context, c client.Client, infra types.NamespacedName) (*history, error) {
	h, err := listRecords(ctx, c, infra)
	if err != nil {
		return nil, err
	}
	for _, r := range h.records {
		if err := r.decode(r.secret.Data[recordKey]); err != nil {
			return nil, fmt.Errorf("decoding Secret %s/%s: %w; delete the Secret and run setup again", r.secret.Namespace, r.secret.Name, err)
		}
	}
	return h, nil
}

// History returns the records of an Infra or standalone ProxyServer by revision; none if setup has not deployed it.
func History(ctx context.Context, c client.Client, infra types.NamespacedName) ([]*Record, error) {
	h, err := readHistory(ctx, c, infra)
	if err != nil {
		return nil, err
	}
	return h.records, nil
}

// decode reads the contents of a record's Secret.
func (r *Record) decode(data []byte) error {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("decompressing key %s: %w", recordKey, err)
	}
	text, err := io.ReadAll(io.LimitReader(z, maxRecordBytes))
	if err != nil {
		return fmt.Errorf("decompressing key %s: %w", recordKey, err)
	}
	if err := json.Unmarshal(text, r); err != nil {
		return fmt.Errorf("decoding key %s: %w", recordKey, err)
	}
	return nil
}

// encode returns the contents of the record's Secret. They are the same for equal records.
func (r *Record) encode() ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding the record: %w", err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err = z.Write(text)
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("compressing the record: %w", err)
	}
	return b.Bytes(), nil
}

// last returns the latest record of a status, or of any if it is empty; nil if there is none.
func (h *history) last(status string) *Record {
	for _, r := range slices.Backward(h.records) {
		if status == "" || r.Status == status {
			return r
		}
	}
	return nil
}

// add stores a record as the next revision. The error is AlreadyExists if another setup has stored that revision.
func (h *history) add(ctx context.Context, r *Record, annotations map[string]string) error {
	r.Revision, r.Created = 1, time.Now()
	if last := h.last(""); last != nil {
		r.Revision = last.Revision + 1
	}
	data, err := r.encode()
	if err != nil {
		return err
	}
	r.secret = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: recordNamespace, Name: recordPrefix(h.infra) + strconv.Itoa(r.Revision), Annotations: annotations,
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelInfra: h.infra.Name, labelStatus: r.Status},
		},
		Type: recordType, Data: map[string][]byte{recordKey: data},
	}
	if err := h.client.Create(ctx, r.secret, client.FieldOwner(Manager)); err != nil {
		return fmt.Errorf("storing revision %d of %s: %w", r.Revision, h.infra, err)
	}
	h.records = append(h.records, r)
	return nil
}

// set changes the status and message of a record.
func (h *history) set(ctx context.Context, r *Record, status, message string) error {
	if len(message) > maxMessageLength {
		message = message[:maxMessageLength] + "..."
	}
	r.Status, r.Message = status, message
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"labels": map[string]string{labelStatus: status}, "annotations": map[string]any{annotationMessage: message, annotationHolder: nil, annotationRenewed: nil},
	}})
	if err != nil {
		return fmt.Errorf("encoding the status of revision %d: %w", r.Revision, err)
	}
	if err := h.client.Patch(ctx, r.secret, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(Manager)); err != nil {
		return fmt.Errorf("storing that revision %d of %s is %s: %w", r.Revision, h.infra, status, err)
	}
	return nil
}

// deploy marks a record as deployed and earlier ones as superseded, or failed if setup was killed, and deletes the oldest.
func (h *history) deploy(ctx context.Context, r *Record) error {
	if err := h.set(ctx, r, StatusDeployed, r.Message); err != nil {
		return err
	}
	for i, earlier := range h.records {
		var err error
		switch {
		case i < len(h.records)-maxRecords:
			err = client.IgnoreNotFound(h.client.Delete(ctx, earlier.secret))
		case earlier != r && earlier.Status == StatusDeployed:
			err = h.set(ctx, earlier, StatusSuperseded, earlier.Message)
		case earlier != r && earlier.Status == StatusPending:
			err = h.set(ctx, earlier, StatusFailed, "setup was killed")
		}
		if err != nil {
			return fmt.Errorf("updating the records of %s: %w", h.infra, err)
		}
	}
	return nil
}

// drop deletes all records.
func (h *history) drop(ctx context.Context) error {
	for _, r := range h.records {
		if err := client.IgnoreNotFound(h.client.Delete(ctx, r.secret)); err != nil {
			return fmt.Errorf("deleting the records of %s: %w", h.infra, err)
		}
	}
	return nil
}

// objects returns the objects of the record. It returns an error if one is of a kind that setup does not render, or does not
// belong to the Infra: the record was not written by setup.
func (r *Record) objects(infra types.NamespacedName) ([]*unstructured.Unstructured, error) {
	var list []*unstructured.Unstructured
	for _, fields := range r.Objects {
		o := &unstructured.Unstructured{Object: fields}
		if !inventory.Owned(o, infra) {
			return nil, fmt.Errorf("revision %d of %s has %s, which setup does not create for it", r.Revision, infra, inventory.Of(o))
		}
		list = append(list, o.DeepCopy())
	}
	return list, nil
}

// entries returns the inventory entries of the record's objects; none if r is nil.
func (r *Record) entries() []inventory.Entry {
	if r == nil {
		return nil
	}
	var list []inventory.Entry
	for _, fields := range r.Objects {
		list = append(list, inventory.Of(&unstructured.Unstructured{Object: fields}))
	}
	return list
}

// recorded returns objects as they are stored in a record.
func recorded(objects []*unstructured.Unstructured) []map[string]any {
	list := []map[string]any{}
	for _, o := range objects {
		list = append(list, o.Object)
	}
	return list
}

// withoutServerFields returns a copy of an object without fields that the API server and controllers set, so that it
// can be applied.
func withoutServerFields(o *unstructured.Unstructured) *unstructured.Unstructured {
	c := o.DeepCopy()
	delete(c.Object, "status")
	for _, field := range []string{"managedFields", "uid", "resourceVersion", "generation", "creationTimestamp", "selfLink"} {
		unstructured.RemoveNestedField(c.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(c.Object, "metadata", "annotations", "deployment.kubernetes.io/revision")
	unstructured.RemoveNestedField(c.Object, "spec", "template", "metadata", "creationTimestamp")
	return c
}

// legacyObjects are the objects in which versions without records stored the inventory, the flags and the state of a rollout.
func legacyObjects(infra types.NamespacedName) []inventory.Entry {
	return []inventory.Entry{
		{APIVersion: "v1", Kind: "ConfigMap", Namespace: infra.Namespace, Name: infra.Name + "-oooi-inventory"},
		{APIVersion: "v1", Kind: "ConfigMap", Namespace: recordNamespace, Name: infra.Namespace + "." + infra.Name + "-oooi-rollout"},
		{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: infra.Namespace, Name: infra.Name + "-oooi-setup"},
	}
}

// deleteLegacy deletes legacyObjects.
func deleteLegacy(ctx context.Context, c client.Client, infra types.NamespacedName) error {
	for _, e := range legacyObjects(infra) {
		if err := c.Delete(ctx, e.Object()); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return fmt.Errorf("deleting %s: %w", e, err)
		}
	}
	return nil
}
