package control_test

import (
	"bufio"
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// many is how many hosted clusters one control looks after. They are namespaces of one API
// server, which answers at an address of its own for each.
var many = lab.Length(40, 200)

// perCluster is what no hosted cluster may cost more than: its Service's watch, its Secret's,
// and the connection to its API server, with their goroutines.
const perCluster = 20

func TestManyHostedClusters(t *testing.T) {
	guest := lab.New(t, lab.Config{Name: "guests", Address: "127.96.0.78", ServerNames: []string{"api.demo.example.com"}, APIServerFlags: []string{"--bind-address=0.0.0.0"}})
	cp := loopback.Get(t)
	install(t, cp)
	server, err := url.Parse(guest.ServerURL())
	if err != nil {
		t.Fatal(err)
	}
	n := &tenant{T: t, management: cp, hosted: guest, client: cp.Client(t), guest: guest.Client(t), namespace: cp.Namespace(t)}
	apply(t, cp, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: oooi-control, namespace: %[1]s}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get, list, watch, create, patch, delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: oooi-control, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: oooi-control}
subjects: [{kind: ServiceAccount, name: oooi-control, namespace: oooi-system}]
`, n.namespace))
	n.kubeconfig(n.adminKubeconfig())
	apply(t, guest, "apiVersion: v1\nkind: Namespace\nmetadata: {name: openshift-ingress}")
	control := newReplica(t, cp, "control")
	control.Start(t)
	await(t, "control to be ready", func() string { return control.unready(t) })
	before := control.metrics(t)

	group, _ := errgroup.WithContext(t.Context())
	group.SetLimit(8)
	for i := range many {
		group.Go(func() error { return n.member(t.Context(), i, server.Port(), i == 0) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), lab.Patience)
		defer cancel()
		if err := n.client.DeleteAllOf(ctx, &v1alpha1.Infra{}, client.InNamespace(n.namespace)); err != nil {
			t.Error(err)
		}
	})
	// The first one is dead: nothing listens at its address. The others are not kept waiting.
	await(t, "all but the dead one to be ready", func() string {
		list := &v1alpha1.InfraList{}
		if err := n.client.List(t.Context(), list, client.InNamespace(n.namespace)); err != nil {
			t.Fatal(err)
		}
		phases := map[string]int{}
		for i := range list.Items {
			key := "none"
			if s := list.Items[i].Status.AppsIngress; s != nil {
				key = fmt.Sprintf("%s %s", s.Phase, s.Reason)
			}
			phases[key]++
		}
		if phases["Ready "] == many-1 && phases["Pending HostedClusterUnreachable"] == 1 {
			return ""
		}
		n.assignAll()
		time.Sleep(time.Second) // a look costs the API servers more than what is looked at
		return fmt.Sprint(phases)
	})
	after := control.metrics(t)
	t.Logf("%d hosted clusters: goroutines %.0f -> %.0f, open files %.0f -> %.0f, resident memory %.1f MB -> %.1f MB", many,
		before["go_goroutines"], after["go_goroutines"], before["process_open_fds"], after["process_open_fds"],
		before["process_resident_memory_bytes"]/1e6, after["process_resident_memory_bytes"]/1e6)
	if each := (after["go_goroutines"] - before["go_goroutines"]) / float64(many); each > perCluster || each <= 0 {
		t.Errorf("each hosted cluster has %.1f goroutines", each)
	}
	if each := (after["process_open_fds"] - before["process_open_fds"]) / float64(many); each > 4 {
		t.Errorf("each hosted cluster has %.1f open files", each)
	}
}

// member makes one hosted cluster with its Infra and the applications' namespace.
func (n *tenant) member(ctx context.Context, i int, port string, dead bool) error {
	name := fmt.Sprintf("c%d", i)
	if dead {
		port = "1"
	}
	yaml := lab.HostedCluster{Namespace: n.namespace, Name: name, BaseDomain: n.namespace + ".example.com"}.YAML() + fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s-%[2]s}
---
apiVersion: v1
kind: Service
metadata: {name: kube-apiserver, namespace: %[1]s-%[2]s}
spec: {ports: [{port: %[3]s}]}
---
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: %[2]s, namespace: %[1]s}
spec:
  hostedClusterRef: {name: %[2]s, namespace: %[1]s}
  networkConfig: {cidr: 10.%[4]d.0.0/16, gateway: 10.%[4]d.0.1, networkAttachmentDefinition: vlan%[4]d}
  infraComponents: {proxy: {serverIP: 10.%[4]d.0.3}}
  appsIngress: {enabled: true, kubeconfigSecretRef: {name: demo-admin-kubeconfig}, metallb: {loadBalancerClass: %[5]s}}
`, n.namespace, name, port, i, class)
	return n.management.ApplyYAML(ctx, []byte(yaml))
}

// assignAll gives every Service that has no address one of its VLAN.
func (n *tenant) assignAll() {
	n.Helper()
	services := &corev1.ServiceList{}
	if err := n.guest.List(n.Context(), services, client.MatchingLabels{"app.kubernetes.io/managed-by": "oooi"}); err != nil {
		n.Fatal(err)
	}
	for i := range services.Items {
		s := &services.Items[i]
		if len(s.Status.LoadBalancer.Ingress) > 0 {
			continue
		}
		number, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(s.Name, "c"), "-apps"))
		if err != nil {
			n.Fatal(err)
		}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: fmt.Sprintf("10.%d.0.200", number)}}
		if err := n.guest.Status().Update(n.Context(), s); client.IgnoreNotFound(err) != nil {
			n.Log(err) // the next round
		}
	}
}

// metrics are the plain ones of the replica.
func (r *replica) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	lab.Await(t, "its metrics", func() string {
		_, body := r.get(t, "/metrics")
		for lines := bufio.NewScanner(strings.NewReader(string(body))); lines.Scan(); {
			name, value, found := strings.Cut(lines.Text(), " ")
			if number, err := strconv.ParseFloat(value, 64); found && err == nil {
				all[name] = number
			}
		}
		if all["go_goroutines"] == 0 {
			return fmt.Sprintf("the page has none: %.500q", body)
		}
		return ""
	})
	return all
}
