package apps_test

import (
	"context"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// away is how long the API server of the management cluster does not run in TestManyHostedClusters, and sampled the number of Infras
// whose coredns and xdsd serve run meanwhile.
var (
	away    = flag.Duration("away", 0, "time without the management cluster's API server in TestManyHostedClusters; 0 for none")
	sampled = flag.Int("daemons", 10, "number of Infras whose coredns and xdsd serve run while the API server is away")
)

// recovery is the maximum time from the API server's return until the statuses of all Infras are current.
const recovery = time.Minute

// loseManagement stops the API server of the management cluster. When it is back, it changes all hosted clusters, and waits until the
// statuses of all Infras are current.
func (f *fleet) loseManagement(control *lab.Replica) {
	f.Helper()
	for i := range min(*sampled, *many) {
		f.startDaemons(i)
	}
	outage := lab.StartOutage(f.T, f.Management)
	restarts := 0
	for end := time.Now().Add(*away); time.Now().Before(end); time.Sleep(time.Second) {
		if control.Exited() { // it has lost its Lease; the kubelet restarts it
			control.Start(f.T)
			restarts++
		}
	}
	if restarts > 1 { // Kubernetes would delay the next one for up to five minutes
		f.Errorf("control exited %d times while the API server was away:\n%s", restarts, control.Log.Tail())
	}
	outage.End(f.T)
	returned := time.Now()

	group, ctx := errgroup.WithContext(f.Context())
	group.SetLimit(8)
	for i := range *many {
		group.Go(func() error { return f.moveVMs(ctx, i) })
	}
	lab.Must(f, group.Wait())
	changed := time.Since(returned)
	lab.Await(f.T, "the statuses of all Infras to be current", f.outdated)
	took := time.Since(returned)
	f.Logf("%d of %d hosted clusters were changed %s after the API server's return, and all statuses were current after %s, when the API server had "+
		"used %.1f s of CPU", *many, *many, changed.Round(time.Millisecond), took.Round(time.Millisecond), f.apiServerCPU())
	if took > recovery {
		f.Errorf("the statuses are current %s after the API server's return, want %s", took, recovery)
	}
	time.Sleep(time.Until(returned.Add(recovery)))
	f.Logf("the API server used %.1f s of CPU within %s; restarts of control meanwhile: %d", f.apiServerCPU(), recovery, restarts)
	f.logRequests(returned)
}

// moveVMs changes a HostedCluster so that the status of its Infra changes: its VMs run in another cluster.
func (f *fleet) moveVMs(ctx context.Context, i int) error {
	return f.Management.ApplyYAML(ctx, []byte(lab.Merge(f.site(i).HostedCluster().YAML(),
		"spec: {platform: {kubevirt: {credentials: {infraNamespace: vms, infraKubeConfigSecret: {name: infra, key: kubeconfig}}}}}")))
}

// outdated returns how many Infras do not report the change of moveVMs, or "".
func (f *fleet) outdated() string {
	list := &v1alpha1.InfraList{}
	lab.Must(f, f.Client.List(f.Context(), list, client.InNamespace(f.Namespace)))
	current := 0
	for i := range list.Items {
		bound := meta.FindStatusCondition(list.Items[i].Status.Conditions, v1alpha1.ConditionHostedClusterBound)
		if bound != nil && strings.Contains(bound.Message, "run in another cluster") {
			current++
		}
	}
	if current == *many {
		return ""
	}
	time.Sleep(200 * time.Millisecond) // polling would load the API server more than control does
	return fmt.Sprintf("%d of %d are current", current, *many)
}

func (f *fleet) apiServerCPU() float64 {
	f.Helper()
	return apiServerMetric(f.T, f.Management, "process_cpu_seconds_total") // since its start
}

// startDaemons starts coredns and xdsd serve of Infra number i, each as a user with its name.
func (f *fleet) startDaemons(i int) {
	f.Helper()
	site := f.site(i)
	self, dir := f.Namespace+"/"+site.Name, lab.TempDir(f.T)
	f.Management.MustApply(f.T, site.ProxyServer())
	kubeconfig := func(daemon string) string {
		user := "reader-" + site.Name + "-" + daemon
		f.Management.MustApply(f.T, readRoles(f.Namespace, site.Name, user))
		path, err := f.Management.UserKubeconfig(user)
		lab.Must(f, err)
		return path
	}
	address := fmt.Sprintf("198.18.%d.1", 1+i)
	text := strings.NewReplacer(dnsServer, address, "/demo", "/"+site.Name).Replace(fmt.Sprintf(corefile, kubeconfig("coredns"), f.Namespace, filepath.Join(dir, "dns.json")))
	path, credentials := lab.WriteFile(f, text, dir, "Corefile"), kubeconfig("xdsd")
	for name, args := range map[string][]string{
		"coredns": {"-conf", path, "-http", address + ":9908"},
		"xdsd": {
			"serve", "--kubeconfig", credentials, "--proxy-server", self, "--infra", self, "--hosted-cluster", self, "--namespace", f.Namespace,
			"--socket", filepath.Join(dir, "xds.sock"), "--bind", address, "--http", address + ":9902", "--snapshot", filepath.Join(dir, "xds.json"),
		},
	} {
		binary := network.Binary(f.T, name)
		lab.NewDaemon(f.T, name, func() *exec.Cmd { return exec.Command(binary, args...) }).Start(f.T)
	}
}

// logRequests logs when the requests of control and of the daemons arrived after a time.
func (f *fleet) logRequests(since time.Time) {
	f.Helper()
	for name, load := range lab.LoadsOf(f.T, f.Management, since) {
		if strings.HasPrefix(name, "reader-") || strings.HasSuffix(name, ":oooi-control") {
			times := load.Times()
			var seconds [60]int
			for _, at := range times {
				seconds[min(int(at.Sub(since).Seconds()), len(seconds)-1)]++
			}
			f.Logf("%s: %d requests, by second after the return: %v: %s", name, len(times), seconds, load.Counts())
		}
	}
}
