package model

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/densityops/oooi/internal/objects"
)

// registries returns the hosts from which nodes pull the release image, see Cluster.Registries.
func registries(spec *objects.HostedClusterSpec) []string {
	if c := spec.Configuration; c != nil && c.Proxy != nil && bool(c.Proxy.HTTPSProxy) {
		return nil // which resolves their names
	}
	images := []string{spec.Release.Image}
	for _, source := range spec.ImageContentSources {
		if rest, ok := strings.CutPrefix(spec.Release.Image, source.Source); ok && source.Source != "" && len(source.Mirrors) > 0 && strings.IndexAny(rest, "/:@") <= 0 {
			images = source.Mirrors
		}
	}
	var hosts []string
	for _, image := range images {
		host, _, found := strings.Cut(image, "/")
		host, _, _ = strings.Cut(host, ":")
		if _, err := netip.ParseAddr(host); !found || err == nil || !strings.Contains(host, ".") {
			continue // an image without a registry, an address, or a name that is not qualified
		}
		hosts = append(hosts, strings.ToLower(host))
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}
