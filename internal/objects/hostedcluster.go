package objects

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// HostedClusterResource is the resource of HostedClusters.
var HostedClusterResource = schema.GroupVersionResource{
	Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "hostedclusters",
}

// HostedCluster is the part of a hypershift.openshift.io/v1beta1 HostedCluster that is in use: the names of
// its control plane and how they are published.
type HostedCluster struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec   HostedClusterSpec   `json:"spec"`
	Status HostedClusterStatus `json:"status,omitzero"`
}

// AnnotationInfras is the annotation of a HostedCluster that lists the Infras in other namespaces that may serve it,
// each as "namespace/name", separated by commas.
const AnnotationInfras = "hostedcluster.densityops.com/infras"

// LabelInfraID is HyperShift's label on the VirtualMachineInstances of a hosted cluster, with its spec.infraID.
const LabelInfraID = "hypershift.openshift.io/infra-id"

func (hc *HostedCluster) keepsAnnotation() string { return AnnotationInfras }

// Consents reports whether AnnotationInfras lists an Infra, "namespace/name".
func (hc *HostedCluster) Consents(infra string) bool {
	for listed := range strings.SplitSeq(hc.Annotations[AnnotationInfras], ",") {
		if strings.TrimSpace(listed) == infra {
			return true
		}
	}
	return false
}

// HasOAuth reports whether HyperShift runs an OAuth server for the cluster.
func (hc *HostedCluster) HasOAuth() bool {
	cfg := hc.Spec.Configuration
	return cfg == nil || cfg.Authentication == nil || cfg.Authentication.Type != "OIDC"
}

// HostedClusterSpec is the part of HyperShift's HostedClusterSpec that is in use.
type HostedClusterSpec struct {
	InfraID              string                      `json:"infraID,omitempty"`
	DNS                  HostedClusterDNS            `json:"dns"`
	KubeAPIServerDNSName string                      `json:"kubeAPIServerDNSName,omitempty"`
	Services             []ServicePublishing         `json:"services,omitempty"`
	Configuration        *HostedClusterConfiguration `json:"configuration,omitempty"`
	Platform             HostedClusterPlatform       `json:"platform,omitzero"`
	Release              Release                     `json:"release,omitzero"`
	ImageContentSources  []ImageContentSource        `json:"imageContentSources,omitempty"`
}

// Release is HyperShift's Release: the image from which nodes are installed.
type Release struct {
	Image string `json:"image,omitempty"`
}

// ImageContentSource is HyperShift's ImageContentSource: the mirrors of a repository, which nodes use first.
type ImageContentSource struct {
	Source  string   `json:"source"`
	Mirrors []string `json:"mirrors,omitempty"`
}

// HostedClusterDNS is the part of HyperShift's DNSSpec that is in use. A nil BaseDomainPrefix means the
// HostedCluster's name, an empty one means no prefix.
type HostedClusterDNS struct {
	BaseDomain       string  `json:"baseDomain"`
	BaseDomainPrefix *string `json:"baseDomainPrefix,omitempty"`
}

// HostedClusterPlatform is the part of HyperShift's PlatformSpec that is in use.
type HostedClusterPlatform struct {
	Type     string            `json:"type,omitempty"`
	KubeVirt *KubeVirtPlatform `json:"kubevirt,omitempty"`
}

// PlatformKubeVirt is the platform type of HostedClusters and NodePools whose nodes are VMs of KubeVirt.
const PlatformKubeVirt = "KubeVirt"

// KubeVirtPlatform is the part of HyperShift's KubevirtPlatformSpec that is in use.
type KubeVirtPlatform struct {
	BaseDomainPassthrough bool                 `json:"baseDomainPassthrough,omitempty"`
	Credentials           *KubeVirtCredentials `json:"credentials,omitempty"`
}

// KubeVirtCredentials is the part of HyperShift's KubevirtPlatformCredentials that is in use: the namespace
// of the VMs, if they do not run in the control plane's namespace. With InfraKubeConfigSecret, it is one of another cluster.
type KubeVirtCredentials struct {
	InfraNamespace        string          `json:"infraNamespace,omitempty"`
	InfraKubeConfigSecret *LocalReference `json:"infraKubeConfigSecret,omitempty"`
}

// HasExternalVMs reports whether the VMs run in another cluster.
func (p *HostedClusterPlatform) HasExternalVMs() bool {
	return p.KubeVirt != nil && p.KubeVirt.Credentials != nil && p.KubeVirt.Credentials.InfraKubeConfigSecret != nil
}

