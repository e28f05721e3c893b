package ingress

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// aliasName returns the name of the alias of a source: the Ingress's name, shortened if necessary, and a digest of
// that name and the source. It changes only with these.
func aliasName(v *v1alpha1.VirtualIngress, s source, suffix string) string {
	end := "-" + digest(v.Name+suffix, s.key())
	begin := strings.ReplaceAll(v.Name+suffix, ".", "-")
	begin = strings.TrimRight(begin[:min(len(begin), validation.DNS1035LabelMaxLength-len(end))], "-")
	if begin == "" || begin[0] < 'a' { // the name of a Service must begin with a letter
		begin = strings.TrimRight("v"+begin[:min(len(begin), validation.DNS1035LabelMaxLength-len(end)-1)], "-")
	}
	return begin + end
}

// digest returns ten hexadecimal digits that identify the texts.
func digest(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\n")))
	return hex.EncodeToString(sum[:5])
}

// aliasService returns the alias of a backend: a Service with a fixed name for the Service that the backend
// selects.
func aliasService(v *v1alpha1.VirtualIngress, b *backend) *corev1.Service {
	out := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.Namespace, Name: b.alias, OwnerReferences: []metav1.OwnerReference{ownerOf(v)},
			Annotations: map[string]string{
				v1alpha1.AnnotationVirtualIngress: v.Namespace + "/" + v.Name,
				v1alpha1.AnnotationAliasOf:        b.source.namespace + "/" + b.service.Name,
			},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack),
			PublishNotReadyAddresses: b.service.Spec.PublishNotReadyAddresses,
			// Defaults of the API server, so that compare finds no difference.
			SessionAffinity: corev1.ServiceAffinityNone, InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
		},
	}
	if !mirrorsEndpoints(v, b) {
		out.Spec.Selector = b.service.Spec.Selector
	}
	for _, p := range b.service.Spec.Ports {
		if p.Protocol == "" {
			p.Protocol = corev1.ProtocolTCP // the API server's default, and part of the key by which Apply merges ports
		}
		out.Spec.Ports = append(out.Spec.Ports, corev1.ServicePort{
			Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port, TargetPort: p.TargetPort,
		})
	}
	return out
}

// mirrorsEndpoints reports whether an alias has copies of EndpointSlices instead of a selector: the Service has no
// selector, or is in another namespace.
func mirrorsEndpoints(v *v1alpha1.VirtualIngress, b *backend) bool {
	return b.source.namespace != v.Namespace || len(b.service.Spec.Selector) == 0
}

// mirrorSlice returns a copy of an EndpointSlice for an alias. It omits hints, which are for clients of the
// original Service, and references to objects, which may be in another namespace.
func mirrorSlice(v *v1alpha1.VirtualIngress, aliasName string, in *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.Namespace, Name: fmt.Sprintf("%s-%s", aliasName, digest(in.Namespace, in.Name, string(in.AddressType))),
			Labels: map[string]string{discoveryv1.LabelServiceName: aliasName, discoveryv1.LabelManagedBy: fieldManager},
			Annotations: map[string]string{
				v1alpha1.AnnotationVirtualIngress: v.Namespace + "/" + v.Name,
				v1alpha1.AnnotationAliasOf:        in.Namespace + "/" + in.Labels[discoveryv1.LabelServiceName],
			},
			OwnerReferences: []metav1.OwnerReference{ownerOf(v)},
		},
		AddressType: in.AddressType, Ports: in.Ports, Endpoints: []discoveryv1.Endpoint{},
	}
	for i := range in.Endpoints {
		e := &in.Endpoints[i]
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{
			Addresses: e.Addresses, Conditions: e.Conditions, Hostname: e.Hostname, NodeName: e.NodeName, Zone: e.Zone,
		})
	}
	return out
}

