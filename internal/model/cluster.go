package model

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/densityops/oooi/internal/objects"
)

// Cluster is a hosted cluster. It is derived from a HostedCluster or, as a placeholder until that exists,
// from an Infra.
type Cluster struct {
	Ref
	// UID distinguishes the cluster from earlier ones of the same name; empty for a placeholder.
	UID string `json:"uid,omitempty"`
	// Created is the creation time of the object. Of two clusters that claim a name, the older one gets it.
	Created time.Time `json:"created"`
	// ControlPlaneNamespace is the namespace of the control plane; empty for a placeholder if the Infra sets none.
	ControlPlaneNamespace string `json:"controlPlaneNamespace,omitempty"`
	// InfraID identifies VMs and mirrored Services of the cluster; empty if it is not known yet.
	InfraID string `json:"infraID,omitempty"`
	// Platform is the platform type of the HostedCluster, such as KubeVirt.
	Platform string `json:"platform,omitempty"`
	// ExternalVMs is set if the VMs run in another cluster than the control plane.
	ExternalVMs bool `json:"externalVMs,omitempty"`
	// Kubeconfig is the Secret with the admin kubeconfig, "namespace/name"; empty until HyperShift publishes
	// it.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// APIServer is the "host:port" of the API server in the management cluster; empty without AppsOptions.Admin,
	// or if its Service does not exist.
	APIServer string `json:"apiServer,omitempty"`
	// Domains are the cluster domains: the HostedCluster's, then Infras' domains that differ.
	Domains []string `json:"domains"`
	// AppsDomains are the apps domains, without "*.".
	AppsDomains []string `json:"appsDomains"`
	// AppsNames are names outside of the apps domains that resolve to the apps address.
	AppsNames []string `json:"appsNames,omitempty"`
	// Hostnames are the control-plane names, sorted.
	Hostnames []Hostname `json:"hostnames"`
	// Apps are the apps addresses; nil if apps are not enabled.
	Apps *Apps `json:"apps,omitempty"`
}

// draft is a Cluster that is being built.
type draft struct {
	*Cluster

	infras      []*Infra               // that serve the cluster, sorted by reference
	names       hostnames              // the names, if they differ from Hostnames; nil if Hostnames is complete
	vmNamespace string                 // the namespace of the VMs, if it is not the control plane's
	apiPort     int32                  // the port that clients of the API server connect to
	oauth       bool                   // whether HyperShift runs an OAuth server for the cluster
	object      *objects.HostedCluster // nil for a placeholder
}

// finish completes Hostnames.
func (d *draft) finish() {
	if d.names != nil {
		d.Hostnames, d.names = d.names.sorted(), nil
	}
}

// copy returns a copy of d, which must be finished. Additions to the copy do not change d.
func (d *draft) copy() *draft {
	own, c := *d, *d.Cluster
	c.Domains, c.AppsDomains, c.AppsNames = slices.Clip(c.Domains), slices.Clip(c.AppsDomains), slices.Clip(c.AppsNames)
	own.Cluster = &c
	return &own
}

// compareAge orders clusters by creation time, then by reference.
func compareAge(a, b *Cluster) int {
	return cmp.Or(a.Created.Compare(b.Created), compareRefs(a.Ref, b.Ref))
}

func compareDrafts(a, b *draft) int { return compareAge(a.Cluster, b.Cluster) }

// ControlPlaneNamespace returns the namespace in which HyperShift runs the control plane of the HostedCluster
// namespace/name.
func ControlPlaneNamespace(namespace, name string) string {
	return namespace + "-" + strings.ReplaceAll(name, ".", "-")
}

// addName adds a hostname, or an endpoint to an existing hostname.
func (d *draft) addName(name string, role Role, port int32, source string) {
	if d.names == nil {
		d.names = hostnames{}
		for _, h := range d.Hostnames {
			d.names[h.Name] = slices.Clone(h.Endpoints)
		}
	}
	d.names.add(name, role, port, source)
}

// publishable returns the normalized form of a name and whether it may be served. It reports malformed names,
// single labels and names of the management cluster's Services. Addresses and HyperShift's private names
// (hypershift.local) are not served either, but they are not errors, and not reported.
func publishable(ref Ref, s, source string, found *problems) (string, bool) {
	if isAddress(s) {
		return "", false
	}
	name, err := cleanName(s)
	switch {
	case err != nil:
		found.add(ref, ReasonInvalidName, "%s: %v", source, err)
	case within(name, "hypershift.local"):
	case !strings.Contains(name, "."):
		found.add(ref, ReasonInvalidName, "%s: %q is a single label; must be a name with a domain", source, s)
	case within(name, "cluster.local"):
		found.add(ref, ReasonInvalidName, "%s: %q is in cluster.local, the domain of the management cluster's Services", source, s)
	default:
		return name, true
	}
	return "", false
}

// isPlaceholder reports whether the cluster is derived from an Infra, because its HostedCluster does not
// exist yet. Nothing can be watched in it, and its key, the Infra's, may equal the key of another HostedCluster.
func (c *Cluster) isPlaceholder() bool { return c.Kind != "HostedCluster" }
