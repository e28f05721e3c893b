package apps_test

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/integration/internal/tenant"
	"github.com/densityops/oooi/test/lab"
)

// many is the number of hosted clusters of one xdsd control, and resting how long control is measured when all are ready.
var (
	many    = flag.Int("many", lab.Length(40, 200), "number of hosted clusters in TestManyHostedClusters")
	resting = flag.Duration("rest", 0, "time at rest that TestManyHostedClusters measures; 0 for none")
)

// perCluster is the maximum number of goroutines per hosted cluster: for the watches of its Service and
// its Secret, and of the connection to its API server.
const perCluster = 20

func TestManyHostedClusters(t *testing.T) {
	guest := lab.New(t, lab.Config{Name: "guests", Address: "127.96.0.78"})
	cp := tenants.Management.Get(t)
	tenant.InstallControl(t, cp)
	servers := newPartition(t, guest)
	f := &fleet{&tenant.Tenant{T: t, Management: cp, Hosted: guest, Client: cp.Client(t), Guest: guest.Client(t), Namespace: cp.Namespace(t)}}
	cp.MustApply(t, lab.Role(f.Namespace, "oooi-control", "system:serviceaccount:oooi-system:oooi-control",
		`{apiGroups: [""], resources: [secrets], verbs: [get, list, watch, create, patch, delete]}`))
	f.WriteKubeconfig(servers.kubeconfig())
	guest.MustApply(t, lab.Namespaces("openshift-ingress"))
	control := tenants.NewReplica(t, cp, "control", "--probe-interval", "10s") // the default
	control.Start(t)
	control.AwaitReady(t)
	resources := func() (goroutines, files, megabytes float64) {
		return control.Metric(t, "go_goroutines"), control.Metric(t, "process_open_fds"), control.Metric(t, "process_resident_memory_bytes") / 1e6
	}
	goroutines, files, megabytes := resources()
	idle := f.measureRest(control)

	group, _ := errgroup.WithContext(t.Context())
	group.SetLimit(8)
	for i := range *many {
		port := "1" // of the first, which does not respond, and must not delay the others
		if i > 0 {
			port = servers.listen(fmt.Sprintf("c%d", i))
		}
		group.Go(func() error { return f.apply(t.Context(), i, port) })
	}
	lab.Must(t, group.Wait())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), lab.WaitTimeout)
		defer cancel()
		lab.Report(t, f.Client.DeleteAllOf(ctx, &v1alpha1.Infra{}, client.InNamespace(f.Namespace)))
	})
	lab.Await(t, "all but the unreachable one to be ready", func() string {
		list := &v1alpha1.InfraList{}
		lab.Must(t, f.Client.List(t.Context(), list, client.InNamespace(f.Namespace)))
		phases := map[string]int{}
		for i := range list.Items {
			key := "none"
			if s := list.Items[i].Status.AppsIngress; s != nil {
				key = fmt.Sprintf("%s %s", s.Phase, s.Reason)
			}
			phases[key]++
		}
		if phases["Ready "] == *many-1 && phases["Pending HostedClusterUnreachable"] == 1 {
			return ""
		}
		f.assignAddresses()
		time.Sleep(time.Second) // polling would load the API servers more than control does
		return fmt.Sprint(phases)
	})
	goroutinesNow, filesNow, megabytesNow := resources()
	t.Logf("%d hosted clusters: goroutines %.0f -> %.0f, open files %.0f -> %.0f, resident memory %.1f MB -> %.1f MB", *many,
		goroutines, goroutinesNow, files, filesNow, megabytes, megabytesNow)
	if *resting > 0 {
		time.Sleep(*resting) // until control has handled the changes that it made itself
		atRest, each := f.measureRest(control), float64(*many)
		t.Logf("at rest: %.2f %% of a CPU, %.3f requests per second and %.1f watches per hosted cluster", 100*atRest.cpu,
			(atRest.requests-idle.requests)/each, (atRest.watches-idle.watches)/each)
	}
	if *away > 0 {
		f.loseManagement(control)
	}
	if each := (goroutinesNow - goroutines) / float64(*many); each > perCluster || each <= 0 {
		t.Errorf("%.1f goroutines per hosted cluster", each)
	}
	if each := (filesNow - files) / float64(*many); each > 4 {
		t.Errorf("%.1f open files per hosted cluster", each)
	}
}

