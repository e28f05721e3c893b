package faults

import "k8s.io/apimachinery/pkg/runtime/schema"

// Kinds of objects that faults change.
var (
	nodeKind           = schema.GroupVersionKind{Version: "v1", Kind: "Node"}
	secretKind         = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	podKind            = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	serviceAccountKind = schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}
	serviceKind        = schema.GroupVersionKind{Version: "v1", Kind: "Service"}
	namespaceKind      = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
	configMapKind      = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	accountKind        = schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}
	deploymentKind     = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	setKind            = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"}
	sliceKind          = schema.GroupVersionKind{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"}
	policyKind         = schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}
	leaseKind          = schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}
	crdKind            = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	nadKind            = schema.GroupVersionKind{Group: "k8s.cni.cncf.io", Version: "v1", Kind: "NetworkAttachmentDefinition"}
	machineKind        = schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachineInstance"}
	dnsKind            = schema.GroupVersionKind{Group: "operator.openshift.io", Version: "v1", Kind: "DNS"}
	hostedKind         = schema.GroupVersionKind{Group: "hypershift.openshift.io", Version: "v1beta1", Kind: "HostedCluster"}
	nodePoolKind       = schema.GroupVersionKind{Group: "hypershift.openshift.io", Version: "v1beta1", Kind: "NodePool"}
	infraKind          = schema.GroupVersionKind{Group: "hostedcluster.densityops.com", Version: "v1alpha1", Kind: "Infra"}
	proxyKind          = schema.GroupVersionKind{Group: "hostedcluster.densityops.com", Version: "v1alpha1", Kind: "ProxyServer"}
)
