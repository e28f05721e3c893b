package read

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
)

// Kinds that several commands read.
var (
	InfraKind         = v1alpha1.SchemeGroupVersion.WithKind("Infra")
	ProxyServerKind   = v1alpha1.SchemeGroupVersion.WithKind("ProxyServer")
	HostedClusterKind = objects.HostedClusterResource.GroupVersion().WithKind("HostedCluster")
	NodePoolKind      = objects.HostedClusterResource.GroupVersion().WithKind("NodePool")
	RouteKind         = objects.RouteResource.GroupVersion().WithKind("Route")
	ServiceKind       = corev1.SchemeGroupVersion.WithKind("Service")
	MachineKind       = schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachineInstance"}
	AttachmentKind    = schema.GroupVersionKind{Group: "k8s.cni.cncf.io", Version: "v1", Kind: "NetworkAttachmentDefinition"}

	// ClusterDNSKind and ClusterIngressKind are the configuration of an OpenShift cluster, in objects of the name
	// cluster. OpenShift also serves ConstraintsKind.
	ClusterDNSKind     = schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "DNS"}
	ClusterIngressKind = schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "Ingress"}
	ConstraintsKind    = schema.GroupVersionKind{Group: "security.openshift.io", Version: "v1", Kind: "SecurityContextConstraints"}
)
