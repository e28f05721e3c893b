package setup

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/documents"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// reads lists the data that setup reads for a site, describedReads additional data for an Infra that flags describe, and nodeReads for one
// with a node placement. Missing permission for data that is not optional is an error.
var (
	reads = slices.Concat(
		site.In(site.AtInfra, site.ProxyServers, site.NADs), site.In(site.AtNetwork, site.NADs), site.In(site.AtHosted, site.HostedClusters),
		site.In(site.AtControlPlane, site.Routes, site.Services), site.In(site.AtBackends, site.Services),
		site.Optional(slices.Concat(
			site.In(site.Everywhere, site.ProxyServers, site.NADs, site.ClusterNetworks, site.ClusterDNS, site.ClusterIngress, site.Constraints),
			site.In(site.AtInfra, site.Namespaces, site.Pods, site.StatefulSets, site.Deployments, site.Leases),
			site.In(site.AtNetwork, site.Namespaces), site.In(site.AtHosted, site.NodePools), site.In(site.AtControlPlane, site.Namespaces, site.VMIs),
			site.In(site.AtClusterDNS, site.Services), site.In(site.AtMultus, site.ConfigMaps),
		)),
	)
	describedReads = site.Optional(site.In(site.Everywhere, site.NodePools, site.VMIs))
	nodeReads      = site.Optional(site.In(site.Everywhere, site.Nodes))
)

// Discover adds objects and properties of the cluster to the objects from files, and drops objects in files that exist in the cluster.
// It returns an error if the cluster cannot be read, or if the Infra and the ProxyServer to set up are missing or ambiguous.
func (k *Known) Discover(ctx context.Context, c client.Client) error {
	collector := &site.Collector{Client: c, Reads: reads, Now: time.Now(), Concurrency: maxConcurrent}
	if k.described != nil {
		collector.Reads = slices.Concat(reads, describedReads)
	}
	k.live = cmp.Or(k.live, site.NewFacts(collector.Now)).With()
	k.discovered = true
	if err := k.collect(ctx, collector); err != nil {
		return err
	}
	k.dropPresent()
	if err := k.use(); err != nil {
		return err
	}
	if k.Infra.Spec.NodePlacement != nil {
		collector.Reads = slices.Concat(collector.Reads, nodeReads)
	}
	if err := k.collect(ctx, collector); err != nil { // data for the completed Infra
		return err
	}
	k.dropPresent()
	desired := k.site()
	for _, s := range []*site.Site{desired, k.siteBefore()} {
		if s == nil {
			continue
		}
		if err := s.Err(reads); err != nil {
			return err
		}
	}
	control := desired.ControlPlaneNamespace()
	k.ControlPlane = control != "" && (k.live.Get(site.Namespaces, "", control) != nil || k.live.Unread(site.Namespaces, control) != "")
	return nil
}

// collect reads missing data about the Infra.
func (k *Known) collect(ctx context.Context, collector *site.Collector) error {
	if err := collector.Extend(ctx, k.live, k.Key(), k.desired()...); err != nil {
		return err
	}
	if err := k.live.Failed(); err != nil {
		return err
	}
	if k.live.Err(site.Infras, "") == nil {
		return nil
	}
	return k.live.Err(site.Infras, k.Key().Namespace)
}

// dropPresent drops objects in files that exist in the cluster, since setup does not apply them. It adds a warning for each object that
// differs.
func (k *Known) dropPresent() {
	k.files = slices.DeleteFunc(k.files, func(u *unstructured.Unstructured) bool {
		live := k.live.Get(u.GroupVersionKind(), u.GetNamespace(), u.GetName())
		if live != nil && !equality.Semantic.DeepDerivative(u.Object["spec"], live.Object["spec"]) {
			k.ignored = append(k.ignored, fmt.Sprintf("%s in the files differs from the object in the cluster; setup does not apply the file and uses "+
				"the object in the cluster", site.RefTo(u)))
		}
		return live != nil
	})
}

// use completes the Infra and the ProxyServer with objects of the cluster.
func (k *Known) use() error {
	k.OpenShift = k.OpenShift || k.live.Served(site.Constraints)
	if err := k.useInfra(); err != nil {
		return err
	}
	if err := k.useProxyServers(); err != nil {
		return err
	}
	if k.standalone() {
		return k.deriveInfra() // other objects may define the subnet of its address
	}
	return k.pinHostedCluster()
}

