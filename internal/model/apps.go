package model

import (
	"net/netip"
)

// AppsSource is a source of the apps addresses of a hosted cluster.
type AppsSource string

// All sources. The Corefile accepts hosted, mirrored and status.
const (
	// AppsHosted is the apps Service in the hosted cluster.
	AppsHosted AppsSource = "hosted"
	// AppsMirrored is the Service that the KubeVirt cloud controller creates in the management cluster for
	// the apps Service, or the Service of the management cluster that AppsOptions select.
	AppsMirrored AppsSource = "mirrored"
	// AppsStatus is status.appsIngress of the Infra, which xdsd control writes.
	AppsStatus AppsSource = "status"
	// AppsStatic is spec.appsIngress.addresses of the Infra.
	AppsStatic AppsSource = "static"
	// AppsLastGood is the previous snapshot, whose addresses stay in use while all other sources lack one.
	AppsLastGood AppsSource = "last known good"
)

// AppsOptions configure the sources of apps addresses. Unset options are taken from the Infra that enables
// appsIngress. Without Sources, a hosted cluster without such an Infra gets no apps addresses.
type AppsOptions struct {
	// Sources are tried in this order, for every hosted cluster in scope. The first one with an accepted address
	// is used.
	Sources []AppsSource
	// Service is the apps Service, "namespace/name": in the hosted cluster for AppsHosted, in the management
	// cluster for AppsMirrored.
	Service string
	// Selector selects the apps Service by labels, instead of Service.
	Selector map[string]string
	// Allow are the networks whose addresses are accepted; empty for MetalLB's address range in the Infra or, if
	// it has none, the subnets of the VLAN.
	Allow []netip.Prefix
	// Credentials is the Secret with a kubeconfig for the hosted cluster, "namespace/name"; empty for the
	// reader's Secret of the Infra.
	Credentials string
	// Admin reports whether the Service in the hosted cluster is watched with the admin kubeconfig that the Infra
	// or the HostedCluster refers to, instead of Credentials. It also sets Cluster.APIServer and Apps.Revision.
	Admin bool
}

// Apps are the apps addresses of a hosted cluster.
type Apps struct {
	// Addresses are sorted; empty if none is known.
	Addresses []netip.Addr `json:"addresses"`
	// Source is the source of the addresses; empty if none is known.
	Source AppsSource `json:"source,omitempty"`
	// Withdrawn reports whether the source has lost its address. Addresses are then the last known ones.
	Withdrawn bool `json:"withdrawn,omitempty"`
	// Hosted has the parameters for watching the Service in the hosted cluster; nil if it is not watched.
	Hosted *HostedAccess `json:"hosted,omitempty"`
	// Followed reports whether the Service in the hosted cluster was read, or found to be missing, and is
	// watched without a fault.
	Followed bool `json:"followed,omitempty"`
	// Infra is the Infra that configures the apps; nil if only the options do.
	Infra *Ref `json:"infra,omitempty"`
	// Revision is the resourceVersion of the Service in the hosted cluster; empty without AppsOptions.Admin.
	Revision string `json:"revision,omitempty"`
}

// HostedAccess has the parameters for watching the apps Service in a hosted cluster.
type HostedAccess struct {
	// Secret is the Secret with the kubeconfig, "namespace/name"; empty if none is known.
	Secret string `json:"secret"`
	// Key is the key of the kubeconfig in the Secret.
	Key string `json:"key"`
	// Dial is the "host:port" to connect to; empty for the server in the kubeconfig.
	Dial string `json:"dial,omitempty"`
	// Service is the Service, "namespace/name"; empty with a Selector.
	Service string `json:"service,omitempty"`
	// Selector selects the Service by labels.
	Selector map[string]string `json:"selector,omitempty"`
	// Revisions reports whether every revision of the Service counts as a change, even if no field in use
	// differs.
	Revisions bool `json:"revisions,omitempty"`
}

// AppsAnswer returns what the cluster's apps names resolve to for clients that can reach the apps addresses. Its
// field Served is false if apps are not enabled.
func (c *Cluster) AppsAnswer() Answer {
	if c.Apps == nil {
		return Answer{}
	}
	return Answer{Served: true, Addresses: c.Apps.Addresses}
}

// identity returns the cluster's key and UID. With the UID, a cluster does not inherit the addresses of a
// deleted one with the same name.
func (c *Cluster) identity() string {
	if c.UID == "" { // an object in a file may have no UID
		return c.Key()
	}
	return c.Key() + " " + c.UID
}

// ReaderSecret returns the "namespace/name" of the Secret in the Infra's namespace that has the reader's kubeconfig:
// credentials that permit only reading the apps Service in the hosted cluster.
func ReaderSecret(infra Ref) string { return infra.Namespace + "/" + infra.Name + "-apps-reader" }
