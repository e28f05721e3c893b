package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/test/lab"
)

// OnRunning are the faults of a running site that are not in objects alone.
func OnRunning(r *Running) []Fault {
	return slices.Concat(accessFaults(), memoryFaults(r), controlFaults(r), askedDNSFaults(r), askedDHCPFaults(r), askedProxyFaults(r))
}

// alone starts a container anew that cannot reach the API server, with what it has kept in files.
func (r *Running) alone(pod, container string) {
	r.Helper()
	p := r.Pods[pod]
	again := func() {
		p.Run[container].Kill(r.T)
		p.Resume(r.T, container, false)
	}
	p.Env["KUBERNETES_SERVICE_PORT"] = "1"
	r.Undo(func() {
		delete(p.Env, "KUBERNETES_SERVICE_PORT")
		again()
	})
	again()
}

// How a port is shut.
const (
	silently = "drop"
	aloud    = "reject with tcp reset"
	// noState is for who says "GET /s", behind a header of 32 bytes: others may ask for /readyz.
	noState = "@th,256,48 0x474554202f73 drop"
)

// shut has a NetworkPolicy, as it were, keep everybody out of a port in the pod network, with a word
// or without one.
func (r *Running) shut(port int, how string) {
	r.Helper()
	nft := func(rules string) {
		cmd := exec.CommandContext(r.Context(), "nft", "-f", "-")
		cmd.Stdin = strings.NewReader(rules)
		if out, err := cmd.CombinedOutput(); err != nil {
			r.Fatalf("nft: %v\n%s", err, out)
		}
	}
	nft(fmt.Sprintf("table inet shut {\n chain input {\n type filter hook input priority 0\n tcp dport %d %s\n }\n}\n", port, how))
	r.Undo(func() { nft("delete table inet shut\n") })
}

// machine makes a virtual machine on the network that began to run at a time.
func (r *Running) machine(name, mac, labels, annotations string, since time.Time) {
	r.Helper()
	r.Add(fmt.Sprintf(`
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: %[1]s, namespace: clusters-demo, labels: {%[3]s}, annotations: {%[4]s}}
spec:
  domain: {devices: {interfaces: [{name: vlan, bridge: {}, macAddress: %[2]q}]}}
  networks: [{name: vlan, multus: {networkName: clusters/vlan100}}]
status: {phase: Running, phaseTransitionTimestamps: [{phase: Running, phaseTransitionTimestamp: %[5]q}]}
`, name, mac, labels, annotations, since.UTC().Format(time.RFC3339)))
}

// The label by which DHCP knows the hosted cluster's machines, and when one runs for long.
const ofDemo = "hypershift.openshift.io/infra-id: demo-x7k2p"

var longAgo = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func memoryFaults(r *Running) []Fault {
	return []Fault{{Name: "a memory limit that is nearly reached", Want: []string{"POD-007 warn"}, Break: func(*Site) { r.squeeze() }}}
}

