package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// firstUser returns the first object of some kinds in a namespace for which uses is true, followed by does; empty if there is none.
// An empty namespace means all namespaces. If listing a kind is forbidden, it returns that an object of this kind is possibly a user.
func firstUser(
	ctx context.Context, c client.Client, namespace, does string, uses func(*unstructured.Unstructured) bool, kinds ...schema.GroupVersionKind,
) (string, error) {
	user := ""
	for _, kind := range kinds {
		err := (&read.Reader{Client: c}).In(ctx, kind, namespace, func(u *unstructured.Unstructured) {
			if user == "" && uses(u) {
				user = inventory.Of(u).String() + " " + does
			}
		})
		if apierrors.IsForbidden(err) {
			return "possibly some " + kind.Kind + " (listing is forbidden) " + does, nil
		}
		if err != nil && !errors.Is(err, read.ErrNotServed) || user != "" {
			return user, err
		}
	}
	return "", nil
}

// networkUser returns why a VM network that setup created must be kept: another Infra or a VM uses it, or listing them is forbidden. It
// is empty if the network is unused, and for all other objects.
func networkUser(ctx context.Context, c client.Client, o *unstructured.Unstructured, infra types.NamespacedName) (string, error) {
	if o.GetKind() != read.AttachmentKind.Kind || o.GetLabels()[v1alpha1.LabelComponent] != render.NetworkComponent {
		return "", nil
	}
	key := o.GetNamespace() + "/" + o.GetName()
	return firstUser(ctx, c, "", "uses it", func(u *unstructured.Unstructured) bool {
		if u.GetKind() == read.MachineKind.Kind {
			return len(read.MachineInterfaces(u, nil, key)) > 0
		}
		other, ok := objects.Decode[v1alpha1.Infra](u).(*v1alpha1.Infra)
		return ok && keyOf(other) != infra.String() && other.Spec.NetworkConfig.NetworkAttachment(other.Namespace).String() == key
	}, read.InfraKind, read.MachineKind)
}

// handOver removes oooi's labels and annotation from a network that is kept, so that setup no longer manages it.
func handOver(ctx context.Context, c client.Client, e inventory.Entry) error {
	marks := fmt.Appendf(nil, `{"metadata": {"labels": {%q: null, %q: null, %q: null, "app.kubernetes.io/part-of": null}, "annotations": {%q: null}}}`,
		v1alpha1.LabelManagedBy, v1alpha1.LabelInfra, v1alpha1.LabelComponent, v1alpha1.AnnotationInfra)
	if err := c.Patch(ctx, e.Object(), client.RawPatch(types.MergePatchType, marks)); err != nil {
		return fmt.Errorf("removing setup's labels from %s: %w", e, err)
	}
	return nil
}

// addShared adds the objects that all Infras of a cluster share: the VirtualIngress controller's objects if VirtualIngress is set and,
// with the last Infra, control, its namespace, and the CRDs if CRDs is set. It adds a note for each kept Deployment, namespace and CRD.
func (t *Teardown) addShared(ctx context.Context) error {
	isKept := func(u *unstructured.Unstructured) bool { return !slices.Contains(t.list, inventory.Of(u)) }
	user, err := firstUser(ctx, t.Client, "", "uses them", isKept, read.InfraKind, read.ProxyServerKind)
	if err != nil {
		return err
	}
	if user != "" {
		t.Notes = append(t.Notes, "the objects that all Infras share are kept: "+user)
	}
	files, err := render.Overlay(nil, render.Images{}, nil, render.BaseDir, render.VirtualIngressDir)
	if err != nil {
		return err
	}
	shared, _, err := render.Build(files)
	if err != nil {
		return err
	}
	var kept []inventory.Entry
	for _, o := range slices.Backward(shared) { // the namespace after its objects
		if user != "" && (!t.VirtualIngress || !belongsToIngress(o)) || o.GetKind() == "CustomResourceDefinition" && !t.CRDs {
			continue
		}
		u, err := current(ctx, t.Client, o)
		if err != nil {
			return err
		}
		if u == nil {
			continue
		}
		e := inventory.Of(u)
		reason, err := t.keepReason(ctx, u, kept)
		switch {
		case err != nil:
			return err
		case reason == "":
			t.list = append(t.list, e)
			continue
		case isDefinition(o) || o.GetKind() == "Deployment":
			t.Notes = append(t.Notes, fmt.Sprintf("%s is kept: %s", e, reason))
		}
		kept = append(kept, e)
	}
	return nil
}

// belongsToIngress reports whether a shared object belongs to the VirtualIngress controller.
func belongsToIngress(o *unstructured.Unstructured) bool {
	return strings.HasPrefix(o.GetName(), "oooi-ingress")
}

// keepReason returns why a shared object is kept, or how to delete it; empty if it is deleted. kept are objects that are kept.
func (t *Teardown) keepReason(ctx context.Context, u *unstructured.Unstructured, kept []inventory.Entry) (string, error) {
	switch {
	case u.GetLabels()[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy:
		return "setup did not create it", nil
	case belongsToIngress(u) && !t.VirtualIngress:
		return "use --virtual-ingress to delete it", nil
	case u.GetKind() == "Namespace":
		if at := slices.IndexFunc(kept, func(e inventory.Entry) bool { return e.Namespace == u.GetName() }); at >= 0 {
			return kept[at].String() + " is kept", nil
		}
		return firstUser(ctx, t.Client, u.GetName(), "exists in it and is not managed by setup", func(o *unstructured.Unstructured) bool {
			return o.GetLabels()[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy && !slices.Contains(defaultObjects, o.GetKind()+" "+o.GetName())
		}, foreignKinds...)
	case strings.HasPrefix(u.GetName(), "virtualingresses.") && !t.VirtualIngress:
		return firstUser(ctx, t.Client, "", "exists, and its Ingress would be deleted with it; use --virtual-ingress to delete both",
			func(*unstructured.Unstructured) bool { return true }, v1alpha1.SchemeGroupVersion.WithKind("VirtualIngress"))
	}
	return "", nil
}

// foreignKinds are kinds of objects for which a namespace is kept, except defaultObjects, which Kubernetes and OpenShift create in every
// namespace, as "Kind name".
var (
	foreignKinds = []schema.GroupVersionKind{
		{Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "apps", Version: "v1", Kind: "StatefulSet"}, {Group: "apps", Version: "v1", Kind: "DaemonSet"},
		{Version: "v1", Kind: "PersistentVolumeClaim"}, {Version: "v1", Kind: "Service"}, {Version: "v1", Kind: "ServiceAccount"}, {Version: "v1", Kind: "ConfigMap"},
	}
	defaultObjects = []string{
		"ConfigMap kube-root-ca.crt", "ConfigMap openshift-service-ca.crt", "ServiceAccount default", "ServiceAccount builder", "ServiceAccount deployer",
	}
)
