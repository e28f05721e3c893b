package setup

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
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

// A Record is one revision of an Infra or standalone ProxyServer: the objects of one setup. It is stored in a Secret in namespace
// oooi-system, not in the Infra's namespace: setup applies a record's objects with the permissions of its user, so that only users with
// these permissions may write records.
type Record struct {
	// Flags are the remembered flags of the setup, and its version; nil if another client applied the objects.
	Flags *Remembered `json:"flags,omitempty"`
	// Objects are the objects of the Infra, without objects that all Infras share, in the order in which they are applied.
	Objects []*unstructured.Unstructured `json:"objects"`

	// Revision counts the setups of the Infra that changed something, from 1.
	Revision int `json:"-"`
	// Status is one of StatusPending, StatusDeployed, StatusSuperseded and StatusFailed.
	Status string `json:"-"`
	// Message is why the revision failed, which revision it restored, which process applies it, or why the record cannot be decoded. A
	// record that cannot be decoded lacks flags and objects.
	Message string `json:"-"`
	// Secret is the Secret that has the record.
	Secret *corev1.Secret `json:"-"`

	infra   types.NamespacedName
	invalid error // why the contents of the Secret cannot be decoded
}

const (
	labelStatus       = v1alpha1.GroupName + "/status"
	annotationMessage = v1alpha1.GroupName + "/message"
	recordType        = corev1.SecretType(v1alpha1.GroupName + "/setup.v1")
	recordName        = "oooi.v1.%s.%s.v%d" // of the Secret: namespace and name of the Infra, which have no dots, and revision
	recordKey         = "record"            // in the Secret: JSON, compressed by gzip
	recordNamespace   = render.SystemNamespace
	maxRecords        = 10       // of an Infra
	maxRecordBytes    = 16 << 20 // decompressed
	maxMessageLength  = 1000
)

// Created returns when setup began to apply the revision.
func (r *Record) Created() time.Time { return r.Secret.CreationTimestamp.Time }

// Version returns the version of the plugin that applied the revision; empty if it is unknown, or if r is nil.
func (r *Record) Version() string {
	if r == nil || r.Flags == nil {
		return ""
	}
	return r.Flags.Version
}

// A history has the records of an Infra or standalone ProxyServer.
type history struct {
	client  client.Client
	infra   types.NamespacedName
	records []*Record // by revision
}

// listRecords reads the records with some labels, sorted by revision.
func listRecords(ctx context.Context, c client.Client, labels client.MatchingLabels) ([]*Record, error) {
	var list corev1.SecretList
	if err := c.List(ctx, &list, client.InNamespace(recordNamespace), labels); err != nil {
		return nil, fmt.Errorf("listing the records of revisions: %w", err)
	}
	var records []*Record
	for i := range list.Items {
		secret := &list.Items[i]
		words := strings.Split(secret.Name, ".")
		if secret.Type != recordType || len(words) != 5 {
			continue
		}
		r := &Record{
			Status: secret.Labels[labelStatus], Message: cmp.Or(secret.Annotations[annotationMessage], secret.Annotations[annotationHolder]),
			infra: types.NamespacedName{Namespace: words[2], Name: words[3]}, Secret: secret,
		}
		var text *gzip.Reader
		var err error
		if r.Revision, err = strconv.Atoi(strings.TrimPrefix(words[4], "v")); err == nil {
			text, err = gzip.NewReader(bytes.NewReader(secret.Data[recordKey]))
		}
		if err == nil {
			err = json.NewDecoder(io.LimitReader(text, maxRecordBytes)).Decode(r)
		}
		if err != nil {
			r.invalid = fmt.Errorf("decoding Secret %s/%s: %w; delete the Secret", secret.Namespace, secret.Name, err)
			r.Message, r.Flags, r.Objects = r.invalid.Error(), nil, nil
		}
		records = append(records, r)
	}
	slices.SortFunc(records, func(a, b *Record) int { return a.Revision - b.Revision })
	return records, nil
}

// History returns the records of an Infra or standalone ProxyServer by revision; none if setup has not deployed it.
func History(ctx context.Context, c client.Client, infra types.NamespacedName) ([]*Record, error) {
	records, err := listRecords(ctx, c, client.MatchingLabels{v1alpha1.LabelInfra: infra.Name})
	return slices.DeleteFunc(records, func(r *Record) bool { return r.infra != infra }), err
}

// readHistory is History with its client.
func readHistory(ctx context.Context, c client.Client, infra types.NamespacedName) (*history, error) {
	records, err := History(ctx, c, infra)
	return &history{client: c, infra: infra, records: records}, err
}