// fleet is many hosted clusters in one namespace that share an admin kubeconfig, in the partition of one API server.
type fleet struct{ *tenant.Tenant }

// apply applies the objects of hosted cluster number i: HostedCluster, Service of the API server and Infra.
func (f *fleet) apply(ctx context.Context, i int, port string) error {
	site := f.site(i)
	yaml := lab.Namespaces(site.ControlPlaneNamespace()) + site.HostedCluster().YAML() +
		lab.Service(site.ControlPlaneNamespace(), "kube-apiserver", 0, "spec: {ports: [{port: "+port+"}]}") +
		site.Infra("spec: {infraComponents: {dhcp: null, dns: null}, appsIngress: {enabled: true, kubeconfigSecretRef: {name: demo-admin-kubeconfig}, metallb: {loadBalancerClass: "+tenant.Class+"}}}")
	return f.Management.ApplyYAML(ctx, []byte(yaml))
}

// site returns the site of hosted cluster number i.
func (f *fleet) site(i int) lab.Site {
	name := fmt.Sprintf("c%d", i)
	return lab.Site{Namespace: f.Namespace, Name: name, BaseDomain: f.Namespace + ".example.com", VLAN: vlanPrefix(i), Network: name}
}

// vlanPrefix returns the first three bytes of the addresses of hosted cluster number i.
func vlanPrefix(i int) string { return fmt.Sprintf("10.%d.%d", i/250, i%250) }

// use is what control and the API servers have done, and do.
type use struct{ cpu, requests, watches float64 }

func (f *fleet) use(control *lab.Replica) use {
	f.Helper()
	u := use{cpu: control.Metric(f.T, "process_cpu_seconds_total")}
	for _, cp := range []*lab.ControlPlane{f.Management, f.Hosted} {
		u.requests += apiServerMetric(f.T, cp, "apiserver_request_total")
		u.watches += apiServerMetric(f.T, cp, "apiserver_longrunning_requests")
	}
	return u
}

// measureRest returns control's CPU time, and the requests to both API servers, including the servers' requests to themselves, in a second in which nothing
// changes, and the number of watches. Without time to measure it returns zeros.
func (f *fleet) measureRest(control *lab.Replica) use {
	f.Helper()
	if *resting == 0 {
		return use{}
	}
	before, start := f.use(control), time.Now()
	time.Sleep(*resting) // a measurement, not a wait
	after, seconds := f.use(control), time.Since(start).Seconds()
	return use{(after.cpu - before.cpu) / seconds, (after.requests - before.requests) / seconds, after.watches}
}

// apiServerMetric returns a metric of an API server, as lab.Metric.
func apiServerMetric(t *testing.T, cp *lab.ControlPlane, metric string) float64 {
	t.Helper()
	page, err := cp.Kube(t).RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	lab.Must(t, err)
	return lab.Metric(t, page, metric)
}

// assignAddresses assigns an address of its VLAN to each apps Service that has none.
func (f *fleet) assignAddresses() {
	f.Helper()
	services := &corev1.ServiceList{}
	lab.Must(f, f.Guest.List(f.Context(), services, client.MatchingLabels{"app.kubernetes.io/managed-by": "oooi"}))
	for i := range services.Items {
		s := &services.Items[i]
		if len(s.Status.LoadBalancer.Ingress) > 0 {
			continue
		}
		number, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(s.Name, "c"), "-apps"))
		lab.Must(f, err)
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: vlanPrefix(number) + ".200"}}
		if err := f.Guest.Status().Update(f.Context(), s); client.IgnoreNotFound(err) != nil {
			f.Log(err) // the next call retries
		}
	}
}
