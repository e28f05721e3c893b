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
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// Plan is what is to be applied, and what there is to say about it.
type Plan struct {
	Infra *v1alpha1.Infra
	// Alone: there is a ProxyServer of the Infra's name, and no Infra.
	Alone bool
	// Kept are kinds of objects that stay as they are in the cluster.
	Kept []string
	// Objects are in the order in which kustomize has them, YAML as it prints them.
	Objects []*unstructured.Unstructured
	YAML    []byte
	// Overlay is the kustomization that they are built from, by the names of files in a folder
	// beside base.
	Overlay map[string][]byte
	// Warnings do not stand in the way.
	Warnings []string
	// Snapshot is what is known of names.
	Snapshot *model.Snapshot
	// HostedCluster is the Infra's; empty while it is not known.
	HostedCluster types.NamespacedName
}

// Make checks what is known and renders it. An error has every reason against it, each on a line.
func Make(k *Known, images render.Images) (*Plan, error) {
	snapshot := k.snapshot()
	p := &Plan{Infra: k.Infra, Alone: k.alone(), Kept: k.Kept, Snapshot: snapshot}
	against := k.faults(snapshot, p)
	p.Warnings = append(p.Warnings, k.withoutOperatorImages()...)
	against = append(against, k.wrongImages(images)...)
	in, err := k.input(snapshot, images)
	if err != nil {
		return nil, errors.Join(append(against, err)...)
	}
	p.HostedCluster = in.HostedCluster
	p.Warnings = append(p.Warnings, k.warnings(in)...)
	rendered, err := render.Objects(in)
	if against = append(against, err); errors.Join(against...) != nil {
		return nil, errors.Join(against...)
	}
	folders := []string{render.BaseOf}
	if k.VirtualIngress {
		folders = append(folders, render.VirtualIngressOf)
	}
	if p.Overlay, err = render.Overlay(rendered, images, folders...); err != nil {
		return nil, err
	}
	p.Objects, p.YAML, err = render.Build(p.Overlay)
	return p, err
}

// snapshot is the model of what is known. The Infra's ProxyServer is in it, also where it is yet
// to be made, since its ports are.
func (k *Known) snapshot() *model.Snapshot {
	all := k.Objects
	if !k.alone() {
		all.Infras = append(slices.Clone(all.Infras), k.Infra)
	}
	server := k.ProxyServer
	if server == nil && k.Infra.Spec.InfraComponents.Proxy.IsEnabled() {
		server = render.OwnProxyServer(k.Infra)
	}
	if server != nil {
		all.ProxyServers = append(slices.Clone(all.ProxyServers), server)
	}
	return model.Build(&all, model.Options{Proxies: true, Names: model.NameRules{Management: k.Management}})
}

// fatal are the problems with an Infra that setup does not go past: what they name would not
// work, or would take from others.
var fatal = []model.Reason{
	model.ReasonInvalidAddress, model.ReasonInvalidRange, model.ReasonAddressConflict, model.ReasonHostedClusterAmbiguous, model.ReasonConsentMissing,
	model.ReasonInvalidName, model.ReasonUndecodable, model.ReasonControllerConflict,
}

// expected are problems that setup itself ends.
var expected = []model.Reason{model.ReasonProxyServiceMissing, model.ReasonKubeconfigMissing, model.ReasonAddressNotAssigned}

// faults are the model's problems with what is set up.
func (k *Known) faults(snapshot *model.Snapshot, p *Plan) []error {
	kind := "Infra"
	if k.alone() {
		kind = "ProxyServer"
	}
	var against []error
	for _, problem := range snapshot.Problems {
		switch {
		case problem.Object.Kind != kind || problem.Object.Key() != keyOf(k.Infra):
		case slices.Contains(fatal, problem.Reason):
			against = append(against, fmt.Errorf("%s: %s", problem.Reason, problem.Message))
		case problem.Reason == model.ReasonHostedClusterNotFound && k.unknownHostedCluster(snapshot, problem) != nil:
			against = append(against, k.unknownHostedCluster(snapshot, problem))
		case !slices.Contains(expected, problem.Reason):
			p.Warnings = append(p.Warnings, fmt.Sprintf("%s: %s", problem.Reason, problem.Message))
		}
	}
	return append(against, k.moved()...)
}