// squeeze gives the container of DNS a limit hardly above the memory that it has.
func (r *Running) squeeze() {
	r.Helper()
	p := r.Pods["dns"]
	response, err := http.Get("http://" + p.IP + ":9153/metrics") //nolint:noctx // beside us
	if err != nil {
		r.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		r.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^process_resident_memory_bytes ([0-9.e+]+)$`).FindSubmatch(text)
	if found == nil {
		r.Fatal("coredns does not say how much memory it has")
	}
	has, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		r.Fatal(err)
	}
	r.limit(p.Name, "coredns", "memory", strconv.Itoa(int(has/0.85)))
}

func controlFaults(r *Running) []Fault {
	return []Fault{
		{Name: "a control that nobody may ask", Unheard: true, Want: []string{"CTL-003 warn"}, Break: func(*Site) { r.shut(9904, aloud) }},
		{Name: "a Service in the hosted cluster that cannot be deleted", Want: []string{"OLD-004 warn"}, Break: func(*Site) { r.undeletable() }},
		{Name: "a control of which no replica leads", Want: []string{"CTL-004 fail"}, Break: func(*Site) { r.usurped() }},
	}
}

// undeletable has the hosted cluster keep what an Infra that is gone has left in it, while control was
// away.
func (r *Running) undeletable() {
	r.Helper()
	const policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: keep-services}
spec:
  failurePolicy: Fail
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [services], operations: [DELETE]}]}
  validations: [{expression: "false", message: "Services stay"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: keep-services}
spec: {policyName: keep-services, validationActions: [Deny]}
`
	const service = `
apiVersion: v1
kind: Service
metadata: {name: left-apps, namespace: openshift-ingress, labels: {app.kubernetes.io/managed-by: oooi}, annotations: {hostedcluster.densityops.com/infra: clusters/left}}
spec: {ports: [{port: 443}]}
`
	left := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-ingress", Name: "left-apps"}}
	if err := r.Hosted.ApplyYAML(r.Context(), []byte(policy+"---"+service)); err != nil {
		r.Fatal(err)
	}
	r.Undo(func() {
		if err := r.Hosted.DeleteYAML(r.Context(), []byte(policy)); err != nil {
			r.Fatal(err)
		}
		r.Await("the Service to be gone", func() bool {
			return apierrors.IsNotFound(r.Guest.Get(r.Context(), client.ObjectKeyFromObject(left), left))
		})
	})
	r.Await("Services to be kept", func() bool { return r.Guest.Delete(r.Context(), left.DeepCopy(), client.DryRunAll) != nil })
	r.controlAnew(func() {})
}

// controlAnew starts control anew, with something done while it is away.
func (r *Running) controlAnew(meanwhile func()) {
	r.Helper()
	replicas := []string{"control", "control2"}
	for _, name := range replicas {
		r.Pods[name].Run["control"].Kill(r.T)
	}
	meanwhile()
	for _, name := range replicas {
		r.Pods[name].Resume(r.T, "control", false)
	}
}

// usurped has somebody else hold the Lease by which a replica of control leads, as one does that was
// left behind.
func (r *Running) usurped() {
	r.Helper()
	hold := func(holder string, seconds int) {
		r.controlAnew(func() {
			r.patch(leaseKind, "oooi-system", "oooi-control", fmt.Sprintf(`{"spec": {"holderIdentity": %q, "leaseDurationSeconds": %d, "renewTime": %q}}`,
				holder, seconds, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")), r.Client.Patch)
		})
	}
	r.Undo(func() { hold("nobody", 1) })
	hold("somebody", 3600)
}

func askedDNSFaults(r *Running) []Fault {
	return []Fault{
		{Name: "a DNS that nobody may ask for metrics", Unheard: true, Want: []string{"DNS-005 warn"}, Break: func(*Site) { r.shut(9153, silently) }},
		{Name: "a DNS that has lost the API server", Want: []string{"DNS-006 warn"}, Break: func(*Site) { r.alone("dns", "coredns") }},
	}
}

func askedDHCPFaults(r *Running) []Fault {
	return []Fault{
		{Name: "a DHCP server that nobody may ask for its state", Unheard: true, Want: []string{"DHCP-007 warn"}, Break: func(*Site) { r.shut(9903, noState) }},
		{Name: "a DHCP server that has lost the API server", Want: []string{"DHCP-008 fail"}, Break: func(*Site) { r.alone("dhcp", "coredhcp") }},
		{Name: "two machines with one MAC address", Want: []string{"DHCP-009 fail"}, Break: func(*Site) {
			r.machine("worker-x", "02:00:00:00:00:99", ofDemo, "", time.Now())
			r.machine("worker-y", "02:00:00:00:00:99", ofDemo, "", time.Now())
		}},
		{Name: "a machine whose annotation means nothing", Want: []string{"DHCP-010 warn"}, Break: func(*Site) {
			r.machine("worker-x", "02:00:00:00:00:98", ofDemo, "hostedcluster.densityops.com/dhcp-addresses: nowhere", time.Now())
		}},
		{Name: "a machine for which the gateway's address is reserved", Want: []string{"DHCP-010 warn"}, Break: func(*Site) {
			r.machine("worker-x", "02:00:00:00:00:96", ofDemo, "hostedcluster.densityops.com/dhcp-addresses: $net.1", time.Now())
		}},
		{Name: "a machine that has lost the label of its cluster", Want: []string{"DHCP-011 fail"}, Break: func(*Site) {
			r.machine("worker-x", "02:00:00:00:00:97", "", "", longAgo)
		}},
		{Name: "leases that cannot be written", Want: []string{"DHCP-012 fail"}, Break: func(*Site) { r.unwritable() }},
	}
}

// unwritable has the cluster refuse Leases of the site, and a machine ask for an address.
func (r *Running) unwritable() {
	r.Helper()
	r.Undo(func() { // what it counts, it counts from its start
		r.Pods["dhcp"].Run["coredhcp"].Kill(r.T)
		r.Pods["dhcp"].Resume(r.T, "coredhcp", false)
	})
	r.Add(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-leases}
spec:
  failurePolicy: Fail
  matchConstraints: {resourceRules: [{apiGroups: [coordination.k8s.io], apiVersions: [v1], resources: [leases], operations: [CREATE, UPDATE]}]}
  matchConditions: [{name: ours, expression: "object.metadata.namespace == 'clusters'"}]
  validations: [{expression: "false", message: "no more leases"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-leases}
spec: {policyName: no-leases, validationActions: [Deny]}
`)
	const lease = "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: probe, namespace: clusters}\n"
	r.Await("Leases to be refused", func() bool {
		if r.ControlPlane.ApplyYAML(r.Context(), []byte(lease)) != nil {
			return true
		}
		if err := r.ControlPlane.DeleteYAML(r.Context(), []byte(lease)); err != nil {
			r.Fatal(err)
		}
		return false
	})
	r.machine("worker-x", "02:00:00:00:00:96", ofDemo, "", time.Now())
	m := lab.NewMachine(r.T, "net1", "02:00:00:00:00:96")
	m.Run(r.T, "sh", "-c", "busybox udhcpc -i eth0 -f -n -q -t 3 -T 2 -s /bin/true || true")
}

func askedProxyFaults(r *Running) []Fault {
	return []Fault{
		{Name: "an xdsd that nobody may ask", Unheard: true, Want: []string{"PRX-007 warn"}, Break: func(*Site) { r.shut(9902, aloud) }},
		{Name: "an xdsd that has lost the API server", Want: []string{"PRX-008 warn"}, Break: func(*Site) { r.alone("proxy", "xdsd") }},
		{Name: "an Envoy that is dead, and a node that does not know yet", Unheard: true, Want: []string{"PRX-009 fail", "PRX-007 warn"}, Break: func(*Site) {
			r.Pods["proxy"].Run["envoy"].Kill(r.T)
			r.Undo(func() { r.Pods["proxy"].Resume(r.T, "envoy", false) })
		}},
		{Name: "a status of a replica that somebody else has written", Want: []string{"PRX-009 warn"}, Break: func(*Site) {
			r.rewriteReplica(func(replica map[string]any) { replica["version"], replica["acknowledged"] = "0000", "0000" })
		}},
		{Name: "an xdsd that was told of another hosted cluster", Want: []string{"PRX-010 fail"}, Break: func(*Site) { r.elsewhere() }},
		{Name: "an Envoy that was told to drain", Want: []string{"PRX-011 fail"}, Break: func(*Site) {
			r.admin("/healthcheck/fail")
			r.Undo(func() { r.admin("/healthcheck/ok") })
		}},
		{Name: "a konnectivity that does not listen", Want: []string{"PRX-012 fail"}, Break: func(*Site) {
			r.Backends["konnectivity-server"].Close()
			r.Undo(func() {
				r.Backends["konnectivity-server"] = r.ca.TLSBackend(r.root, "198.18.0.84:8091", "konnectivity."+RunningDomain)
			})
		}},
		{Name: "as many connections as there may be", Want: []string{"PRX-013 warn"}, Break: func(s *Site) {
			s.Patch(infraKind, "$ns", "demo", `{"spec": {"infraComponents": {"proxy": {"maxConnections": 5}}}}`)
			var conns []net.Conn
			for range 4 {
				conn, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", "192.0.2.4:6443")
				if err != nil {
					r.Fatal(err)
				}
				if _, err := conn.Write([]byte("hello")); err != nil { // no TLS: it is the API server's
					r.Fatal(err)
				}
				conns = append(conns, conn)
			}
			s.Undo(func() {
				for _, c := range conns {
					_ = c.Close()
				}
			})
		}},
	}
}

// rewriteReplica changes what xdsd has written of itself, until Mend.
func (r *Running) rewriteReplica(change func(replica map[string]any)) {
	r.Helper()
	replicas, _, err := unstructured.NestedSlice(r.There(proxyKind, "$ns", "demo").Object, "status", "replicas")
	if err != nil || len(replicas) != 1 {
		r.Fatalf("there are %v, %v", replicas, err)
	}
	replica, ok := replicas[0].(map[string]any)
	if !ok {
		r.Fatalf("a replica is a %T", replicas[0])
	}
	change(replica)
	body, err := json.Marshal(map[string]any{"status": map[string]any{"replicas": replicas}})
	if err != nil {
		r.Fatal(err)
	}
	r.PatchStatus(proxyKind, "$ns", "demo", string(body))
}

// elsewhere starts xdsd with the arguments that it has when the Infra names another hosted cluster,
// of which it may see everything.
func (r *Running) elsewhere() {
	r.Helper()
	r.Add("apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: everything}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\n" +
		"subjects: [{kind: ServiceAccount, name: demo-proxy, namespace: $ns}]\n")
	p := r.Pods["proxy"]
	i := slices.IndexFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == "xdsd" })
	before := p.Spec.Containers[i].Command
	again := func(command []string) {
		p.Run["xdsd"].Kill(r.T)
		p.Spec.Containers[i].Command = command
		p.Resume(r.T, "xdsd", true)
	}
	r.Undo(func() { again(before) })
	other := slices.Clone(before)
	for i, word := range other {
		other[i] = strings.ReplaceAll(word, "clusters/demo", "clusters/other")
		if slices.Contains([]string{"--infra", "--proxy-server"}, before[max(0, i-1)]) {
			other[i] = word
		}
	}
	again(other)
}

// admin asks Envoy's admin interface to do something.
func (r *Running) admin(path string) {
	r.Helper()
	socket := filepath.Join(r.Pods["proxy"].Volume("envoy"), "admin.sock")
	envoy := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	request, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "http://envoy"+path, http.NoBody)
	if err != nil {
		r.Fatal(err)
	}
	response, err := envoy.Do(request)
	if err != nil {
		r.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	said, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		r.Fatalf("%s: %s, %v: %s", path, response.Status, err, bytes.TrimSpace(said))
	}
}
