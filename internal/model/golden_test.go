package model_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// TestGolden compares the snapshot of each directory in testdata with the golden file of that name. Directories
// proxy-* are for TestProxyGolden.
func TestGolden(t *testing.T) {
	entries, err := os.ReadDir("testdata")
	lab.Must(t, err)
	for _, entry := range entries {
		if !entry.IsDir() || strings.HasPrefix(entry.Name(), "proxy-") {
			continue
		}
		t.Run(entry.Name(), func(t *testing.T) {
			dir := filepath.Join("testdata", entry.Name())
			checkGolden(t, dir, dir+".golden", model.Options{})
		})
	}
}

// TestAppsGolden builds the apps-* directories with apps addresses; TestGolden builds them without.
func TestAppsGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/apps-*/objects.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no directories: %v", err)
	}
	for _, file := range files {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			checkGolden(t, dir, dir+"-with-apps.golden", model.Options{Apps: &model.AppsOptions{}})
		})
	}
}

// TestBackendNames compares the snapshot of directory proxy-infra with its golden file, if names of backends are published.
func TestBackendNames(t *testing.T) {
	checkGolden(t, "testdata/proxy-infra", "testdata/backend-names.golden", model.Options{Backends: true})
}

// TestEgressNames compares the snapshot of directory proxy-egress with its golden file, if the ProxyServer is read for DNS.
func TestEgressNames(t *testing.T) {
	checkGolden(t, "testdata/proxy-egress", "testdata/egress-names.golden", model.Options{Backends: true})
}

// TestVMNames compares the snapshot of directory vm-names with its golden file, if the leases of DHCP are read.
func TestVMNames(t *testing.T) {
	checkGolden(t, "testdata/vm-names", "testdata/vm-names-leases.golden", model.Options{Leases: []string{model.AllLeases}})
}

// TestProxyGolden compares the snapshots of the directories proxy-*, with ProxyServers and apps addresses.
func TestProxyGolden(t *testing.T) {
	folders, err := filepath.Glob("testdata/proxy-*[^n]") // no *.golden
	if err != nil || len(folders) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, dir := range folders {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			checkGolden(t, dir, dir+".golden", model.Options{Apps: &model.AppsOptions{}, Proxies: true})
		})
	}
}

func checkGolden(t *testing.T, dir, file string, options model.Options) {
	t.Helper()
	in, err := watch.ReadManifests(dir, options)
	lab.Must(t, err)
	golden.Check(t, file, render(model.Build(in, options)))
}

// TestHyperShiftFixtures builds snapshots from what HyperShift's own CLI renders: all fixtures for KubeVirt,
// agent and none, and those with a KubeAPIServerDNSName for AWS.
func TestHyperShiftFixtures(t *testing.T) {
	hypershift, err := lab.ModuleDir(t.Context(), "github.com/openshift/hypershift")
	lab.Must(t, err)
	for _, fixtures := range []string{"kubevirt/*", "agent/*", "none/*", "aws/*KubeAPIServerDNSName"} {
		platform, pattern, _ := strings.Cut(fixtures, "/")
		files, err := filepath.Glob(filepath.Join(hypershift, "cmd", "cluster", platform, "testdata", pattern+".yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no fixtures %s: %v", fixtures, err)
		}
		for _, file := range files {
			name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "zz_fixture_TestCreateCluster_"), ".yaml")
			t.Run(platform+" "+name, func(t *testing.T) {
				dir := t.TempDir()
				lab.Must(t, os.Symlink(file, filepath.Join(dir, "fixture.yaml")))
				checkGolden(t, dir, filepath.Join("testdata", "hypershift-"+platform+"-"+name+".golden"), model.Options{})
			})
		}
	}
}