// VMNamespace returns the namespace of the VMs; empty if it is the control plane's, or one of another cluster.
func (p *HostedClusterPlatform) VMNamespace() string {
	if p.KubeVirt == nil || p.KubeVirt.Credentials == nil || p.HasExternalVMs() {
		return ""
	}
	return p.KubeVirt.Credentials.InfraNamespace
}

// HostedClusterConfiguration is the part of HyperShift's ClusterConfiguration that changes the apps domain, disables the
// OAuth server, or lets nodes connect to registries through an HTTP proxy.
type HostedClusterConfiguration struct {
	Ingress        *IngressConfiguration        `json:"ingress,omitempty"`
	Authentication *AuthenticationConfiguration `json:"authentication,omitempty"`
	Proxy          *ProxyConfiguration          `json:"proxy,omitempty"`
}

// ProxyConfiguration is the part of config.openshift.io/v1 ProxySpec that is in use: whether nodes connect to registries
// through an HTTP proxy. Its URL may contain credentials.
type ProxyConfiguration struct {
	HTTPSProxy Configured `json:"httpsProxy,omitempty"`
}

// Configured is whether a field has a value, which is not kept.
type Configured bool

// UnmarshalJSON implements json.Unmarshaler.
func (c *Configured) UnmarshalJSON(data []byte) error {
	text := string(data)
	*c = text != `""` && text != "null" && text != "false"
	return nil
}

// IngressConfiguration is the part of config.openshift.io/v1 IngressSpec that is in use.
type IngressConfiguration struct {
	Domain          string           `json:"domain,omitempty"`
	AppsDomain      string           `json:"appsDomain,omitempty"`
	ComponentRoutes []ComponentRoute `json:"componentRoutes,omitempty"`
}

// ComponentRoute is the part of config.openshift.io/v1 ComponentRouteSpec that is in use: the custom hostname of a
// component's Route, such as the console's.
type ComponentRoute struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Hostname  string `json:"hostname"`
}

// Field returns the path of the entry in a HostedCluster.
func (r ComponentRoute) Field() string {
	return "spec.configuration.ingress.componentRoutes[" + r.Namespace + "/" + r.Name + "]"
}

// AuthenticationConfiguration is the part of config.openshift.io/v1 AuthenticationSpec that is in use. Type
// OIDC means that no OAuth server runs.
type AuthenticationConfiguration struct {
	Type string `json:"type,omitempty"`
}

// ServicePublishing is HyperShift's ServicePublishingStrategyMapping: how one control-plane service is
// published.
type ServicePublishing struct {
	Service  string             `json:"service"`
	Strategy PublishingStrategy `json:"servicePublishingStrategy"`
}

// PublishingStrategy is HyperShift's ServicePublishingStrategy.
type PublishingStrategy struct {
	Type         string         `json:"type"`
	NodePort     *NodePort      `json:"nodePort,omitempty"`
	LoadBalancer *PublishedHost `json:"loadBalancer,omitempty"`
	Route        *PublishedHost `json:"route,omitempty"`
}

// NodePort is HyperShift's NodePortPublishingStrategy.
type NodePort struct {
	Address string `json:"address"`
	Port    int32  `json:"port,omitempty"`
}

// PublishedHost is the hostname of a Route or LoadBalancer publishing strategy.
type PublishedHost struct {
	Hostname string `json:"hostname,omitempty"`
}

// HostedClusterStatus is the part of HyperShift's HostedClusterStatus that is in use: hostnames and the
// Secret with the admin kubeconfig.
type HostedClusterStatus struct {
	KubeConfig               *LocalReference `json:"kubeconfig,omitempty"`
	IgnitionEndpoint         string          `json:"ignitionEndpoint,omitempty"`
	ControlPlaneEndpoint     APIEndpoint     `json:"controlPlaneEndpoint,omitzero"`
	OAuthCallbackURLTemplate string          `json:"oauthCallbackURLTemplate,omitempty"`
}

// LocalReference refers to an object in the same namespace.
type LocalReference struct {
	Name string `json:"name,omitempty"`
}

// APIEndpoint is HyperShift's APIEndpoint: a host without brackets and a port.
type APIEndpoint struct {
	Host string `json:"host"`
	Port int32  `json:"port"`
}
