package setup

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// A Plan has the objects that setup applies for an Infra or a standalone ProxyServer.
type Plan struct {
	Infra *v1alpha1.Infra
	// Standalone is set for a ProxyServer without an Infra. Infra is then derived from the ProxyServer, and not applied.
	Standalone bool
	// Kept are the kinds of objects that are left unchanged if they exist, as in Known.
	Kept []string
	// Objects are the objects to apply, in kustomize's order. YAML is kustomize's output.
	Objects []*unstructured.Unstructured
	YAML    []byte
	// Overlay has the files of the kustomization from which the objects are built, by name.
	Overlay map[string][]byte
	// Warnings are problems that do not prevent setup.
	Warnings []string

	present
	site         *site.Site // after the change
	image        string     // the default image, with xdsd
	newResolvers []string   // upstream resolvers that the change adds
	poolNetwork  string     // the network to add to NodePools, if Multus isolates namespaces and no NodePool uses the network
}

// Make validates the input and renders the objects. The error lists all problems, one on each line. Make
// clears images of the earlier operator in k.Infra, with a warning in the plan.
func Make(k *Known, images render.Images) (*Plan, error) {
	c, errs := k.change(images), k.invalidImages(images)
	p := &Plan{
		Infra: k.Infra, Standalone: k.standalone(), Kept: k.Kept, site: c.is, present: c.present, image: images.Oooi, newResolvers: k.addedResolvers(),
	}
	if c.isolation.Enabled && len(c.refs) == 0 {
		p.poolNetwork = c.wanted.Attachment
	}
	for _, check := range checks {
		check(c)
	}
	for _, found := range c.problems {
		switch {
		case found.severity == warning || found.severity == loss && k.AllowLoss:
			p.Warnings = append(p.Warnings, found.text)
		case found.severity == loss:
			errs = append(errs, fmt.Errorf("%s; delete or move these VMs first, or use --%s", found.text, AllowLoss))
		default:
			errs = append(errs, errors.New(found.text))
		}
	}
	at := k.Infra.Namespace
	if len(errs) > 0 && k.discovered && k.live.Get(site.Namespaces, "", at) == nil && k.live.Unread(site.Namespaces, at) == "" {
		// the other errors are consequences
		return nil, fmt.Errorf("namespace %s of %s does not exist; correct the namespace, or create it first",
			k.Infra.Namespace, k.ref())
	}
	if _, err := cni.IPAM(c.attachment); err != nil {
		return nil, errors.Join(errs...)
	}
	rendered, err := render.Objects(c.input())
	if errs = append(errs, err); errors.Join(errs...) != nil {
		return nil, errors.Join(errs...)
	}
	folders := sharedFolders(k.VirtualIngress)
	switch k.Shared {
	case SharedOnly:
		rendered = nil
	case SharedNone:
		folders = nil
	}
	control, _ := c.controlResources()
	if p.Overlay, err = render.Overlay(rendered, images, control, folders...); err != nil {
		return nil, err
	}
	p.Objects, p.YAML, err = render.Build(p.Overlay)
	return p, err
}

// sharedFolders returns the directories with the objects that all Infras share.
func sharedFolders(virtualIngress bool) []string {
	if virtualIngress {
		return []string{render.BaseDir, render.VirtualIngressDir}
	}
	return []string{render.BaseDir}
}

// SharedObjects returns the objects that all Infras share as YAML.
func SharedObjects(images render.Images, virtualIngress bool) ([]byte, error) {
	k := &Known{Infra: &v1alpha1.Infra{}}
	if err := errors.Join(k.invalidImages(images)...); err != nil {
		return nil, err
	}
	files, err := render.Overlay(nil, images, nil, sharedFolders(virtualIngress)...)
	if err != nil {
		return nil, err
	}
	_, text, err := render.Build(files)
	return text, err
}

