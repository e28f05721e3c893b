package model_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/test/lab"
)

// FuzzObjects builds snapshots of the objects in arbitrary files. No object may make the process panic, and
// neither the order of the objects nor the snapshot file may change the result. One file takes milliseconds,
// which is slow: use -fuzzminimizetime 1s.
func FuzzObjects(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		lab.Must(f, err)
		for document := range bytes.SplitSeq(data, []byte("\n---\n")) { // short seeds are mutated faster
			f.Add(document)
		}
	}
	for _, seed := range []string{
		"",
		"{}",
		`{"kind": "List", "items": [null, {}, 1]}`,
		`{"apiVersion": "v1", "kind": "ServiceList", "items": [{"metadata": {"name": "p"}, "spec": {"clusterIPs": ["None", "x", "::1"]}}]}`,
		`{"apiVersion": "hypershift.openshift.io/v1beta1", "kind": "HostedCluster", "metadata": {"name": "a"}, "spec": {"dns": {"baseDomain": "\u212a.com."}}}`,
		`{"apiVersion": "hypershift.openshift.io/v1beta1", "kind": "HostedCluster", "metadata": {"name": 1}, "spec": []}`,
		`{"apiVersion": "route.openshift.io/v1", "kind": "Route", "metadata": {"name": "r", "namespace": "-a"}, "spec": {"host": "*.a.b", "to": {"name": "oauth-openshift"}}}`,
		"apiVersion: v1\nkind: Service\nmetadata: {name: &n p, namespace: *n}\n---\n---\napiVersion: v1",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		lab.Must(t, os.WriteFile(filepath.Join(dir, "objects.yaml"), data, 0o600))
		in, err := watch.ReadManifests(dir, model.Options{})
		lab.Must(t, err)
		checkObjects(t, in, "clusters/demo")
	})
}

// FuzzGenerated builds snapshots of well-formed objects that conflict with each other: they have few names,
// domains and addresses.
func FuzzGenerated(f *testing.F) {
	for seed := range uint64(30) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		checkObjects(t, generate(rand.New(rand.NewPCG(seed, 0))), "a/a")
	})
}

// FuzzBuilder applies changes to a Builder. Each snapshot must equal the snapshot of all objects as one group, and share what did not
// change with its predecessor.
func FuzzBuilder(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		all := buildOptions("a/a")
		options := all[random.IntN(len(all))]
		if random.IntN(4) == 0 {
			options.Names.Management = []string{"a.test"}
		}
		if random.IntN(2) == 0 {
			options.Leases = []string{model.AllLeases}
		}
		builder := model.NewBuilder(options, nil)
		in, before := &model.Objects{}, &model.Objects{}
		for round := range 12 {
			in = mutate(random, in, separate(random, withoutAmbiguousSelectors(generate(random))))
			in.NetworkAttachments, in.DHCPLeases = randomNetworks(random, in), randomLeases(random, before.DHCPLeases)
			s := builder.Update(changesOf(before, in))
			if diff := cmp.Diff(render(model.BuildAsOneGroup(in, options)), render(s)); diff != "" {
				t.Fatalf("round %d: the snapshot differs from the snapshot of all objects (-want +got):\n%s", round, diff)
			}
			checkSnapshot(t, s)
			checkParts(t, s)
			same := builder.Update(nil)
			if same.Pod() != s.Pod() || !slices.Equal(same.Clusters, s.Clusters) || !slices.Equal(same.Parts, s.Parts) || !slices.Equal(same.ProxyServers, s.ProxyServers) {
				t.Errorf("without changes, clusters, views or proxies are not shared")
			}
			before = in
			in.LastGood = s.LastGood()
		}
	})
}

// randomNetworks returns the NetworkAttachmentDefinitions of Infras and ProxyServers, some for the same network.
func randomNetworks(random *rand.Rand, in *model.Objects) []*objects.NetworkAttachment {
	var list []*objects.NetworkAttachment
	known := map[string]bool{}
	var nads []types.NamespacedName
	for _, i := range in.Infras {
		nads = append(nads, i.Spec.NetworkConfig.NetworkAttachment(i.Namespace))
	}
	for _, p := range in.ProxyServers {
		nads = append(nads, p.Spec.NetworkConfig.NetworkAttachment(p.Namespace))
	}
	for _, nad := range nads {
		if known[nad.String()] || nad.Name == "" {
			continue
		}
		known[nad.String()] = true
		list = append(list, &objects.NetworkAttachment{
			ObjectMeta: metav1.ObjectMeta{Namespace: nad.Namespace, Name: nad.Name}, Network: fmt.Sprintf("bridge br1 vlan %d", random.IntN(3*len(nads))),
		})
	}
	return list
}