// applyAliases applies the aliases and their endpoints.
func (w *reconciliation) applyAliases(ctx context.Context) error {
	var mirrored []types.NamespacedName
	for _, b := range w.backends {
		if b.alias != "" && b.inUse != "" {
			mirrored = append(mirrored, types.NamespacedName{Namespace: b.source.namespace, Name: b.inUse})
		}
	}
	w.directory.setMirrored(keyOf(w.v), mirrored) // before reading endpoints, so that no change is missed
	var faults []error
	for _, b := range w.backends {
		if b.alias != "" && w.policy.Aliases {
			faults = append(faults, w.applyAlias(ctx, b))
		}
	}
	return errors.Join(faults...)
}

// applyAlias applies an alias and its endpoints.
func (w *reconciliation) applyAlias(ctx context.Context, b *backend) error {
	current := w.directory.service(types.NamespacedName{Namespace: w.v.Namespace, Name: b.alias})
	hasSelector := current != nil && len(current.Spec.Selector) > 0
	if b.service != nil {
		var object client.Object
		if current != nil {
			object = current
		}
		want := aliasService(w.v, b)
		wrote, err := w.writer.apply(ctx, w.v, want, object)
		if err != nil {
			return err
		}
		w.wrote = w.wrote || wrote
		hasSelector = len(want.Spec.Selector) > 0
	}
	return w.mirrorEndpoints(ctx, b, hasSelector)
}

// mirrorEndpoints copies the EndpointSlices of the Service in use to an alias without a selector. If that Service
// does not exist, it deletes the copies, because addresses of pods are reused. It also deletes EndpointSlices that
// Kubernetes' controllers created while the alias had a selector: these controllers do not delete them.
func (w *reconciliation) mirrorEndpoints(ctx context.Context, b *backend, hasSelector bool) error {
	existing, err := w.endpointSlices(ctx, w.v.Namespace, b.alias)
	if err != nil {
		return err
	}
	copies := map[string]*discoveryv1.EndpointSlice{}
	for i := range existing {
		managedBy := existing[i].Labels[discoveryv1.LabelManagedBy]
		switch {
		case isGeneratedFrom(&existing[i], w.v), !hasSelector && managedBy == endpointSliceController:
			copies[existing[i].Name] = &existing[i]
		case !hasSelector && managedBy == mirroringController: // mirrored from Endpoints, which Kubernetes does not delete either
			if err := w.removeEndpoints(ctx, b.alias); err != nil {
				return err
			}
		}
	}
	if !hasSelector && b.inUse != "" {
		originals, err := w.endpointSlices(ctx, b.source.namespace, b.inUse)
		if err != nil {
			return err
		}
		for i := range originals {
			want := mirrorSlice(w.v, b.alias, &originals[i])
			var current client.Object
			if k := copies[want.Name]; k != nil {
				current = k
			}
			if _, err := w.writer.apply(ctx, w.v, want, current); err != nil {
				return err
			}
			delete(copies, want.Name)
		}
	}
	for _, stale := range copies {
		if err := w.writer.remove(ctx, stale); err != nil {
			return err
		}
	}
	return nil
}

// removeEndpoints deletes the Endpoints of an alias.
func (w *reconciliation) removeEndpoints(ctx context.Context, alias string) error {
	endpoints := &metav1.PartialObjectMetadata{}
	endpoints.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Endpoints"))
	endpoints.Namespace, endpoints.Name = w.v.Namespace, alias
	if err := client.IgnoreNotFound(w.client.Delete(ctx, endpoints)); err != nil {
		return fmt.Errorf("deleting the previous Endpoints of alias %s: %w", alias, err)
	}
	return nil
}

// endpointSlices returns the EndpointSlices of a Service. They are not copied, and must not be modified.
func (w *reconciliation) endpointSlices(ctx context.Context, namespace, service string) ([]discoveryv1.EndpointSlice, error) {
	list := &discoveryv1.EndpointSliceList{}
	if err := w.client.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{serviceIndex: service}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the EndpointSlices of Service %s/%s: %w", namespace, service, err)
	}
	return list.Items, nil
}