// render prints a snapshot, one fact in each line, for golden files.
func render(s *model.Snapshot) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	for _, c := range s.Clusters {
		line("cluster %s in %q infra-id %q", c.Ref, c.ControlPlaneNamespace, c.InfraID)
		line("  domains %v", c.Domains)
		line("  apps %v %v", c.AppsDomains, c.AppsNames)
		if a := c.Apps; a != nil {
			line("  apps at %v by %q, hosted %+v", a.Addresses, a.Source, a.Hosted)
		}
		for _, h := range c.Hostnames {
			for _, e := range h.Endpoints {
				line("  %s:%d -> %s %s:%d (%s)", h.Name, e.Port, e.Role, e.Role.Backend().Service, e.Role.Backend().Port, e.Source)
			}
		}
	}
	for _, i := range s.Infras {
		line("infra %s on %s %v serves %v", i.Key(), i.VLAN, i.CIDRs, i.Serves)
		line("  dns %v", i.DNS)
		if p := i.Proxy; p != nil {
			line("  proxy vlan %v service %q %v", p.VLAN, p.Service, p.ClusterIPs)
		}
	}
	for _, p := range s.ProxyServers {
		renderProxy(line, p)
	}
	renderView(line, "pod", s.Pod())
	for _, v := range s.VLANs {
		renderView(line, fmt.Sprintf("vlan %s %v", v.Name, v.CIDRs), v.View)
	}
	for _, p := range s.Problems {
		line("problem %s", p)
	}
	return b.String()
}

func renderProxy(line func(string, ...any), p *model.ProxyServer) {
	line("proxy %s for %v of %v on the VLAN at %v", p.Key(), p.Infra, p.Cluster, p.VLAN)
	for _, l := range p.Listeners {
		kind := ""
		if l.UDP {
			kind = " udp"
		}
		line("  port %d http %t%s", l.Port, l.HTTP, kind)
		for _, r := range l.Routes {
			line("    %s -> %s (%s of %s)", r.Host, r.Upstream, r.Source, r.Owner)
			for i := range r.Rules {
				rule := &r.Rules[i]
				redirect, _ := json.Marshal(rule.Redirect)
				line("      %s (%s) -> %v redirect %s timeout %s, of each %s retry %+v", rule.Match(), rule.Name, rule.Backends, redirect,
					rule.Timeout, rule.BackendTimeout, rule.Retry)
			}
		}
		line("    default -> %q, of backends %t", l.Default, l.Backends)
	}
	for _, u := range p.Upstreams {
		line("  upstream %s: service %q port %q addresses %v missing %q", u.Name, u.Service, u.PortName, u.Addresses, u.Missing)
		line("    connect %s idle %s limit %d from VLAN %t check %+v", u.ConnectTimeout, u.IdleTimeout, u.MaxConnections, u.FromVLAN, u.HealthCheck)
		if u.MaxPending != 0 || u.Retry != nil || u.Outlier != nil {
			line("    pending %d retry %+v outlier %+v", u.MaxPending, u.Retry, u.Outlier)
		}
		if u.ProxyProtocol != "" {
			line("    PROXY protocol %s", u.ProxyProtocol)
		}
		if u.Servers != nil {
			line("    servers %v", u.Servers)
		}
	}
}

func renderView(line func(string, ...any), title string, v *model.View) {
	line("view %s", title)
	for _, z := range sortedBy(v.Zones, func(z model.Zone) string { return z.Origin }) {
		open := ""
		if z.Open {
			open = "open "
		}
		line("  %szone %s of %s, served by %s", open, z.Origin, z.Cluster.Key(), z.NameServer())
	}
	for _, n := range sortedBy(v.Names, func(n model.Name) string { return n.Name }) {
		line("  %s %v of %s", n.Name, n.Addresses, n.Cluster.Key())
	}
	for _, a := range sortedBy(v.Apps, func(a model.App) string { return a.Name }) {
		name := a.Name
		if a.Subtree {
			name = "*." + name
		}
		if a.Served {
			line("  apps %s %v of %s", name, a.Addresses, a.Cluster.Key())
		} else {
			line("  apps %s of %s", name, a.Cluster.Key())
		}
	}
	for _, r := range sortedBy(v.Records, func(r *model.Record) string { return r.Name + " " + string(r.Type) }) {
		ttl := ""
		if r.TTL != nil {
			ttl = fmt.Sprintf(" ttl %d", *r.TTL)
		}
		line("  record %s %s %v%q%s from %s of %s", r.Name, r.Type, r.Addresses, r.Values, ttl, r.From.Field, r.From.Object)
	}
}

func sortedBy[T any](list []T, name func(T) string) []T {
	return slices.SortedFunc(slices.Values(list), func(a, b T) int { return cmp.Compare(name(a), name(b)) })
}
