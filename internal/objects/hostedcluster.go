package objects

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// HostedClusterResource is where an API server serves HostedClusters.
var HostedClusterResource = schema.GroupVersionResource{
	Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "hostedclusters",
}

// HostedCluster is the part of hypershift.openshift.io/v1beta1 HostedCluster
// that says under which names its control plane is reached.
type HostedCluster struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec   HostedClusterSpec   `json:"spec"`
	Status HostedClusterStatus `json:"status,omitzero"`
}

// AnnotationInfras lists the Infras of other namespaces that may serve the HostedCluster, each
// as "namespace/name", with commas between them.
const AnnotationInfras = "hostedcluster.densityops.com/infras"

func (hc *HostedCluster) keepsAnnotation() string { return AnnotationInfras }

// Consents reports whether the HostedCluster's annotation lists an Infra, "namespace/name".
func (hc *HostedCluster) Consents(infra string) bool {
	for listed := range strings.SplitSeq(hc.Annotations[AnnotationInfras], ",") {
		if strings.TrimSpace(listed) == infra {
			return true
		}
	}
	return false
}

// HostedClusterSpec is the part of HostedClusterSpec that we read.
type HostedClusterSpec struct {
	InfraID              string                      `json:"infraID,omitempty"`
	DNS                  HostedClusterDNS            `json:"dns"`
	KubeAPIServerDNSName string                      `json:"kubeAPIServerDNSName,omitempty"`
	Services             []ServicePublishing         `json:"services,omitempty"`
	Configuration        *HostedClusterConfiguration `json:"configuration,omitempty"`
	Platform             HostedClusterPlatform       `json:"platform,omitzero"`
}

// HostedClusterDNS is HyperShift's DNSSpec. A nil BaseDomainPrefix stands for the
// HostedCluster's name, an empty one for no prefix at all.
type HostedClusterDNS struct {
	BaseDomain       string  `json:"baseDomain"`
	BaseDomainPrefix *string `json:"baseDomainPrefix,omitempty"`
}

// HostedClusterPlatform tells whether the base domain is derived from the
// management cluster's, and where the virtual machines run.
type HostedClusterPlatform struct {
	Type     string            `json:"type,omitempty"`
	KubeVirt *KubeVirtPlatform `json:"kubevirt,omitempty"`
}

// KubeVirtPlatform is the part of HyperShift's KubevirtPlatformSpec that we read.
type KubeVirtPlatform struct {
	BaseDomainPassthrough bool                 `json:"baseDomainPassthrough,omitempty"`
	Credentials           *KubeVirtCredentials `json:"credentials,omitempty"`
}

// KubeVirtCredentials is the part of HyperShift's KubevirtPlatformCredentials that
// says where the virtual machines run, if not beside the control plane.
type KubeVirtCredentials struct {
	InfraNamespace string `json:"infraNamespace,omitempty"`
}

// HostedClusterConfiguration is the part of HyperShift's ClusterConfiguration
// that moves the apps domain or removes the OAuth server.
type HostedClusterConfiguration struct {
	Ingress        *IngressConfiguration        `json:"ingress,omitempty"`
	Authentication *AuthenticationConfiguration `json:"authentication,omitempty"`
}

// IngressConfiguration is the part of config.openshift.io/v1 IngressSpec that we read.
type IngressConfiguration struct {
	Domain     string `json:"domain,omitempty"`
	AppsDomain string `json:"appsDomain,omitempty"`
}

// AuthenticationConfiguration is the part of config.openshift.io/v1
// AuthenticationSpec that we read. Type OIDC means that there is no OAuth server.
type AuthenticationConfiguration struct {
	Type string `json:"type,omitempty"`
}

// ServicePublishing is HyperShift's ServicePublishingStrategyMapping: how one
// control-plane service is published.
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

// HostedClusterStatus is the part of HostedClusterStatus that carries hostnames
// and the admin kubeconfig's Secret.
type HostedClusterStatus struct {
	KubeConfig               *LocalReference `json:"kubeconfig,omitempty"`
	IgnitionEndpoint         string          `json:"ignitionEndpoint,omitempty"`
	ControlPlaneEndpoint     APIEndpoint     `json:"controlPlaneEndpoint,omitzero"`
	OAuthCallbackURLTemplate string          `json:"oauthCallbackURLTemplate,omitempty"`
}

// LocalReference names an object in the same namespace.
type LocalReference struct {
	Name string `json:"name,omitempty"`
}

// APIEndpoint is HyperShift's APIEndpoint: a host without brackets and a port.
type APIEndpoint struct {
	Host string `json:"host"`
	Port int32  `json:"port"`
}
