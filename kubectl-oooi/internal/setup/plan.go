package setup

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// A Plan has the objects that setup applies for an Infra or a standalone ProxyServer.
type Plan struct {
	Infra *v1alpha1.Infra
	// Standalone is set for a ProxyServer without an Infra. Infra is then derived from it, and not applied.
	Standalone bool
	// Kept are the kinds of objects that are left unchanged if they exist, as in Known.
	Kept []string
	// Objects are the objects to apply, in the order of the output of kustomize. YAML is that output.
	Objects []*unstructured.Unstructured
	YAML    []byte
	// Overlay has the files of the kustomization that the objects are built from, by name.
	Overlay map[string][]byte
	// Warnings are problems that do not prevent setup.
	Warnings []string
	// Snapshot is the model of names and routes.
	Snapshot *model.Snapshot
	// HostedCluster is the Infra's; empty while it is unknown.
	HostedCluster types.NamespacedName

	sets         render.Sets
	image        string          // the default one, with xdsd
	newResolvers []string        // upstream resolvers that the change adds
	running      map[string]bool // the StatefulSets that have a pod before the change
	holders      []heldAddress   // the VLAN addresses of the Infra's workloads before the change
}

// Make validates the input and renders the objects. The error lists the problems that it found, one on each line. Make
// clears images of the earlier operator in k.Infra, with a warning in the plan.
func Make(k *Known, images render.Images) (*Plan, error) {
	snapshot := k.snapshot()
	p := &Plan{Infra: k.Infra, Standalone: k.standalone(), Kept: k.Kept, Snapshot: snapshot, holders: k.holders, running: k.running, newResolvers: k.addedResolvers(), image: images.Oooi, sets: k.sets}
	errs := k.checkProblems(snapshot, p)
	p.Warnings = append(p.Warnings, k.withoutOperatorImages()...)
	errs = append(errs, k.invalidImages(images)...)
	errs = append(errs, k.invalidResources()...)
	control, err := k.controlResources()
	errs = append(errs, err)
	in := k.input(snapshot, images)
	if err := k.checkInput(in); err != nil {
		return nil, errors.Join(append(errs, err)...)
	}
	p.HostedCluster = in.HostedCluster
	p.Warnings = append(append(p.Warnings, k.warnings(in)...), p.keptByOthers()...)
	rendered, err := render.Objects(in)
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

// snapshot returns the model of the known objects. It includes the Infra's ProxyServer even if that does not exist
// yet, because its listeners determine the ports of the proxy.
func (k *Known) snapshot() *model.Snapshot {
	all := k.Objects
	if !k.standalone() {
		all.Infras = append(slices.Clone(all.Infras), k.Infra)
	}
	server := k.ProxyServer
	if server == nil && k.Infra.Spec.InfraComponents.Proxy.IsEnabled() {
		server = render.OwnProxyServer(k.Infra)
	}
	if server != nil {
		all.ProxyServers = append(slices.Clone(all.ProxyServers), server)
	}
	return k.build(&all)
}

func (k *Known) build(all *model.Objects) *model.Snapshot {
	with := *all
	with.NetworkAttachments = append(with.NetworkAttachments, read.Attachments(k.networks())...)
	return model.Build(&with, model.Options{Proxies: true, Names: model.NameRules{Management: k.Management}})
}

// fatalReasons are the reasons of problems for which setup refuses an Infra: the Infra would not work, or would
// disturb others.
var fatalReasons = []model.Reason{
	model.ReasonInvalidAddress, model.ReasonInvalidRange, model.ReasonAddressConflict, model.ReasonHostedClusterAmbiguous, model.ReasonConsentMissing,
	model.ReasonInvalidName, model.ReasonUndecodable, model.ReasonControllerConflict,
}

// expectedReasons are the reasons of problems that setup, or control after it, resolves.
var expectedReasons = []model.Reason{model.ReasonProxyServiceMissing, model.ReasonKubeconfigMissing, model.ReasonAddressNotAssigned}

// checkProblems returns an error for each problem of the model with the Infra for which setup refuses it, and for each
// name that the change takes from a Service. It adds a warning to p for each other problem that setup does not resolve, and for each one with the Infra's ProxyServer.
func (k *Known) checkProblems(snapshot *model.Snapshot, p *Plan) []error {
	kind := p.kind()
	var errs []error
	var conflicts []model.Problem
	before := k.snapshotBefore()
	if before != nil {
		conflicts = k.newConflicts(before, snapshot)
		errs = append(errs, k.lostRoutes(before, snapshot)...)
	}
	for _, problem := range snapshot.Problems {
		switch {
		case slices.Contains(conflicts, problem):
			errs = append(errs, errors.New(problem.String()))
		case !k.standalone() && k.ProxyServer != nil && problem.Object == (model.Ref{Kind: "ProxyServer", Namespace: k.ProxyServer.Namespace, Name: k.ProxyServer.Name}):
			p.Warnings = append(p.Warnings, problem.String())
		case problem.Object.Kind != kind || problem.Object.Key() != keyOf(k.Infra):
		case slices.Contains(fatalReasons, problem.Reason):
			errs = append(errs, fmt.Errorf("%s: %s", problem.Reason, problem.Message))
		case problem.Reason == model.ReasonHostedClusterNotFound && k.unknownHostedCluster(snapshot, problem) != nil:
			errs = append(errs, k.unknownHostedCluster(snapshot, problem))
		case !slices.Contains(expectedReasons, problem.Reason):
			p.Warnings = append(p.Warnings, fmt.Sprintf("%s: %s", problem.Reason, problem.Message))
		}
	}
	if conflict := func(p model.Problem) bool { return p.Reason == model.ReasonAddressConflict }; len(errs) > 0 && len(k.aliases()) > 0 && slices.ContainsFunc(snapshot.Problems, conflict) {
		errs = append(errs, fmt.Errorf("NetworkAttachmentDefinition %s is of the same bridge and VLAN, interface or localnet as %s", strings.Join(k.aliases(), ", "), k.network()))
	}
	warnings, err := k.rejectedVMs()
	p.Warnings = append(p.Warnings, warnings...)
	return slices.Concat(append(errs, err), k.movedAddresses(), k.leasedAddresses(), k.secondDHCP(), k.withoutVMs(k.findHostedCluster(k.hostedCluster(snapshot))), k.losses(before, snapshot, p))
}

// Input returns the input of render. Unlike Make, it does not look for problems. Like Make, it clears images of the
// earlier operator in k.Infra.
func (k *Known) Input(images render.Images) *render.Input {
	k.withoutOperatorImages()
	return k.input(k.snapshot(), images)
}

func (k *Known) input(snapshot *model.Snapshot, images render.Images) *render.Input {
	in := &render.Input{
		Infra: k.Infra, Written: k.Written, ProxyServer: k.WrittenProxyServer, Snapshot: snapshot, Images: images, OpenShift: k.OpenShift,
		Management: k.Management, Sets: k.sets, Attachment: k.Attachments[k.network().String()], OwnAttachment: k.ownNetwork,
	}
	if k.ProxyServer != nil {
		in.ProxySpec = k.ProxyServer.Spec
	}
	in.HostedCluster = k.hostedCluster(snapshot)
	// Which of several candidates is meant is unknown until one of them exists.
	unknown := len(k.Infra.Spec.NamedHostedCluster().Candidates(k.Infra.Namespace)) > 1 && k.findHostedCluster(in.HostedCluster) == nil
	if in.HostedCluster.Name != "" && k.ControlPlane && !unknown {
		in.ControlPlane = k.controlPlane(snapshot)
	}
	in.BackendControlPlanes = k.backendControlPlanes(in.ControlPlane)
	in.MachineNamespace = k.infraNamespace(in.HostedCluster)
	return in
}

// infraNamespace returns the namespace of a HostedCluster's VMs if it is not the control plane's; empty otherwise.
func (k *Known) infraNamespace(key types.NamespacedName) string {
	hc := k.findHostedCluster(key)
	if hc == nil {
		return ""
	}
	return hc.Spec.Platform.VMNamespace()
}

// backendControlPlanes returns the namespaces, except one, of control planes in which the ProxyServer has backends.
func (k *Known) backendControlPlanes(except string) []string {
	if k.ProxyServer == nil {
		return nil
	}
	var list []string
	for _, hc := range k.Objects.HostedClusters {
		namespace := model.ControlPlaneNamespace(hc.Namespace, hc.Name)
		if namespace != except && slices.ContainsFunc(k.ProxyServer.Spec.Backends, func(b v1alpha1.ProxyBackend) bool { return b.TargetNamespace == namespace }) {
			list = append(list, namespace)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// findHostedCluster returns a HostedCluster; nil if it is not known.
func (k *Known) findHostedCluster(key types.NamespacedName) *objects.HostedCluster {
	at := slices.IndexFunc(k.Objects.HostedClusters, func(hc *objects.HostedCluster) bool { return hc.Namespace == key.Namespace && hc.Name == key.Name })
	if at < 0 {
		return nil
	}
	return k.Objects.HostedClusters[at]
}

// network returns the name of the VMs' NetworkAttachmentDefinition.
func (k *Known) network() types.NamespacedName {
	return k.Infra.Spec.NetworkConfig.NetworkAttachment(k.Infra.Namespace)
}

// checkInput returns an error for input that cannot be rendered or would not work. It sets the configuration of a
// network to create.
func (k *Known) checkInput(in *render.Input) error {
	if err := k.checkInstanceAddresses(); err != nil {
		return err
	}
	if proxy := k.Infra.Spec.InfraComponents.Proxy; proxy.IsEnabled() && len(proxy.Instances) > 0 && slices.Contains([]string{"baseline", "restricted"}, k.PodSecurity) {
		return fmt.Errorf("spec.infraComponents.proxy.instances: namespace %s enforces Pod Security %q, and the container that moves the floating address requires NET_ADMIN and NET_RAW; label the namespace pod-security.kubernetes.io/enforce=privileged, or remove instances", k.Infra.Namespace, k.PodSecurity)
	}
	return k.attach(in)
}

// attach checks the VMs' network, and sets the configuration of a network to create. It returns an error if the
// network does not exist or assigns addresses.
func (k *Known) attach(in *render.Input) error {
	nad := k.network()
	_, exists := k.Attachments[nad.String()]
	switch {
	case k.MakeNetwork != nil && exists && !k.ownNetwork:
		return fmt.Errorf("NetworkAttachmentDefinition %s exists and was not created by setup for this Infra; omit --make-network to use it as it is", nad)
	case k.MakeNetwork != nil:
		var err error
		if in.Attachment, err = k.MakeNetwork.Config(nad); err != nil {
			return err //nolint:wrapcheck // render wraps it
		}
		in.OwnAttachment = true
	case !exists:
		return fmt.Errorf("spec.networkConfig: NetworkAttachmentDefinition %s does not exist; create it, let setup create it (--make-network), or specify it as NAMESPACE/NAME%s", nad, k.NetworkHint)
	}
	ipam, err := cni.IPAM(in.Attachment)
	if err != nil {
		return fmt.Errorf("NetworkAttachmentDefinition %s: %w", nad, err)
	}
	if ipam != "" && (!k.standalone() || ipam != cni.StaticIPAM) {
		return fmt.Errorf("NetworkAttachmentDefinition %s assigns addresses by %s in spec.config, and KubeVirt would offer them to VMs from a DHCP server of its own; remove it (in a ClusterUserDefinedNetwork: ipam: {mode: Disabled})", nad, ipam)
	}
	return nil
}

// checkInstanceAddresses returns an error if the address of a proxy replica is the floating address.
func (k *Known) checkInstanceAddresses() error {
	proxy := k.Infra.Spec.InfraComponents.Proxy
	if !proxy.IsEnabled() {
		return nil
	}
	for _, i := range proxy.Instances {
		for _, ip := range append([]v1alpha1.IP{i.IP}, i.AdditionalIPs...) {
			if slices.Contains(proxy.ServerIPs(), ip) {
				return fmt.Errorf("spec.infraComponents.proxy.instances: %s is the floating address; assign another address to each instance", ip)
			}
		}
	}
	return nil
}

// hostedCluster returns the HostedCluster that the model finds for the Infra, else the one that the Infra names.
func (k *Known) hostedCluster(snapshot *model.Snapshot) types.NamespacedName {
	if i := snapshot.Infra(keyOf(k.Infra)); i != nil && i.Cluster != nil && i.Cluster.Kind == "HostedCluster" {
		return types.NamespacedName{Namespace: i.Cluster.Namespace, Name: i.Cluster.Name}
	}
	return k.hostedClusterRef()
}

// hostedClusterRef returns the HostedCluster that the Infra names; empty if it names none.
func (k *Known) hostedClusterRef() types.NamespacedName { return k.namedHostedCluster(k.Infra) }

// namedHostedCluster returns the HostedCluster that an Infra names: the first that it may refer to and that exists, else the
// last. It is empty if the Infra names none.
func (k *Known) namedHostedCluster(infra *v1alpha1.Infra) types.NamespacedName {
	var named types.NamespacedName
	for _, named = range infra.Spec.NamedHostedCluster().Candidates(infra.Namespace) {
		if k.findHostedCluster(named) != nil {
			break
		}
	}
	return named
}

// pinHostedCluster sets the namespace in the Infra's reference to its HostedCluster, if the reference lacks it and the
// HostedCluster exists. Otherwise another one of that name, created later, could replace it. The HostedCluster that the
// Infra in the cluster refers to takes precedence.
func (k *Known) pinHostedCluster() error {
	ref := k.Infra.Spec.NamedHostedCluster()
	if k.standalone() || !ref.IsSet() || ref.Namespace != "" {
		return nil
	}
	named := k.hostedClusterRef()
	if k.before != nil {
		if served := k.namedHostedCluster(k.before); served.Name == ref.Name && k.findHostedCluster(served) != nil {
			named = served
		}
	}
	if k.findHostedCluster(named) == nil {
		return nil
	}
	ref.Namespace = named.Namespace
	path := []string{"spec", "hostedClusterRef", "namespace"}
	if ref != k.Infra.Spec.HostedClusterRef {
		path = []string{"spec", "appsIngress", "hostedClusterRef", "namespace"}
	}
	if err := unstructured.SetNestedField(k.Written.Object, ref.Namespace, path...); err != nil {
		return fmt.Errorf("setting %s: %w", strings.Join(path, "."), err)
	}
	return nil
}

// controlPlane returns the namespace of the control plane, whether or not it exists: the hosted cluster's, else the
// one that the Infra names. It is empty if neither is known.
func (k *Known) controlPlane(snapshot *model.Snapshot) string {
	if i := snapshot.Infra(keyOf(k.Infra)); i != nil && i.Cluster != nil && i.Cluster.ControlPlaneNamespace != "" {
		return i.Cluster.ControlPlaneNamespace
	}
	if p := k.Infra.Spec.InfraComponents.Proxy; p != nil && p.ControlPlaneNamespace != "" {
		return p.ControlPlaneNamespace
	}
	if named := k.hostedClusterRef(); named.Name != "" {
		return model.ControlPlaneNamespace(named.Namespace, named.Name)
	}
	return ""
}

// withoutOperatorImages clears images of the earlier operator in the Infra, and returns a warning for each.
func (k *Known) withoutOperatorImages() []string {
	components := &k.Infra.Spec.InfraComponents
	var lines []string
	ignoreImage := func(component string, image *string) {
		if strings.Contains(*image, operatorImage) {
			lines = append(lines, fmt.Sprintf("spec.infraComponents.%s.image, %s, is ignored: it is an image of the earlier operator, without the required programs", component, *image))
			*image = ""
		}
	}
	if components.DHCP != nil {
		ignoreImage(v1alpha1.ComponentDHCP, &components.DHCP.Image)
	}
	if components.DNS != nil {
		ignoreImage(v1alpha1.ComponentDNS, &components.DNS.Image)
	}
	return lines
}

// operatorImage is part of the name of each image of the earlier operator.
const operatorImage = "cldmnky/oooi"

// keyOf returns "namespace/name", the key of an Infra in the model.
func keyOf(i *v1alpha1.Infra) string { return i.Namespace + "/" + i.Name }

// ignoredFields returns a warning for each field of the earlier operator that is set, not to its default, and has no
// effect.
func (k *Known) ignoredFields() []string {
	var list []string
	add := func(set bool, kind, key, field, why string) {
		if set {
			list = append(list, fmt.Sprintf("%s %s: spec.%s is ignored: %s", kind, key, field, why))
		}
	}
	const manager = "it configures the earlier operator"
	if p := k.Infra.Spec.InfraComponents.Proxy; p != nil && !k.standalone() {
		add(p.ManagerImage != "", "Infra", keyOf(k.Infra), "infraComponents.proxy.managerImage", manager)
	}
	if p := k.ProxyServer; p != nil {
		key := p.Namespace + "/" + p.Name
		add(p.Spec.ManagerImage != "", "ProxyServer", key, "managerImage", manager)
		add(p.Spec.Port != 0 && p.Spec.Port != v1alpha1.DefaultProxyPort, "ProxyServer", key, "port", "the proxy listens on the ports of its routes")
		add(p.Spec.XDSPort != 0 && p.Spec.XDSPort != v1alpha1.DefaultXDSPort, "ProxyServer", key, "xdsPort", "xdsd and Envoy use a Unix socket")
	}
	return list
}

// warnings returns warnings about input that is valid, but may not have the expected effect.
func (k *Known) warnings(in *render.Input) []string {
	var list []string
	if in.ControlPlane == "" && !k.standalone() {
		list = append(list, "the hosted control plane does not exist yet; its names are served when it does. Until setup runs again, DNS and proxy can read Services and Routes in all namespaces, and no NetworkPolicy admits the proxy to the control plane")
	}
	if k.MakeNetwork != nil && !k.MakeNetwork.ForMachines() {
		list = append(list, "VMs that KubeVirt bridges to macvlan receive no packets: macvlan delivers only to its own MAC address. Connect VMs to the VLAN by a bridge or OVN-Kubernetes; pods can use macvlan")
	}
	if k.assumedSubnet.IsValid() {
		list = append(list, fmt.Sprintf("spec.networkConfig.serverIP: %s has no prefix length; /%d is assumed. If the VLAN has another subnet, add its prefix length", k.ProxyServer.Spec.NetworkConfig.ServerIP, k.assumedSubnet.Bits()))
	}
	list = append(list, k.otherSubnet()...)
	spec := &k.Infra.Spec
	list = append(list, k.ignoredFields()...)
	if hosted := k.findHostedCluster(in.HostedCluster); hosted != nil && !k.standalone() {
		list = append(list, beingDeleted(hosted)...)
		for _, why := range UnreachableServices(hosted) {
			list = append(list, fmt.Sprintf("HostedCluster %s/%s, %s", hosted.Namespace, hosted.Name, why))
		}
	}
	list = append(list, k.movedDNS()...)
	if spec.AppsIngress.IsEnabled() && (spec.AppsIngress.MetalLB == nil || spec.AppsIngress.MetalLB.AddressPoolName == "") && cmp.Or(spec.AppsIngress.Source, v1alpha1.AppsIngressSourceHostedService) == v1alpha1.AppsIngressSourceHostedService {
		list = append(list, "spec.appsIngress.metallb.addressPoolName is empty; MetalLB selects a pool with autoAssign")
	}
	if spec.AppsIngress.IsEnabled() && spec.AppsIngress.Source == v1alpha1.AppsIngressSourceMirroredService {
		list = append(list, "spec.appsIngress.source MirroredService: "+v1alpha1.MirroredServiceNote)
	}
	return list
}