// randomLeases returns leases, some of which are in before: of few VMs, interfaces, host names and addresses, so that they conflict.
func randomLeases(random *rand.Rand, before []*objects.DHCPLease) []*objects.DHCPLease {
	var list []*objects.DHCPLease
	for pool := range 2 {
		for host := range 4 {
			l := &objects.DHCPLease{
				VM: fmt.Sprintf("vms/vm-%d", random.IntN(3)), Interface: fmt.Sprintf("nic-%d", random.IntN(2)),
				Hostname: []string{"vm-0", "VM-1", "api", "-", ""}[random.IntN(5)],
				Address:  netip.AddrFrom4([4]byte{192, 0, 2, byte(20 + host)}), Used: time.Unix(random.Int64N(3), 0),
			}
			l.Namespace = []string{"a", "b"}[pool]
			l.Name = dhcplease.Name(l.Namespace+".a", l.Address)
			l.CreationTimestamp = metav1.Unix(random.Int64N(3), 0)
			at := slices.IndexFunc(before, func(o *objects.DHCPLease) bool { return o.Name == l.Name })
			switch {
			case random.IntN(4) == 0:
			case at >= 0 && random.IntN(2) == 0:
				list = append(list, before[at])
			case random.IntN(6) == 0: // the lease has ended
				list = append(list, &objects.DHCPLease{ObjectMeta: l.ObjectMeta})
			default:
				list = append(list, l)
			}
		}
	}
	return list
}