// input is what rendering takes.
func (k *Known) input(snapshot *model.Snapshot, images render.Images) (*render.Input, error) {
	in := &render.Input{
		Infra: k.Infra, Written: k.Written, ProxyServer: k.WrittenProxyServer, Snapshot: snapshot, Images: images, OpenShift: k.OpenShift,
		Management: k.Management,
	}
	if k.ProxyServer != nil {
		in.ProxySpec = k.ProxyServer.Spec
	}
	if err := k.ownAddresses(); err != nil {
		return nil, err
	}
	in.HostedCluster = k.hostedCluster(snapshot)
	if in.HostedCluster.Name != "" && k.ControlPlane {
		in.ControlPlane = k.controlPlane(snapshot)
	}
	for _, hc := range k.Objects.HostedClusters {
		if hc.Namespace == in.HostedCluster.Namespace && hc.Name == in.HostedCluster.Name && hc.Spec.Platform.KubeVirt != nil && hc.Spec.Platform.KubeVirt.Credentials != nil {
			in.MachineNamespace = hc.Spec.Platform.KubeVirt.Credentials.InfraNamespace
		}
	}
	if proxy := k.Infra.Spec.InfraComponents.Proxy; proxy.IsEnabled() && len(proxy.Instances) > 0 && slices.Contains([]string{"baseline", "restricted"}, k.PodSecurity) {
		return nil, fmt.Errorf("spec.infraComponents.proxy.instances: namespace %s enforces Pod Security %q, and the container that moves the floating address requires NET_ADMIN and NET_RAW; label the namespace pod-security.kubernetes.io/enforce=privileged, or remove instances", k.Infra.Namespace, k.PodSecurity)
	}
	return in, k.attach(in)
}

// attach adds the virtual machines' network.
func (k *Known) attach(in *render.Input) error {
	nad := k.Infra.Spec.NetworkConfig.NetworkAttachment(k.Infra.Namespace)
	config, there := k.Attachments[nad.String()]
	in.Attachment, in.OwnAttachment = config, k.ownNetwork
	switch {
	case k.MakeNetwork != nil && there && !k.ownNetwork:
		return fmt.Errorf("NetworkAttachmentDefinition %s exists and was not created by setup for this Infra; omit --make-network to use it as it is", nad)
	case k.MakeNetwork != nil:
		var err error
		if in.Attachment, err = k.MakeNetwork.Config(nad); err != nil {
			return err //nolint:wrapcheck // it is ours
		}
		in.OwnAttachment = true
	case !there:
		return fmt.Errorf("spec.networkConfig: NetworkAttachmentDefinition %s does not exist; create it, let setup create it (--make-network), or specify it as NAMESPACE/NAME%s", nad, k.Elsewhere)
	}
	ipam, err := render.IPAM(in.Attachment)
	if err != nil {
		return fmt.Errorf("NetworkAttachmentDefinition %s: %w", nad, err)
	}
	if ipam != "" {
		return fmt.Errorf("NetworkAttachmentDefinition %s assigns addresses by %s in spec.config, and KubeVirt would offer them to VMs from a DHCP server of its own; remove it (in a ClusterUserDefinedNetwork: ipam: {mode: Disabled})", nad, ipam)
	}
	return nil
}

