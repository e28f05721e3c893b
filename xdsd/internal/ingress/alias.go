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
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Controllers of Kubernetes that manage EndpointSlices, as in the label endpointslice.kubernetes.io/managed-by.
const (
	// endpointSliceController manages the EndpointSlices of Services with a selector.
	endpointSliceController = "endpointslice-controller.k8s.io"
	// mirroringController copies Endpoints of Services without a selector to EndpointSlices.
	mirroringController = "endpointslicemirroring-controller.k8s.io"
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
			// Defaults of the API server, so that they do not differ from the stored ones.
			SessionAffinity: corev1.ServiceAffinityNone, InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
		},
	}
	if !mirrorsEndpoints(v, b) {
		out.Spec.Selector = b.service.Spec.Selector
	}
	for _, p := range b.service.Spec.Ports {
		if p.Protocol == "" {
			p.Protocol = corev1.ProtocolTCP // the API server's default
		}
		out.Spec.Ports = append(out.Spec.Ports, corev1.ServicePort{
			Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port, TargetPort: p.TargetPort,
		})
	}
	return out
}

// mirrorsEndpoints reports whether an alias has copies of EndpointSlices instead of a selector: the Service lacks a
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
	var errs []error
	for _, b := range w.backends {
		if b.alias != "" && w.policy.Aliases {
			errs = append(errs, w.applyAlias(ctx, b))
		}
	}
	return errors.Join(errs...)
}

// applyAlias applies an alias and its endpoints. Without a usable Service the alias stays as it is.
func (w *reconciliation) applyAlias(ctx context.Context, b *backend) error {
	alias := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.v.Namespace, Name: b.alias}}
	w.wanted[describe(alias)] = true
	if b.service == nil {
		err := w.client.Get(ctx, keyOf(alias), alias)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading alias %s: %w", b.alias, err)
		}
	} else {
		alias = aliasService(w.v, b)
		if _, err := w.apply(ctx, alias); err != nil {
			return err
		}
	}
	existing, err := endpointSlices(ctx, w.client, w.v.Namespace, b.alias)
	if err != nil {
		return err
	}
	hasSelector := len(alias.Spec.Selector) > 0
	if !hasSelector && b.inUse != "" {
		if err := w.mirrorEndpoints(ctx, b); err != nil {
			return err
		}
	}
	return w.removeStaleEndpoints(ctx, b.alias, existing, hasSelector)
}

// mirrorEndpoints copies the EndpointSlices of the Service in use to an alias.
func (w *reconciliation) mirrorEndpoints(ctx context.Context, b *backend) error {
	originals, err := endpointSlices(ctx, w.client, b.source.namespace, b.inUse)
	if err != nil {
		return err
	}
	for i := range originals {
		if _, err := w.apply(ctx, mirrorSlice(w.v, b.alias, &originals[i])); err != nil {
			return err
		}
	}
	return nil
}

// removeStaleEndpoints deletes the copies that no longer have an original, because addresses of pods are reused. If
// the alias lacks a selector, it also deletes the endpoints that Kubernetes' controllers created while it had one:
// these controllers do not delete them.
func (w *reconciliation) removeStaleEndpoints(ctx context.Context, alias string, existing []discoveryv1.EndpointSlice, hasSelector bool) error {
	for i := range existing {
		managedBy := existing[i].Labels[discoveryv1.LabelManagedBy]
		switch {
		case w.wanted["EndpointSlice "+existing[i].Name]:
		case isGeneratedFrom(&existing[i], w.v), !hasSelector && managedBy == endpointSliceController:
			if err := w.writer.remove(ctx, &existing[i]); err != nil {
				return err
			}
		case !hasSelector && managedBy == mirroringController: // mirrored from Endpoints, which Kubernetes does not delete either
			if err := w.removeEndpoints(ctx, alias); err != nil {
				return err
			}
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
		return requestError("deleting the previous Endpoints of alias "+alias, err)
	}
	return nil
}