// separate gives most HostedClusters and Infras separate domains, networks and references, so that only some of them
// affect each other.
func separate(random *rand.Rand, in *model.Objects) *model.Objects {
	own := func() bool { return random.IntN(4) > 0 }
	for _, hc := range in.HostedClusters {
		id := hc.Namespace + hc.Name
		if own() {
			hc.Spec.DNS = objects.HostedClusterDNS{BaseDomain: id + ".test"}
		}
		if own() {
			hc.Spec.KubeAPIServerDNSName, hc.Spec.Services = "kas-"+id+".a.test", nil
		}
		if own() {
			hc.Spec.Configuration, hc.Status = nil, objects.HostedClusterStatus{}
		}
		if random.IntN(4) == 0 {
			hc.Spec.Platform.KubeVirt = &objects.KubeVirtPlatform{Credentials: &objects.KubeVirtCredentials{InfraNamespace: "b-b"}}
		}
	}
	for i, infra := range in.Infras {
		id := infra.Namespace + infra.Name
		if own() {
			infra.Spec.HostedClusterRef = &v1alpha1.HostedClusterReference{Namespace: infra.Namespace, Name: infra.Name}
		}
		if own() {
			infra.Spec.NetworkConfig = v1alpha1.NetworkConfig{CIDR: fmt.Sprintf("192.0.%d.0/24", 10+i), NetworkAttachmentDefinition: "v-" + id}
		}
		if own() {
			infra.Spec.InfraComponents.DNS = nil
		}
		if infra.Spec.AppsIngress != nil && own() {
			infra.Spec.AppsIngress.BaseDomain = ""
		}
		if proxy := infra.Spec.InfraComponents.Proxy; proxy != nil && own() {
			proxy.ControlPlaneNamespace = ""
		}
		service := &objects.Service{ObjectMeta: metav1.ObjectMeta{Namespace: infra.Namespace, Name: infra.Name + "-dns"}}
		service.Spec.ClusterIPs = []string{fmt.Sprintf("10.96.0.%d", random.IntN(3))}
		infra.Spec.NetworkConfig.DNSServers = []string{"10.96.0.1"}
		in.Services = append(in.Services, service)
	}
	for i, host := range []string{"canary.apps.a.test", "api.a.a.test", "kas-aa.a.test"} {
		r := &objects.Route{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-ingress-canary", Name: "canary"}}
		if i > 0 {
			r.Namespace, r.Name = "outside", fmt.Sprint("r", i)
		}
		r.Spec.Host = host
		if random.IntN(2) == 0 {
			r.Status.Ingress = []objects.RouteIngress{{Host: host, Conditions: []objects.RouteCondition{{Type: "Admitted", Status: "True"}}}}
		}
		in.Routes = append(in.Routes, r)
	}
	return in
}

// changesOf returns the changes from one set of objects to another.
func changesOf(before, now *model.Objects) []model.Change {
	type key struct{ kind, namespace, name string }
	old := map[key]objects.Object{}
	for _, c := range before.Additions() {
		old[key{c.Kind, c.Namespace, c.Name}] = c.Now
	}
	var changes []model.Change
	for _, c := range now.Additions() {
		k := key{c.Kind, c.Namespace, c.Name}
		if old[k] != c.Now {
			changes = append(changes, c)
		}
		delete(old, k)
	}
	for k := range old {
		changes = append(changes, model.Change{Kind: k.kind, Namespace: k.namespace, Name: k.name})
	}
	return changes
}

// checkParts checks that the Parts of a snapshot have every cluster once, and that no name of a Part is in another.
func checkParts(t *testing.T, s *model.Snapshot) {
	t.Helper()
	var clusters []*model.Cluster
	owners := map[string]int{}
	for i, p := range s.Parts {
		clusters = append(clusters, p.Clusters...)
		for _, z := range p.Pod.Zones {
			owners[z.Origin] = i
		}
	}
	if len(clusters) != len(s.Clusters) {
		t.Errorf("the parts have %d clusters, want %d", len(clusters), len(s.Clusters))
	}
	for i, p := range s.Parts {
		for _, z := range p.Pod.Zones {
			for at := z.Origin; at != ""; _, at, _ = strings.Cut(at, ".") {
				if owner, ok := owners[at]; ok && owner != i {
					t.Errorf("zone %s of part %d is in %s of part %d", z.Origin, i, at, owner)
				}
			}
		}
	}
}

// withoutAmbiguousSelectors makes every selector choose the oldest Service. With OnMultipleFail the result
// depends on the previous snapshot.
func withoutAmbiguousSelectors(in *model.Objects) *model.Objects {
	for _, p := range in.ProxyServers {
		for i := range p.Spec.Backends {
			if s := p.Spec.Backends[i].TargetSelector; s != nil {
				s.OnMultiple = v1alpha1.OnMultipleOldest
			}
		}
	}
	return in
}

// mutate returns most of one set of objects and some of another.
func mutate(random *rand.Rand, in, other *model.Objects) *model.Objects {
	out := *in
	out.HostedClusters = mix(random, in.HostedClusters, other.HostedClusters)
	out.Infras = mix(random, in.Infras, other.Infras)
	out.Services = mix(random, in.Services, other.Services)
	out.Routes = mix(random, in.Routes, other.Routes)
	out.ProxyServers = mix(random, in.ProxyServers, other.ProxyServers)
	out.AppsServices = mix(random, in.AppsServices, other.AppsServices)
	return &out
}

// mix returns a list with most objects of in and a few of other.
func mix[T objects.Object](random *rand.Rand, in, other []T) []T {
	var out []T
	has := map[string]bool{}
	add := func(o T) {
		if key := o.GetNamespace() + "/" + o.GetName(); !has[key] {
			has[key] = true
			out = append(out, o)
		}
	}
	for _, o := range other {
		if random.IntN(8) == 0 {
			add(o)
		}
	}
	for _, o := range in {
		if random.IntN(16) != 0 {
			add(o)
		}
	}
	return out
}

// checkObjects checks the snapshots of objects with different options: all objects, the scope of one object,
// and apps addresses of all.
func checkObjects(t *testing.T, in *model.Objects, object string) {
	t.Helper()
	decoded := throughSnapshotFile(t, in)
	for _, options := range buildOptions(object) {
		snapshot := model.Build(in, options)
		checkSnapshot(t, snapshot)
		want := render(snapshot)
		if got := render(model.Build(shuffled(in), options)); got != want {
			t.Errorf("the snapshot depends on the order of the objects:\n%s", cmp.Diff(want, got))
		}
		if got := render(model.Build(decoded, options)); got != want {
			t.Errorf("the snapshot differs after the snapshot file:\n%s", cmp.Diff(want, got))
		}
	}
}

// buildOptions returns different options: all objects, the scope of one object, and apps addresses of all.
func buildOptions(object string) []model.Options {
	everywhere := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	return []model.Options{
		{},
		{Scope: model.Scope{Infras: []string{object}}},
		{Scope: model.Scope{HostedClusters: []string{object}}, Apps: &model.AppsOptions{}},
		{Apps: &model.AppsOptions{}, Proxies: true},
		{Apps: &model.AppsOptions{Sources: []model.AppsSource{model.AppsHosted, model.AppsMirrored, model.AppsStatus}}},
		{Apps: &model.AppsOptions{Sources: []model.AppsSource{model.AppsMirrored}, Selector: map[string]string{"app": "a"}, Allow: everywhere}},
		{Apps: &model.AppsOptions{Sources: []model.AppsSource{model.AppsMirrored}, Service: "a/a-proxy", Allow: everywhere}},
	}
}

// generate returns random objects with unique names.
func generate(random *rand.Rand) *model.Objects {
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	domain := func() string {
		return pick("", "a.test", "b.test", "a.a.test", "api.a.a.test", "apps.a.a.test", "x.apps.a.a.test", "test", "192.0.2.1", "-", "cluster.local")
	}
	host := func() string { return pick("", "", "api.", "oauth.", "x.y.", "ns.dns.", "*.", "A.") + domain() }
	address := func() string {
		return pick("192.0.2.9", "192.0.2.10", "198.51.100.9", "::ffff:192.0.2.9", "fe80::1%eth0", "2001:db8::9", "x", "")
	}
	maybe := func() bool { return random.IntN(2) == 0 }
	in := &model.Objects{}
	for _, namespace := range []string{"a", "b"} {
		for _, name := range []string{"a", "b"} {
			meta := func(name string) metav1.ObjectMeta {
				return metav1.ObjectMeta{
					Namespace: namespace, Name: name, CreationTimestamp: metav1.Unix(int64(random.IntN(3)), 0),
				}
			}
			if maybe() {
				hc := &objects.HostedCluster{ObjectMeta: meta(name)}
				hc.Spec.InfraID = pick("", "x1", "x2")
				hc.Spec.DNS.BaseDomain = domain()
				if maybe() {
					prefix := pick("", "a", "api")
					hc.Spec.DNS.BaseDomainPrefix = &prefix
				}
				hc.Spec.KubeAPIServerDNSName = host()
				hc.Spec.Services = []objects.ServicePublishing{
					{Service: "APIServer", Strategy: objects.PublishingStrategy{Type: "LoadBalancer", LoadBalancer: &objects.PublishedHost{Hostname: host()}}},
					{Service: "Ignition", Strategy: objects.PublishingStrategy{Type: "NodePort", NodePort: &objects.NodePort{Address: host(), Port: 30000}}},
				}
				if maybe() {
					hc.Spec.Configuration = &objects.HostedClusterConfiguration{Ingress: &objects.IngressConfiguration{Domain: host(), AppsDomain: host()}}
				}
				hc.Status.IgnitionEndpoint = host() + pick("", ":443", ":x")
				hc.Status.OAuthCallbackURLTemplate = "https://" + host() + pick("", ":6443") + "/oauth2callback/[identity-provider-name]"
				in.HostedClusters = append(in.HostedClusters, hc)
			}
			if maybe() {
				infra := &v1alpha1.Infra{ObjectMeta: meta(name)}
				if maybe() {
					infra.Spec.HostedClusterRef = &v1alpha1.HostedClusterReference{Namespace: pick("a", "b"), Name: pick("a", "b", "c")}
				}
				infra.Spec.NetworkConfig.CIDR = pick("", "192.0.2.0/24", "192.0.2.7/25", "198.51.100.0/24", "::ffff:192.0.2.0/120", "x")
				infra.Spec.NetworkConfig.NetworkAttachmentDefinition = pick("", "v", "a/v", "b/v")
				if maybe() {
					infra.Spec.InfraComponents.DNS = &v1alpha1.InfraDNS{ServerIP: pick("", "192.0.2.2"), ClusterName: pick("", "a"), BaseDomain: domain()}
					if maybe() {
						infra.Spec.InfraComponents.DNS.VMNames = &v1alpha1.VMNames{Enabled: true, Domain: pick("", "vms.test", domain())}
					}
					for range random.IntN(4) {
						infra.Spec.InfraComponents.DNS.Records = append(infra.Spec.InfraComponents.DNS.Records, v1alpha1.DNSRecord{
							Name: host(), Type: v1alpha1.DNSRecordType(pick("A", "AAAA", "CNAME", "TXT", "MX")), Values: []string{pick(address(), host())},
							Views: []v1alpha1.DNSView{v1alpha1.DNSView(pick("vlan", "pod"))},
						})
					}
				}
				if maybe() {
					infra.Spec.InfraComponents.Proxy = &v1alpha1.InfraProxy{
						ServerIP:              pick("", "192.0.2.3", "192.0.2.3/24", "0.0.0.0", "x"),
						AdditionalServerIPs:   []v1alpha1.IP{v1alpha1.IP(pick("192.0.2.3", "::ffff:192.0.2.4", "2001:db8::3", "fe80::1%eth0"))},
						ControlPlaneNamespace: pick("", "a-a", "b-b", "c-c"),
						InternalProxyService:  pick("", "p", "p.b", "p.b.svc.cluster.local", "10.96.0.9"),
					}
				}
				if maybe() {
					infra.Spec.AppsIngress = &v1alpha1.AppsIngress{
						Enabled: maybe(), BaseDomain: pick("", "apps.") + domain(),
						Source:    v1alpha1.AppsIngressSource(pick("", "HostedService", "MirroredService", "Static")),
						Addresses: []v1alpha1.IP{v1alpha1.IP(pick("192.0.2.9", "x"))},
						Dial:      v1alpha1.AppsIngressDial(pick("Service", "URL")),
					}
					infra.Status.AppsIngress = &v1alpha1.AppsIngressStatus{ExternalIP: address(), ExternalIPs: []string{address()}}
				}
				in.Infras = append(in.Infras, infra)
			}
			if maybe() {
				s := &objects.Service{ObjectMeta: meta(pick("p", name+"-proxy"))}
				s.Spec.ClusterIPs = []string{pick("None", "10.96.0.1", "x"), pick("fd00::1", "10.96.0.1")}
				if !slices.ContainsFunc(in.Services, func(o *objects.Service) bool { return o.Namespace == s.Namespace && o.Name == s.Name }) {
					in.Services = append(in.Services, s)
				}
			}
			for _, mirror := range []string{"m1", "m2"} {
				if maybe() {
					m := loadBalancer(meta(mirror), address(), pick("x1", "x2"), pick("a", "b"))
					m.Namespace = namespace + "-" + name
					in.Services = append(in.Services, m)
				}
			}
			if maybe() {
				hostedService := &objects.AppsService{ObjectMeta: meta(name), Read: maybe()}
				if maybe() {
					hostedService.Service = loadBalancer(meta(name+"-apps"), address(), "", "")
				}
				if maybe() {
					hostedService.Fault = objects.Fault{Reason: "HostedClusterUnreachable", Message: "no route"}
				}
				in.AppsServices = append(in.AppsServices, hostedService)
			}
			for _, service := range []string{"kube-apiserver", "oauth-openshift", "metrics-proxy", "other"} {
				r := &objects.Route{ObjectMeta: meta(name + service)}
				r.Namespace = pick("a", "b") + "-" + name
				r.Name = namespace + service
				r.Spec.Host, r.Spec.To.Name, r.Spec.WildcardPolicy = host(), service, pick("", "None", "Subdomain")
				in.Routes = append(in.Routes, r)
			}
		}
	}
	for _, name := range []string{"p", "q"} {
		if !maybe() {
			continue
		}
		p := &v1alpha1.ProxyServer{ObjectMeta: metav1.ObjectMeta{Namespace: pick("a", "b"), Name: name}}
		p.Spec.NetworkConfig.ServerIP = pick("", "192.0.2.3/24", "x")
		if maybe() {
			p.Spec.InfraRef = &v1alpha1.InfraReference{Name: pick("a", "b", "c")}
		}
		for range random.IntN(4) {
			backend := v1alpha1.ProxyBackend{
				Name: pick("x", "y"), Hostname: pick("*.", "") + host(), AlternateHostnames: []string{host()}, Port: int32(random.IntN(3)*363 + 80),
				TargetService: pick("p", "kube-apiserver", "missing"), TargetPort: intstr.FromInt32(443), TargetNamespace: pick("a", "a-a"),
				HTTP: pickRules(random), Protocol: v1alpha1.Protocol(pick("", "TCP", "TLS", "UDP", "HTTP")), TimeoutSeconds: int32(random.IntN(2)),
			}
			if maybe() {
				backend.TargetService = ""
				backend.TargetSelector = &v1alpha1.ServiceSelector{
					MatchLabels: map[string]string{"app": "a"}, OnMultiple: v1alpha1.OnMultiple(pick("", "Fail", "Newest", "Oldest")),
				}
			}
			p.Spec.Backends = append(p.Spec.Backends, backend)
		}
		in.ProxyServers = append(in.ProxyServers, p)
	}
	in.LastServices = map[string]string{"proxy/a/a/a": "a/a"}
	in.LastGood = map[string][]netip.Addr{"a/a": {netip.MustParseAddr("192.0.2.8")}}
	return in
}

// loadBalancer returns a Service as the KubeVirt cloud controller creates it.
func loadBalancer(meta metav1.ObjectMeta, address, infraID, cluster string) *objects.Service {
	s := &objects.Service{ObjectMeta: meta}
	s.Spec.Type = "LoadBalancer"
	s.Labels = map[string]string{
		"app":                                       "a",
		"cluster.x-k8s.io/cluster-name":             infraID,
		"cluster.x-k8s.io/tenant-service-name":      cluster + "-apps",
		"cluster.x-k8s.io/tenant-service-namespace": v1alpha1.DefaultAppsServiceNamespace,
	}
	s.Status.LoadBalancer.Ingress = []objects.LoadBalancerIngress{{IP: address}}
	return s
}

// shuffled returns the objects in random order.
func shuffled(in *model.Objects) *model.Objects {
	out := *in
	random := rand.New(rand.NewPCG(1, 2)) // deterministic
	out.HostedClusters = shuffle(random, in.HostedClusters)
	out.Infras = shuffle(random, in.Infras)
	out.Services = shuffle(random, in.Services)
	out.Routes = shuffle(random, in.Routes)
	out.AppsServices = shuffle(random, in.AppsServices)
	out.ProxyServers = shuffle(random, in.ProxyServers)
	out.Broken = shuffle(random, in.Broken)
	return &out
}

func shuffle[T any](random *rand.Rand, list []T) []T {
	list = slices.Clone(list)
	random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// throughSnapshotFile returns the objects after encoding and decoding, as in the snapshot file.
func throughSnapshotFile(t *testing.T, in *model.Objects) *model.Objects {
	t.Helper()
	data, err := json.Marshal(in)
	lab.Must(t, err)
	out := &model.Objects{}
	lab.Must(t, json.Unmarshal(data, out))
	return out
}

// checkSnapshot checks the guarantees that readers of a snapshot rely on.
func checkSnapshot(t *testing.T, s *model.Snapshot) {
	t.Helper()
	if _, err := json.Marshal(s); err != nil {
		t.Errorf("encoding the snapshot: %v", err)
	}
	checkView(t, s.Pod())
	for _, vlan := range s.VLANs {
		checkView(t, vlan.View)
		for _, n := range vlan.View.Names {
			served := func(i *model.Infra) bool {
				return i.VLAN == vlan.Name && (i.Serves != nil && *i.Serves == n.Cluster || i.Ref == n.Cluster) // itself for its reverse zones
			}
			if !slices.ContainsFunc(s.Infras, served) {
				t.Errorf("VLAN %s has %s of %s, which none of its Infras serves", vlan.Name, n.Name, n.Cluster)
			}
		}
		for _, i := range s.Infras {
			if (i.VLAN == vlan.Name) != vlan.Uses(i.NetworkAttachment) {
				t.Errorf("%s is on VLAN %s, and %s uses its NetworkAttachmentDefinition: %t", i.Ref, i.VLAN, vlan.Name, vlan.Uses(i.NetworkAttachment))
			}
		}
		for _, cidr := range vlan.CIDRs {
			if cidr != cidr.Masked() || cidr.Addr().Is4In6() {
				t.Errorf("VLAN %s: no client can be in %s", vlan.Name, cidr)
			}
		}
	}
	for _, c := range s.Clusters {
		for _, h := range c.Hostnames {
			for _, e := range h.Endpoints {
				if e.Role.Backend().Service == "" || e.Source == "" {
					t.Errorf("%s has an endpoint without backend or source: %+v", h.Name, e)
				}
			}
		}
	}
	for _, p := range s.ProxyServers {
		checkProxy(t, p)
	}
	for _, p := range s.Problems {
		if p.Object.Kind == "" || p.Reason == "" || p.Message == "" {
			t.Errorf("problem %+v is incomplete", p)
		}
	}
}

// pickRules returns HTTP rules, or nil.
func pickRules(random *rand.Rand) *v1alpha1.HTTPRoutes {
	routes := &v1alpha1.HTTPRoutes{}
	for range random.IntN(4) {
		rule := v1alpha1.HTTPRouteRule{}
		for range random.IntN(3) {
			rule.Matches = append(rule.Matches, v1alpha1.HTTPRouteMatch{Path: &v1alpha1.HTTPPathMatch{
				Type:  []v1alpha1.PathMatchType{"", "Exact", "PathPrefix"}[random.IntN(3)],
				Value: []string{"", "/", "/a", "/a/", "/a/b", "//", "/..", "a"}[random.IntN(8)],
			}})
		}
		for range random.IntN(3) {
			rule.BackendRefs = append(rule.BackendRefs, v1alpha1.HTTPBackendRef{Name: []string{"p", "missing"}[random.IntN(2)], Port: 443, Weight: new(int32(random.IntN(3)))})
		}
		routes.Rules = append(routes.Rules, rule)
	}
	if routes.Rules == nil {
		return nil
	}
	return routes
}

// checkProxy checks the guarantees that readers of a proxy rely on.
func checkProxy(t *testing.T, p *model.ProxyServer) {
	t.Helper()
	upstreams := map[string]bool{}
	for _, u := range p.Upstreams {
		if upstreams[u.Name] || u.ConnectTimeout <= 0 {
			t.Errorf("upstream %+v", u)
		}
		upstreams[u.Name] = true
	}
	type port struct {
		number int32
		udp    bool
	}
	ports := map[port]bool{}
	for _, l := range p.Listeners {
		if ports[port{l.Port, l.UDP}] || l.UDP && (len(l.Routes) != 1 || l.HTTP || l.Default != "") || l.Port <= 0 || l.Port > 65535 {
			t.Errorf("%s listens on %d", p.Ref, l.Port)
		}
		ports[port{l.Port, l.UDP}] = true
		upstreamNames := []string{l.Default}
		hosts := map[string]bool{}
		for _, r := range l.Routes {
			upstreamNames = append(upstreamNames, r.Upstream)
			for _, rule := range r.Rules {
				for _, b := range rule.Backends {
					upstreamNames = append(upstreamNames, b.Upstream)
				}
			}
			anyHost := l.HTTP && r.Host == "*"
			if hosts[r.Host] || r.Host != strings.ToLower(r.Host) || strings.Contains(strings.TrimPrefix(r.Host, "*."), "*") && !anyHost || r.Upstream == "" && r.Rules == nil || r.Rules != nil && !l.HTTP {
				t.Errorf("route %+v of %s on %d", r, p.Ref, l.Port)
			}
			hosts[r.Host] = true
		}
		for _, name := range upstreamNames {
			if name != "" && !upstreams[name] {
				t.Errorf("%s on %d routes to upstream %s, which does not exist", p.Ref, l.Port, name)
			}
		}
	}
}

func checkView(t *testing.T, v *model.View) {
	t.Helper()
	var origins, names []string
	for _, z := range v.Zones {
		origins = append(origins, z.Origin)
	}
	for _, n := range v.Names {
		names = append(names, n.Name)
		if !slices.ContainsFunc(origins, func(origin string) bool { return n.Name == origin || strings.HasSuffix(n.Name, "."+origin) }) {
			t.Errorf("%s is in no zone of the view", n.Name)
		}
		for i, a := range n.Addresses {
			if !a.IsValid() || a.Is4In6() || a.Zone() != "" || i > 0 && !n.Addresses[i-1].Less(a) {
				t.Errorf("%s has the addresses %v", n.Name, n.Addresses)
			}
		}
	}
	for _, list := range [][]string{origins, names} {
		if unique := slices.Compact(slices.Sorted(slices.Values(list))); len(unique) != len(list) {
			t.Errorf("duplicates in %v", list)
		}
		for _, name := range list {
			if name != strings.ToLower(name) || strings.HasSuffix(name, ".") || !strings.Contains(name, ".") || strings.ContainsAny(name, `\*"/ `) {
				t.Errorf("%q is not a valid name", name)
			}
		}
	}
}