// ownAddresses finds an instance of the proxy whose address is the one that moves.
func (k *Known) ownAddresses() error {
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

// hostedCluster is the Infra's: the one that the model finds, else the one that is named.
func (k *Known) hostedCluster(snapshot *model.Snapshot) types.NamespacedName {
	if i := snapshot.Infra(keyOf(k.Infra)); i != nil && i.Cluster != nil && i.Cluster.Kind == "HostedCluster" {
		return types.NamespacedName{Namespace: i.Cluster.Namespace, Name: i.Cluster.Name}
	}
	return k.named()
}

// named is the hosted cluster that the Infra names.
func (k *Known) named() types.NamespacedName {
	ref := k.Infra.Spec.NamedHostedCluster()
	if !ref.IsSet() {
		return types.NamespacedName{}
	}
	return ref.NamespacedName()
}

// controlPlane is the namespace of the control plane, whether or not it is there: that of the
// hosted cluster, else the one that the Infra names; empty where nothing is known.
func (k *Known) controlPlane(snapshot *model.Snapshot) string {
	if i := snapshot.Infra(keyOf(k.Infra)); i != nil && i.Cluster != nil && i.Cluster.ControlPlaneNamespace != "" {
		return i.Cluster.ControlPlaneNamespace
	}
	if p := k.Infra.Spec.InfraComponents.Proxy; p != nil && p.ControlPlaneNamespace != "" {
		return p.ControlPlaneNamespace
	}
	if named := k.named(); named.Name != "" {
		return model.ControlPlaneNamespace(named.Namespace, named.Name)
	}
	return ""
}

// withoutOperatorImages leaves images of the old operator out of the Infra as it is rendered, and
// says which.
func (k *Known) withoutOperatorImages() []string {
	components := &k.Infra.Spec.InfraComponents
	var said []string
	leave := func(component string, image *string) {
		if strings.Contains(*image, operatorImage) {
			said = append(said, fmt.Sprintf("spec.infraComponents.%s.image, %s, is ignored: it is an image of the earlier operator, without the required programs", component, *image))
			*image = ""
		}
	}
	if components.DHCP != nil {
		leave(v1alpha1.ComponentDHCP, &components.DHCP.Image)
	}
	if components.DNS != nil {
		leave(v1alpha1.ComponentDNS, &components.DNS.Image)
	}
	return said
}

// operatorImage is in the name of every image that the old operator is published as.
const operatorImage = "cldmnky/oooi"

// keyOf names an Infra as the model does.
func keyOf(i *v1alpha1.Infra) string { return i.Namespace + "/" + i.Name }

// ignored says which fields of the old operator's are set, but to its defaults, and have no effect.
func (k *Known) ignored() []string {
	var list []string
	add := func(set bool, kind, key, field, why string) {
		if set {
			list = append(list, fmt.Sprintf("%s %s: spec.%s is ignored: %s", kind, key, field, why))
		}
	}
	const manager = "it configures the earlier operator"
	if p := k.Infra.Spec.InfraComponents.Proxy; p != nil && !k.alone() {
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

// warnings are about what will not be as one might expect.
func (k *Known) warnings(in *render.Input) []string {
	var list []string
	if in.ControlPlane == "" && !k.alone() {
		list = append(list, "the hosted control plane does not exist yet; its names are served when it does. Until setup runs again, DNS and proxy can read Services and Routes in all namespaces, and no NetworkPolicy admits the proxy to the control plane")
	}
	if k.MakeNetwork != nil && !k.MakeNetwork.ForMachines() {
		list = append(list, "VMs that KubeVirt bridges to macvlan receive no packets: macvlan delivers only to its own MAC address. Connect VMs to the VLAN by a bridge or OVN-Kubernetes; pods can use macvlan")
	}
	spec := &k.Infra.Spec
	list = append(list, k.ignored()...)
	if spec.AppsIngress.IsEnabled() && (spec.AppsIngress.MetalLB == nil || spec.AppsIngress.MetalLB.AddressPoolName == "") && cmp.Or(spec.AppsIngress.Source, v1alpha1.AppsIngressSourceHostedService) == v1alpha1.AppsIngressSourceHostedService {
		list = append(list, "spec.appsIngress.metallb.addressPoolName is empty; MetalLB selects a pool with autoAssign")
	}
	return list
}