// useInfra sets the Infra before the change, and the Infra to set up unless a file contains it.
func (k *Known) useInfra() error {
	key := k.Key()
	u := k.live.Get(site.Infras, key.Namespace, key.Name)
	if u != nil {
		infra, ok := objects.Decode[v1alpha1.Infra](u).(*v1alpha1.Infra)
		switch {
		case ok && k.standalone():
			//nolint:staticcheck // a kind begins with a capital
			return fmt.Errorf("Infra %s exists and its proxy has the name of this ProxyServer; rename the ProxyServer, or set its spec.infraRef to that "+
				"Infra", key)
		case ok:
			infra.Default()
			k.before = infra
		}
	}
	switch {
	case k.described != nil:
		return k.describe(u)
	case k.Infra != nil:
		return nil
	case k.before == nil:
		return fmt.Errorf("ProxyServer %s/%s, spec.infraRef: Infra %s is not in the files, and was not found in a cluster; create it, or specify its file "+
			"with -f", k.ProxyServer.Namespace, k.ProxyServer.Name, key.Name)
	}
	k.Infra, k.Written, k.Kept = k.before.DeepCopy(), documents.Manifest(u.DeepCopy()), append(k.Kept, u.GetKind())
	return nil
}

// useProxyServers sets the ProxyServer before the change and, unless a file contains one, the Infra's ProxyServer if it differs from the
// rendered one. It returns an error if another ProxyServer has the Infra's name, or if several refer to the Infra: setup deploys one, and
// would drop the routes of the others.
func (k *Known) useProxyServers() error {
	var names []string
	key, inFile, rendered := k.Key(), k.ProxyServer != nil, false
	if inFile {
		names = append(names, k.ProxyServer.Name)
	}
	for _, u := range k.live.List(site.ProxyServers, key.Namespace) {
		server, ok := objects.Decode[v1alpha1.ProxyServer](u).(*v1alpha1.ProxyServer)
		if !ok {
			continue
		}
		server.Default()
		ref := server.Spec.InfraRef
		switch belongs := ref != nil && ref.Name == key.Name; {
		case inFile && server.Name == k.ProxyServer.Name:
			k.proxyBefore = server
		case server.Name == key.Name && !belongs:
			return fmt.Errorf("ProxyServer %s has the Infra's name but does not belong to the Infra; rename the Infra, "+
				"or set spec.infraRef of the ProxyServer to the Infra", key)
		case !belongs || k.standalone():
		case server.Name == key.Name && !k.hasCustomSpec(server):
			rendered = true
		default:
			names = append(names, server.Name)
			if !inFile {
				k.ProxyServer, k.WrittenProxyServer, k.proxyBefore = server.DeepCopy(), documents.Manifest(u.DeepCopy()), server
			}
		}
	}
	if rendered && len(names) > 0 {
		names = append(names, key.Name)
	}
	slices.Sort(names)
	switch {
	case len(names) > 1:
		return fmt.Errorf("ProxyServers %s refer to Infra %s in spec.infraRef, but an Infra has only one: move their backends to one of them, and delete the "+
			"others", strings.Join(names, ", "), key)
	case inFile || k.ProxyServer == nil:
		return nil
	}
	return k.updateServerIP()
}

// hasCustomSpec reports whether a ProxyServer has fields that setup does not render, and keeps.
func (k *Known) hasCustomSpec(server *v1alpha1.ProxyServer) bool {
	own := render.OwnProxyServer(k.Infra)
	own.Spec.NetworkConfig.ServerIP = server.Spec.NetworkConfig.ServerIP
	return !equality.Semantic.DeepEqual(own.Spec, server.Spec)
}

// updateServerIP sets the address of a ProxyServer from the cluster to the Infra's. If the addresses are equal, it marks the ProxyServer
// as kept.
func (k *Known) updateServerIP() error {
	present, proxy := &k.ProxyServer.Spec.NetworkConfig.ServerIP, k.Infra.Spec.InfraComponents.Proxy
	address := func(text string) string { text, _, _ = strings.Cut(text, "/"); return text }
	if proxy == nil || proxy.ServerIP == "" || address(*present) == address(proxy.ServerIP) {
		k.Kept = append(k.Kept, site.ProxyServers.Kind)
		return nil
	}
	*present = proxy.ServerIP
	if err := unstructured.SetNestedField(k.WrittenProxyServer.Object, proxy.ServerIP, "spec", "networkConfig", "serverIP"); err != nil {
		return fmt.Errorf("ProxyServer %s/%s, spec.networkConfig: %w", k.ProxyServer.Namespace, k.ProxyServer.Name, err)
	}
	return nil
}