// last returns the latest record with a status, or with any status if status is empty; nil if there is none.
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
	r.Revision, r.infra = 1, h.infra
	if last := h.last(""); last != nil {
		r.Revision = last.Revision + 1
	}
	var data bytes.Buffer
	z := gzip.NewWriter(&data)
	if err := errors.Join(json.NewEncoder(z).Encode(r), z.Close()); err != nil {
		return fmt.Errorf("encoding revision %d of %s: %w", r.Revision, h.infra, err)
	}
	r.Secret = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: recordNamespace, Name: fmt.Sprintf(recordName, h.infra.Namespace, h.infra.Name, r.Revision), Annotations: annotations,
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelInfra: h.infra.Name, labelStatus: r.Status},
		},
		Type: recordType, Data: map[string][]byte{recordKey: data.Bytes()},
	}
	err := h.client.Create(ctx, r.Secret, client.FieldOwner(Manager))
	if apierrors.IsAlreadyExists(err) {
		now, listErr := History(ctx, h.client, h.infra)
		if listErr == nil && !slices.ContainsFunc(now, func(other *Record) bool { return other.Revision == r.Revision }) {
			//nolint:staticcheck // a kind begins with a capital
			return fmt.Errorf("Secret %s/%s exists and is not a record of %s; delete it", recordNamespace, r.Secret.Name, h.infra)
		}
	}
	if err != nil {
		return fmt.Errorf("storing revision %d of %s: %w", r.Revision, h.infra, err)
	}
	h.records = append(h.records, r)
	return nil
}

// set changes the status and message of a record, and ends its lock.
func (h *history) set(ctx context.Context, r *Record, status, message string) error {
	if len(message) > maxMessageLength {
		message = message[:maxMessageLength] + "..."
	}
	r.Status, r.Message = status, message
	before := r.Secret.DeepCopy()
	r.Secret.Labels[labelStatus], r.Secret.Annotations = status, map[string]string{annotationMessage: message}
	if err := h.client.Patch(ctx, r.Secret, client.MergeFrom(before), client.FieldOwner(Manager)); err != nil {
		return fmt.Errorf("storing status %[3]s of revision %[1]d of %[2]s: %[4]w", r.Revision, h.infra, status, err)
	}
	return nil
}

// deploy marks the last record as deployed and earlier ones as superseded, or failed if setup was killed.
func (h *history) deploy(ctx context.Context) error {
	last := len(h.records) - 1
	errs := []error{h.set(ctx, h.records[last], StatusDeployed, h.records[last].Message)}
	for _, r := range h.records[:last] {
		switch r.Status {
		case StatusDeployed:
			errs = append(errs, h.set(ctx, r, StatusSuperseded, r.Message))
		case StatusPending:
			errs = append(errs, h.set(ctx, r, StatusFailed, r.Message))
		}
	}
	return errors.Join(errs...)
}

// prune deletes all records except the last maxRecords, the last deployed and the last superseded one.
func (h *history) prune(ctx context.Context) error {
	var errs []error
	for _, r := range h.records[:max(0, len(h.records)-maxRecords)] {
		if r != h.last(StatusDeployed) && r != h.last(StatusSuperseded) {
			errs = append(errs, client.IgnoreNotFound(h.client.Delete(ctx, r.Secret)))
		}
	}
	return errors.Join(errs...)
}

// drop deletes all records.
func (h *history) drop(ctx context.Context) error {
	for _, r := range h.records {
		if err := client.IgnoreNotFound(h.client.Delete(ctx, r.Secret)); err != nil {
			return fmt.Errorf("deleting revision %d of %s: %w", r.Revision, h.infra, err)
		}
	}
	return nil
}

// objects returns the objects of the record. It returns an error if an object's kind is not rendered by setup, or if an object does not
// belong to the Infra: setup did not write the record.
func (r *Record) objects() ([]*unstructured.Unstructured, error) {
	if r.invalid != nil {
		return nil, r.invalid
	}
	for _, o := range r.Objects {
		if !inventory.Owned(o, r.infra) {
			return nil, fmt.Errorf("revision %d of %s contains %s, which setup does not create", r.Revision, r.infra, inventory.Of(o))
		}
	}
	return r.Objects, nil
}

// entries returns the inventory entries of the record's objects; none if r is nil.
func (r *Record) entries() []inventory.Entry {
	if r == nil {
		return nil
	}
	return entriesOf(r.Objects)
}

// entriesOf returns the inventory entries of objects.
func entriesOf(objects []*unstructured.Unstructured) []inventory.Entry {
	var list []inventory.Entry
	for _, o := range objects {
		list = append(list, inventory.Of(o))
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
