package setup

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/documents"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	crd "github.com/densityops/oooi/kubectl-oooi/internal/schema"
)

// ReadFiles reads YAML or JSON documents from files and URLs; the name "-" stands for in. Objects without a namespace
// get the given one. described is the Infra that flags describe; nil if no flag does. ReadFiles returns an error if an
// object is invalid or of an unsupported kind, if described is nil and the files contain no Infra or ProxyServer, or if
// described is not nil and the files contain an Infra.
func ReadFiles(names []string, in io.Reader, namespace string, described *Description) (*Known, error) {
	all, err := documents.Read(names, in)
	if err != nil {
		return nil, err
	}
	k := newKnown()
	k.described = described
	if described != nil {
		if err := described.normalize(); err != nil {
			return nil, err
		}
	}
	for _, o := range all {
		if o.GetNamespace() == "" {
			o.SetNamespace(namespace)
		}
		if err := k.add(o); err != nil {
			return nil, fmt.Errorf("%s, document %d: %w", o.File, o.Document, err)
		}
	}
	if err := k.mergeIntoFiles(); err != nil {
		return nil, err
	}
	server := k.ProxyServer
	switch {
	case described != nil && k.Infra != nil:
		return nil, fmt.Errorf("flags describe Infra %s and the files contain Infra %s; specify one of them", described.Infra, keyOf(k.Infra))
	case described == nil && k.Infra == nil && server == nil:
		return nil, errors.New("no Infra or ProxyServer found in the files; specify a file that contains one with -f")
	case server != nil && (described != nil || k.Infra != nil) && (k.standalone() || server.Spec.InfraRef.Name != k.Key().Name):
		return nil, fmt.Errorf("spec.infraRef of ProxyServer %s does not refer to Infra %s of the same files; set it to the Infra, or run setup for each "+
			"of them", server.Name, k.Key().Name)
	case k.standalone():
		err = k.deriveInfra()
	}
	return k, err
}

// decoders decode the objects that files may contain besides the Infra and the ProxyServer.
var decoders = map[schema.GroupKind]func(*unstructured.Unstructured) objects.Object{
	read.HostedClusterKind.GroupKind(): objects.Decode[objects.HostedCluster],
	read.RouteKind.GroupKind():         objects.Decode[objects.Route],
	read.ServiceKind.GroupKind():       objects.DecodeLabelledService,
	read.AttachmentKind.GroupKind():    objects.DecodeNetworkAttachment,
}

// add adds one object of a file. It returns an error for kinds that setup does not read.
func (k *Known) add(u *documents.Object) (err error) {
	kind := u.GroupVersionKind().GroupKind()
	switch {
	case kind == read.InfraKind.GroupKind():
		infra := &v1alpha1.Infra{}
		k.Written, err = decodeStrictly(u, infra, k.Infra != nil)
		k.Infra = infra
	case kind == read.ProxyServerKind.GroupKind():
		server := &v1alpha1.ProxyServer{}
		k.WrittenProxyServer, err = decodeStrictly(u, server, k.ProxyServer != nil)
		k.ProxyServer = server
	case kind == egressHostsKind.GroupKind():
		err = k.addEgressHosts(u)
	case decoders[kind] != nil:
		if broken, ok := decoders[kind](u.Unstructured).(*objects.Broken); ok {
			return fmt.Errorf("decoding %s %s: %s", broken.Kind, broken.Name, broken.Error)
		}
		same := func(o *unstructured.Unstructured) bool {
			return o.GetKind() == u.GetKind() && o.GetNamespace() == u.GetNamespace() && o.GetName() == u.GetName()
		}
		if slices.ContainsFunc(k.files, same) {
			return fmt.Errorf("found a second %s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName())
		}
		k.files = append(k.files, u.Unstructured)
	default:
		err = fmt.Errorf("%s %s: unsupported kind; expected Infra, ProxyServer, EgressHosts, HostedCluster, Route, Service or "+
			"NetworkAttachmentDefinition",
			u.GetKind(), u.GetName())
	}
	return err
}

// decodeStrictly decodes an Infra or ProxyServer, and sets its defaults. It also returns the object as written, with defaults only in
// lists, so that GitOps tools find no difference to the object in the cluster.
func decodeStrictly(u *documents.Object, into interface {
	client.Object
	Default()
}, second bool,
) (*unstructured.Unstructured, error) {
	kind, name := u.GetKind(), u.GetName()
	if err := u.Strict(into); err != nil {
		return nil, fmt.Errorf("in %s: %w", strings.TrimSpace(kind+" "+name), err)
	}
	valid := validation.IsDNS1123Label // names of Services contain it
	if server, ok := into.(*v1alpha1.ProxyServer); ok && server.Spec.InfraRef != nil {
		valid = validation.IsDNS1123Subdomain
	}
	switch reasons := valid(name); {
	case second:
		return nil, fmt.Errorf("found a second %s %s; specify one %[1]s at a time", kind, name)
	case name == "":
		return nil, fmt.Errorf("the %s has no name; set metadata.name", kind)
	case len(reasons) > 0:
		return nil, fmt.Errorf("in %s %s: metadata.name: %s", kind, name, strings.Join(reasons, "; "))
	}
	into.SetNamespace(u.GetNamespace())
	into.Default()
	written := documents.Manifest(u.Unstructured)
	s, err := crd.Of(kind)
	if err == nil {
		s.DefaultLists(written)
	}
	return written, err
}

// written returns the Infra and the ProxyServer as written, without nil ones.
func (k *Known) written() (list []*unstructured.Unstructured) {
	for _, u := range []*unstructured.Unstructured{k.Written, k.WrittenProxyServer} {
		if u != nil {
			list = append(list, u)
		}
	}
	return list
}

// WithoutCluster completes the input for a plan that does not depend on a cluster. It returns an error for values that the
// schemas of the APIs do not allow, and if the Infra is missing.
func (k *Known) WithoutCluster() error {
	if err := k.useInfra(); err != nil {
		return err
	}
	for _, u := range k.written() {
		s, err := crd.Of(u.GetKind())
		if err == nil {
			err = s.Validate(u)
		}
		if err != nil {
			return fmt.Errorf("%s %s/%s is invalid: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
		}
	}
	k.ControlPlane = true // files do not tell
	return nil
}

// InNamespace returns an error if the Infra and the ProxyServer of the files are in different namespaces, or in a
// namespace other than flag, the value of --namespace. An empty flag means that --namespace is not set.
func (k *Known) InNamespace(flag string) error {
	for _, o := range k.written() {
		switch namespace := o.GetNamespace(); {
		case flag != "" && namespace != flag:
			return fmt.Errorf("the namespace from the provided object %q does not match the namespace %q: %s %s. You must pass '--namespace=%s' to perform "+
				"this operation", namespace, flag, o.GetKind(), o.GetName(), namespace)
		case namespace != k.Key().Namespace:
			return fmt.Errorf("%s %s is in namespace %s, and its Infra in namespace %s; create both in the same namespace",
				o.GetKind(), o.GetName(), namespace, k.Key().Namespace)
		}
	}
	return nil
}