// controlResources returns control's resources from the Infra, else from the first other Infra that sets them, else nil. conflict is an
// Infra that sets different resources, so that each setup would replace control's pods.
func (c *change) controlResources() (resources *corev1.ResourceRequirements, conflict string) {
	given := func(i *v1alpha1.Infra) *corev1.ResourceRequirements {
		return cmp.Or(i.Spec.InfraComponents.Control, &v1alpha1.InfraControl{}).Resources
	}
	resources = given(c.Infra)
	for _, i := range c.otherInfras() {
		if given(c.Infra) != nil && given(i) != nil && !equality.Semantic.DeepEqual(resources, given(i)) {
			conflict = keyOf(i)
		}
		resources = cmp.Or(resources, given(i))
	}
	return resources, conflict
}

// input returns the input of render.
func (c *change) input() *render.Input {
	server := cmp.Or(c.ProxyServer, &v1alpha1.ProxyServer{})
	in := &render.Input{
		Infra: c.Infra, Written: c.Written, ProxyServer: c.WrittenProxyServer, Snapshot: c.is.Snapshot, Images: c.images, OpenShift: c.OpenShift,
		Management: c.is.Facts.Management(), Sets: c.sets, Attachment: c.attachment, OwnAttachment: c.MakeNetwork != nil || c.ownsNetwork(),
		HostedCluster: c.hosted, ControlPlane: c.controlPlaneNamespace(), MachineNamespace: c.is.SeparateVMNamespace(), ProxySpec: server.Spec,
	}
	for _, hc := range c.is.Facts.List(site.HostedClusters, "") {
		namespace := model.ControlPlaneNamespace(hc.GetNamespace(), hc.GetName())
		if namespace != in.ControlPlane && slices.ContainsFunc(server.Spec.Backends, func(b v1alpha1.ProxyBackend) bool { return b.TargetNamespace == namespace }) {
			in.BackendControlPlanes = append(in.BackendControlPlanes, namespace)
		}
	}
	slices.Sort(in.BackendControlPlanes)
	in.BackendControlPlanes = slices.Compact(in.BackendControlPlanes)
	return in
}

// controlPlaneNamespace returns the namespace of the hosted cluster's control plane; empty if it does not exist, or if there are several
// candidates and none of them exists.
func (c *change) controlPlaneNamespace() string {
	several := len(c.Infra.Spec.NamedHostedCluster().Candidates(c.Infra.Namespace)) > 1
	if c.hosted.Name == "" || !c.ControlPlane || several && c.is.Facts.HostedCluster(c.hosted) == nil {
		return ""
	}
	return c.is.ControlPlaneNamespace()
}

// Advice returns the user's next steps after setup, as lines to print: set spec.services of a HostedCluster that does not exist yet, run
// setup again once it exists, or add the network to NodePools. It is empty if there are none.
func (p *Plan) Advice() (text string) {
	switch cluster := p.site.Cluster; {
	case p.Standalone || cluster != nil && cluster.Kind == read.HostedClusterKind.Kind:
	case cluster == nil || len(cluster.Domains) == 0:
		text = "\nThe HostedCluster does not exist yet. Run setup again after creating it.\n"
	default:
		text = fmt.Sprintf(`
Set spec.services of the HostedCluster to:
  - service: APIServer
    servicePublishingStrategy: {type: LoadBalancer, loadBalancer: {hostname: api.%[1]s}}
  - service: OAuthServer
    servicePublishingStrategy: {type: Route, route: {hostname: oauth.%[1]s}}
  - service: Konnectivity
    servicePublishingStrategy: {type: Route, route: {hostname: konnectivity.%[1]s}}
  - service: Ignition
    servicePublishingStrategy: {type: Route, route: {hostname: ignition.%[1]s}}
`, cluster.Domains[0])
	}
	if p.poolNetwork != "" {
		text += fmt.Sprintf("\nSet spec.platform.kubevirt.additionalNetworks of the NodePools to [{name: %s}].\n", p.poolNetwork)
	}
	return text
}

// Domains returns the domains that the cluster DNS must forward to the Infra's DNS; nil if DNS is disabled or the
// hosted cluster is unknown.
func (p *Plan) Domains() []string {
	c := p.site.Cluster
	if c == nil || !p.Infra.Spec.InfraComponents.DNS.IsEnabled() {
		return nil
	}
	return p.site.Snapshot.ForwardedDomains(c)
}
