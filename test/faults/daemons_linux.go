package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/test/lab"
)

// OnRunning returns the faults of a site with running daemons. r may be nil if no fault is tried.
func OnRunning(r *Running) []Fault {
	return slices.Concat(accessFaults(), memoryFaults(r), controlFaults(r), dnsDaemonFaults(r), dhcpDaemonFaults(r), proxyDaemonFaults(r), backendFaults(r), admissionFaults(r))
}

// restartDisconnected restarts a container without access to the API server, so that it uses its snapshot file,
// until Mend.
func (r *Running) restartDisconnected(pod, container string) {
	r.Helper()
	p := r.Pods[pod]
	restart := func() {
		p.Containers[container].Kill(r.T)
		p.RestartContainer(r.T, container, false)
	}
	p.Env["KUBERNETES_SERVICE_PORT"] = "1"
	r.Undo(func() {
		delete(p.Env, "KUBERNETES_SERVICE_PORT")
		restart()
	})
	restart()
}

// invalidateToken restarts a container with a token that the API server rejects, until Mend.
func (r *Running) invalidateToken(pod, container string) {
	r.Helper()
	p := r.Pods[pod]
	r.Undo(func() {
		p.Containers[container].Kill(r.T)
		p.RestartContainer(r.T, container, false) // with a new token
	})
	p.Containers[container].Kill(r.T)
	tokens, err := filepath.Glob(filepath.Join(p.Volume("*"), "token"))
	if err != nil || len(tokens) != 1 {
		r.Fatalf("tokens %v, error %v", tokens, err)
	}
	if err := os.WriteFile(tokens[0], []byte("expired"), 0o600); err != nil {
		r.Fatal(err)
	}
	p.Containers[container].Start(r.T)
}

// Verdicts of the nftables rule of blockPort.
const (
	dropPackets      = "drop"
	resetConnections = "reject with tcp reset"
	// dropStateRequests drops requests that begin with "GET /s", such as for /state, after a TCP header of 32
	// bytes. Requests for /readyz pass.
	dropStateRequests = "@th,256,48 0x474554202f73 drop"
)

// blockPort blocks a port in the pod network, as a NetworkPolicy does, until Mend. The verdict is one of the
// constants above.
func (r *Running) blockPort(port int, verdict string) {
	r.Helper()
	r.nft(fmt.Sprintf("table inet shut {\n chain input {\n type filter hook input priority 0\n tcp dport %d %s\n }\n}\n", port, verdict))
	r.Undo(func() { r.nft("delete table inet shut\n") })
}

// nft runs commands of nftables.
func (r *Running) nft(rules string) {
	r.Helper()
	cmd := exec.CommandContext(r.Context(), "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		r.Fatalf("nft: %v\n%s", err, out)
	}
}

// addVM creates a VirtualMachineInstance on the network that is running since a time, until Mend.
func (r *Running) addVM(name, mac, labels, annotations string, since time.Time) {
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

// demoLabel is the label by which DHCP selects the hosted cluster's VMs.
const demoLabel = "hypershift.openshift.io/infra-id: demo-x7k2p"

// longAgo is a start time outside of the grace period of checks.
var longAgo = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func memoryFaults(r *Running) []Fault {
	return []Fault{
		{Name: "container is near its memory limit", Want: []string{"POD-007 warn"}, Break: func(*Site) { r.limitDNSMemory() }},
		{Name: "process is near its limit of open files", Want: []string{"POD-010 warn"}, Break: func(*Site) { r.limitOpenFiles("dns", "coredns") }},
		{Name: "DNS cannot write its snapshot file", Want: []string{"POD-011 warn"}, Says: "the last write of the objects of", Break: func(*Site) { r.denyWrites("dns", "coredns") }},
		{Name: "DHCP cannot write its snapshot files", Want: []string{"POD-011 warn"}, Says: "read-only file system", Break: func(*Site) { r.denyWrites("dhcp", "coredhcp") }},
		{Name: "xdsd cannot write its snapshot file", Want: []string{"POD-011 warn"}, Says: "read-only file system", Break: func(*Site) { r.denyWrites("proxy", "xdsd") }},
	}
}

// denyWrites makes a container's volume with snapshot files read-only, and changes objects that its daemon reads, until
// Mend.
func (r *Running) denyWrites(pod, container string) {
	r.Helper()
	remount := func(option string) {
		target := strconv.Itoa(r.Pods[pod].Containers[container].PID())
		volume := filepath.Join(r.Pods[pod].Volume("root of "+container), "var", "lib", container)
		out, err := exec.CommandContext(context.WithoutCancel(r.Context()), "nsenter", "--target", target, "--mount", "mount", "-o", "remount,bind,"+option, volume).CombinedOutput()
		if err != nil {
			r.Fatalf("remounting the volume: %v\n%s", err, out)
		}
	}
	r.Undo(func() { remount("rw") })
	remount("ro")
	r.Add("apiVersion: v1\nkind: Service\nmetadata: {name: another, namespace: $ns-demo}\nspec: {ports: [{port: 443}]}\n")
	r.addVM("worker-x", "02:00:00:00:00:95", demoLabel, "", time.Now())
}

// limitOpenFiles sets the limit of open files of a process to five quarters of those that it has open, until Mend.
func (r *Running) limitOpenFiles(pod, container string) {
	r.Helper()
	pid := r.Pods[pod].Containers[container].PID()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		r.Fatal(err)
	}
	var before unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		r.Fatal(err)
	}
	limit := unix.Rlimit{Cur: uint64(len(open)) * 5 / 4, Max: before.Max}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		r.Fatal(err)
	}
	r.Undo(func() {
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &before, nil); err != nil {
			r.Fatal(err)
		}
	})
}

// limitDNSMemory sets a memory limit of the DNS container just above its usage.
func (r *Running) limitDNSMemory() {
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
		r.Fatal("coredns does not report its memory")
	}
	has, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		r.Fatal(err)
	}
	r.setLimit(p.Name, "coredns", "memory", strconv.Itoa(int(has/0.85)))
}

func controlFaults(r *Running) []Fault {
	return []Fault{
		{Name: "state page of control is blocked", Inconclusive: true, Want: []string{"CTL-003 warn"}, Break: func(*Site) { r.blockPort(9904, resetConnections) }},
		{Name: "Service in the hosted cluster cannot be deleted", Want: []string{"OLD-004 warn"}, Break: func(*Site) { r.leaveUndeletableService() }},
		{Name: "no replica of control leads", Want: []string{"CTL-004 fail"}, Says: `"another process", which is no replica, holds Lease oooi-system/oooi-control`, Break: func(*Site) { r.takeControlLease() }},
		{Name: "etcd of the management cluster is full", Want: []string{"API-005 fail"}, Says: "etcdserver: mvcc: database space exceeded", Break: func(*Site) {
			r.Undo(func() { r.restartControl(func() { r.setSpaceAlarm(false) }) })
			r.restartControl(func() { r.setSpaceAlarm(true) }) // a leader that cannot renew its Lease ends
		}},
		{Name: "Lease of control cannot be written", Want: []string{"CTL-004 fail"}, Says: "no more leases", Break: func(*Site) {
			r.restartControl(func() { r.denyLeases("oooi-system") })
		}},
	}
}

// setSpaceAlarm raises or disarms the alarm of the management cluster's etcd about its space.
func (r *Running) setSpaceAlarm(raised bool) {
	r.Helper()
	if err := r.ControlPlane.SetSpaceAlarm(r.Context(), raised); err != nil {
		r.Fatal(err)
	}
}

// leaveUndeletableService creates a Service of a deleted Infra in the hosted cluster, denies its deletion and
// restarts control.
func (r *Running) leaveUndeletableService() {
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
		r.Await("the Service to be deleted", func() bool {
			return apierrors.IsNotFound(r.HostedClient.Get(r.Context(), client.ObjectKeyFromObject(left), left))
		})
	})
	r.Await("the deletion of Services to be denied", func() bool { return r.HostedClient.Delete(r.Context(), left.DeepCopy(), client.DryRunAll) != nil })
	r.restartControl(func() {})
}

// restartControl stops all replicas of control, calls meanwhile and starts them again.
func (r *Running) restartControl(meanwhile func()) {
	r.Helper()
	replicas := []string{"control", "control2"}
	for _, name := range replicas {
		r.Pods[name].Containers["control"].Kill(r.T)
	}
	meanwhile()
	for _, name := range replicas {
		r.Pods[name].RestartContainer(r.T, "control", false)
	}
}

// takeControlLease gives the Lease for which the replicas of control compete to another holder, until Mend.
func (r *Running) takeControlLease() {
	r.Helper()
	hold := func(holder string, seconds int) {
		r.restartControl(func() {
			r.patch(leaseKind, "oooi-system", "oooi-control", fmt.Sprintf(`{"spec": {"holderIdentity": %q, "leaseDurationSeconds": %d, "renewTime": %q}}`,
				holder, seconds, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")), r.Client.Patch)
		})
	}
	r.Undo(func() { hold("none", 1) })
	hold("another process", 3600)
}

func dnsDaemonFaults(r *Running) []Fault {
	return []Fault{
		{Name: "metrics page of DNS is blocked", Inconclusive: true, Want: []string{"DNS-005 warn"}, Break: func(*Site) { r.blockPort(9153, dropPackets) }},
		{Name: "DNS cannot reach the API server", Want: []string{"DNS-006 warn"}, Break: func(*Site) { r.restartDisconnected("dns", "coredns") }},
		{Name: "API server rejects the token of DNS", Want: []string{"DNS-006 warn"}, Says: "watches: Unauthorized", Break: func(*Site) { r.invalidateToken("dns", "coredns") }},
		{Name: "NetworkPolicy denies egress of DNS to the API server", Want: []string{"NET-006 fail"}, Break: func(s *Site) {
			addPolicy("$ns", "{podSelector: {matchLabels: {app.kubernetes.io/component: dns}}, policyTypes: [Egress], egress: [{ports: [{protocol: UDP}]}]}")(s)
			r.restartDisconnected("dns", "coredns")
		}},
	}
}

func dhcpDaemonFaults(r *Running) []Fault {
	return []Fault{
		{Name: "state page of DHCP is blocked", Inconclusive: true, Want: []string{"DHCP-007 warn"}, Break: func(*Site) { r.blockPort(9903, dropStateRequests) }},
		{Name: "DHCP cannot reach the API server", Want: []string{"DHCP-008 fail"}, Break: func(*Site) { r.restartDisconnected("dhcp", "coredhcp") }},
		{Name: "API server rejects the token of DHCP", Want: []string{"DHCP-008 fail"}, Says: "the API server rejects its token", Break: func(*Site) { r.invalidateToken("dhcp", "coredhcp") }},
		{Name: "two VMs have one MAC address", Want: []string{"DHCP-009 fail"}, Break: func(*Site) {
			r.addVM("worker-x", "02:00:00:00:00:99", demoLabel, "", time.Now())
			r.addVM("worker-y", "02:00:00:00:00:99", demoLabel, "", time.Now())
		}},
		{Name: "annotation of a VM is invalid", Want: []string{"DHCP-010 warn"}, Break: func(*Site) {
			r.addVM("worker-x", "02:00:00:00:00:98", demoLabel, "hostedcluster.densityops.com/dhcp-addresses: nowhere", time.Now())
		}},
		{Name: "annotation of a VM reserves the gateway's address", Want: []string{"DHCP-010 warn"}, Break: func(*Site) {
			r.addVM("worker-x", "02:00:00:00:00:96", demoLabel, "hostedcluster.densityops.com/dhcp-addresses: $net.1", time.Now())
		}},
		{Name: "VM lacks the label of its cluster", Want: []string{"DHCP-011 fail"}, Break: func(*Site) {
			r.addVM("worker-x", "02:00:00:00:00:97", "", "", longAgo)
		}},
		{Name: "VM that has just started lacks the label of its cluster", Want: []string{"DHCP-011 fail"}, Says: "kubectl -n clusters-demo label vmi worker-x --overwrite hypershift.openshift.io/infra-id=demo-x7k2p", Break: func(*Site) {
			r.addVM("worker-x", "02:00:00:00:00:97", "", "", time.Now())
			r.requestUnknown("02:00:00:00:00:97")
		}},
		{Name: "VM without a lease requests one with another MAC address", Want: []string{"DHCP-015 fail"}, Says: "02:00:00:00:00:92", Break: func(*Site) {
			r.addVM("worker-x", "02:00:00:00:00:91", demoLabel, "", longAgo)
			r.requestUnknown("02:00:00:00:00:92")
		}},
		{Name: "VM is attached to the VLAN by another network", Want: []string{"DHCP-015 fail"}, Says: "which is on network clusters/vlan5O: DHCP serves interfaces on network ", Break: func(s *Site) {
			r.addVM("worker-x", "02:00:00:00:00:95", demoLabel, "", time.Now())
			s.Patch(machineKind, "$ns-demo", "worker-x", `{"spec": {"networks": [{"name": "vlan", "multus": {"networkName": "clusters/vlan5O"}}]}}`)
			r.requestUnknown("02:00:00:00:00:95")
		}},
		{Name: "guest of a VM changes its MAC address", Want: []string{"DHCP-015 fail"}, Says: "but interface vlan of the VM has 02:00:00:00:00:0a", Break: func(s *Site) {
			s.Patch(machineKind, "$ns-demo", "worker-a", `{"status": {"interfaces": [{"name": "vlan", "mac": "02:00:00:00:00:0a", "infoSource": "domain"}, {"mac": "02:00:00:00:00:92", "interfaceName": "eth0", "infoSource": "guest-agent"}]}}`)
			r.requestUnknown("02:00:00:00:00:92")
		}},
		{Name: "VM has the MAC address of a pod", Want: []string{"DHCP-009 fail"}, Break: func(s *Site) {
			r.addVM("worker-x", "02:00:00:00:00:93", demoLabel, "", time.Now())
			s.Patch(podKind, "$ns", r.Pods["dns"].Name, `{"metadata": {"annotations": {"k8s.v1.cni.cncf.io/network-status": "[{\"name\": \"x\", \"mac\": \"02:00:00:00:00:93\", \"ips\": [\"$net.3\"]}]"}}}`)
		}},
		{Name: "VM answers for the gateway's address", Want: []string{"LNK-005 fail"}, Break: func(*Site) {
			vm := lab.NewMachine(r.T, "net1", "02:00:00:00:00:0a")
			r.Undo(func() { vm.Run(r.T, "ip", "link", "set", "eth0", "down") })
			vm.Run(r.T, "ip", "address", "add", r.Net+".1/24", "dev", "eth0")
		}},
		{Name: "VM selects another DHCP server", Want: []string{"DHCP-014 fail"}, Break: func(*Site) { r.selectOtherDHCP("02:00:00:00:00:0a") }},
		{Name: "client other than a VM selects another DHCP server", Want: []string{"DHCP-014 warn"}, Break: func(*Site) { r.selectOtherDHCP("02:00:00:00:00:94") }},
		{Name: "another DHCP server only refuses addresses", Want: []string{"DHCP-014 fail"}, Says: "192.0.2.238, which refused the address of VM interface ", Break: func(*Site) { r.refuseAsOtherDHCP("02:00:00:00:00:0a") }},
		{Name: "switch drops replies of DHCP to VMs", Want: []string{"DHCP-017 fail"}, Says: "do not reach the VM", Break: func(*Site) {
			r.nft("table netdev snooping {\n chain out {\n type filter hook egress device net1 priority 0\n udp sport 67 udp dport 68 drop\n }\n}\n")
			r.Undo(func() {
				r.nft("delete table netdev snooping\n")
				r.forgetClients()
			})
			r.requestAddress("02:00:00:00:00:0a")
		}},
		{Name: "router with proxy ARP answers for addresses of the DHCP ranges", Want: []string{"DHCP-004 warn"}, Says: "it does proxy ARP", Break: func(*Site) { r.addProxyARP("02:00:00:00:00:e1") }},
		{Name: "Lease of a running VM was deleted", Want: []string{"DHCP-005 warn"}, Says: "the Lease of its address 192.0.2.10 was deleted", Break: func(s *Site) {
			s.Remove(leaseKind, "$ns", "$ns.demo.$net.10")
		}},
		{Name: "Lease of a VM names a VM that does not exist", Want: []string{"DHCP-016 fail"}, Says: "is that of VM clusters-demo/worker-a, which has no lease", Break: editLease("clusters-demo/ghost/vlan", "02-00-00-00-00-0a")},
		{Name: "Lease of a VM names another VM", Want: []string{"DHCP-016 fail"}, Says: "is that of VM clusters-demo/worker-a, which has no lease", Break: func(s *Site) {
			r.addVM("worker-x", "02:00:00:00:00:9a", demoLabel, "", time.Now())
			editLease("clusters-demo/worker-x/vlan", "02-00-00-00-00-0a")(s)
		}},
		{Name: "Lease of a VM has the MAC address of another VM", Want: []string{"DHCP-016 warn"}, Says: "is that of VM clusters-demo/worker-x", Break: func(s *Site) {
			r.addVM("worker-x", "02:00:00:00:00:9a", demoLabel, "", time.Now())
			s.addLeases(20, 20, "clusters-demo/worker-x/vlan")
			editLease("clusters-demo/worker-a/vlan", "02-00-00-00-00-9a")(s)
		}},
		{Name: "leases cannot be written", Want: []string{"DHCP-012 fail"}, Says: "no more leases", Break: func(*Site) { r.rejectLeases() }},
	}
}

// requestUnknown requests an address with a MAC address that DHCP does not know.
func (r *Running) requestUnknown(mac string) {
	r.Helper()
	r.Undo(r.forgetClients)
	r.requestAddress(mac)
}

// requestAddress requests an address with a MAC address, three times.
func (r *Running) requestAddress(mac string) {
	r.Helper()
	lab.NewMachine(r.T, "net1", mac).Run(r.T, "sh", "-c", "busybox udhcpc -i eth0 -f -n -q -t 3 -T 2 -s /bin/true || true")
}

// addProxyARP connects a router to the VLAN that answers ARP requests for free addresses of the DHCP ranges, until Mend, and
// lets two VMs decline such addresses. A client can have three addresses in quarantine.
func (r *Running) addProxyARP(mac string) {
	r.Helper()
	router := lab.NewMachine(r.T, "net1", mac)
	r.Undo(func() { router.Run(r.T, "ip", "link", "set", "eth0", "down") })
	first := r.Net + "."
	// Linux does not answer the probes of clients, whose source address is 0.0.0.0, for other hosts, as routers do.
	router.Run(r.T, "sh", "-ec", `ip link set lo up
ip address add `+first+`251/24 dev eth0
for range in `+first+`11/32 `+first+`12/30 `+first+`16/28 `+first+`32/27 `+first+`64/27 `+first+`96/30; do ip route add local $range dev lo; done`)
	for name, mac := range map[string]string{"worker-p": "02:00:00:00:00:71", "worker-q": "02:00:00:00:00:72"} { // their leases outlive this fault
		r.addVM(name, mac, demoLabel, "", time.Now())
		lab.NewMachine(r.T, "net1", mac).Run(r.T, "sh", "-c", "timeout 15 busybox udhcpc -i eth0 -f -a -A 1 -t 3 -T 2 -s /bin/true || true")
	}
}

// selectOtherDHCP requests an address with a MAC address from another DHCP server, until Mend.
func (r *Running) selectOtherDHCP(mac string) {
	r.Helper()
	ours := r.Pods["dhcp"].Containers["coredhcp"]
	r.Undo(r.forgetClients)
	stop := lab.OtherDHCP(r.T, "net1", r.Net)
	r.Undo(stop)
	signal := func(s syscall.Signal) {
		if err := syscall.Kill(ours.PID(), s); err != nil {
			r.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP) // it reads the requests later
	lab.RequestAddress(r.T, lab.NewMachine(r.T, "net1", mac))
	signal(syscall.SIGCONT)
}

// forgetClients restarts coredhcp, which remembers unknown clients and other servers since its start.
func (r *Running) forgetClients() {
	r.Helper()
	r.Pods["dhcp"].Containers["coredhcp"].Kill(r.T)
	r.Pods["dhcp"].RestartContainer(r.T, "coredhcp", false)
}

// refuseAsOtherDHCP refuses the address of a MAC address as a server that does not answer other requests, until Mend.
func (r *Running) refuseAsOtherDHCP(mac string) {
	r.Helper()
	r.Undo(r.forgetClients)
	m := lab.NewMachine(r.T, "net1", "02:00:00:00:50:e1")
	m.Run(r.T, "ip", "address", "add", r.Net+".238/24", "dev", "eth0")
	hardware, err := net.ParseMAC(mac)
	if err != nil {
		r.Fatal(err)
	}
	refusal, err := dhcpv4.New(dhcpv4.WithMessageType(dhcpv4.MessageTypeNak), dhcpv4.WithHwAddr(hardware), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.ParseIP(r.Net+".238"))))
	if err != nil {
		r.Fatal(err)
	}
	refusal.OpCode = dhcpv4.OpcodeBootReply
	if err := m.Do(func() error {
		conn, err := new(net.ListenConfig).ListenPacket(r.Context(), "udp4", r.Net+".238:67")
		if err != nil {
			return err
		}
		_, err = conn.WriteTo(refusal.ToBytes(), &net.UDPAddr{IP: net.ParseIP(r.Net + ".255"), Port: dhcpv4.ClientPort})
		return errors.Join(err, conn.Close())
	}); err != nil {
		r.Fatal(err)
	}
}

// denyLeases denies writing Leases in a namespace, until Mend.
func (r *Running) denyLeases(namespace string) {
	r.Helper()
	r.Add(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-leases}
spec:
  failurePolicy: Fail
  matchConstraints: {resourceRules: [{apiGroups: [coordination.k8s.io], apiVersions: [v1], resources: [leases], operations: [CREATE, UPDATE]}]}
  matchConditions: [{name: ours, expression: "object.metadata.namespace == '` + namespace + `'"}]
  validations: [{expression: "false", message: "no more leases"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-leases}
spec: {policyName: no-leases, validationActions: [Deny]}
`)
	r.Await("Leases to be rejected", func() bool { return r.rejects(namespace) })
}

// rejectLeases denies writing Leases in the Infra's namespace, and requests an address from a VM.
func (r *Running) rejectLeases() {
	r.Helper()
	r.restartDHCPAfterMend()
	r.denyLeases("clusters")
	r.requestLease()
}

func proxyDaemonFaults(r *Running) []Fault {
	return []Fault{
		{Name: "state page of xdsd is blocked", Inconclusive: true, Want: []string{"PRX-007 warn"}, Break: func(*Site) { r.blockPort(9902, resetConnections) }},
		{Name: "xdsd cannot reach the API server", Want: []string{"PRX-008 warn"}, Break: func(*Site) { r.restartDisconnected("proxy", "xdsd") }},
		{Name: "Envoy does not run but its pod is ready", Inconclusive: true, Want: []string{"PRX-009 fail", "PRX-007 warn"}, Break: func(*Site) {
			r.Pods["proxy"].Containers["envoy"].Kill(r.T)
			r.Undo(func() { r.Pods["proxy"].RestartContainer(r.T, "envoy", false) })
		}},
		{Name: "another writer changed the status of a replica", Want: []string{"PRX-009 warn"}, Break: func(*Site) {
			r.rewriteReplica(func(replica map[string]any) { replica["version"], replica["acknowledged"] = "0000", "0000" })
		}},
		{Name: "xdsd runs with the arguments of another hosted cluster", Want: []string{"PRX-010 fail"}, Break: func(*Site) { r.serveOtherCluster() }},
		{Name: "Envoy drains", Want: []string{"PRX-011 fail"}, Break: func(*Site) {
			r.postAdmin("/healthcheck/fail")
			r.Undo(func() { r.postAdmin("/healthcheck/ok") })
		}},
		{Name: "konnectivity does not listen", Want: []string{"PRX-012 fail"}, Break: func(*Site) {
			r.Backends["konnectivity-server"].Close()
			r.Undo(func() {
				r.Backends["konnectivity-server"] = r.ca.TLSBackend(r.parent, "198.18.0.84:8091", "konnectivity."+RunningDomain)
			})
		}},
		{Name: "a client on the VLAN has reached its limit of connections", Want: []string{"PRX-013 warn"}, Break: func(*Site) {
			r.rewriteReplica(func(replica map[string]any) {
				replica["limits"] = []any{map[string]any{"name": "SourceConnections", "sources": []any{"192.0.2.30"}, "value": int64(2000), "refused": int64(3), "field": "limits.perSource.maxConnections"}}
			})
		}},
		{Name: "the kernel has no module for the limits of each client", Want: []string{"PRX-013 warn"}, Break: func(*Site) {
			r.rewriteReplica(func(replica map[string]any) {
				replica["limitFailure"] = "writing the rules of nftables: no such file or directory"
			})
		}},
		{Name: "connections are near their limit", Want: []string{"PRX-013 warn"}, Break: func(s *Site) {
			s.Patch(infraKind, "$ns", "demo", `{"spec": {"infraComponents": {"proxy": {"maxConnections": 5}}}}`)
			var conns []net.Conn
			for range 4 {
				conn, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", "192.0.2.4:6443")
				if err != nil {
					r.Fatal(err)
				}
				if _, err := conn.Write([]byte("hello")); err != nil { // not TLS, so routed to the API server
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

// rewriteReplica changes the status that xdsd has written about its replica, until Mend.
func (r *Running) rewriteReplica(change func(replica map[string]any)) {
	r.Helper()
	replicas, _, err := unstructured.NestedSlice(r.Get(proxyKind, "$ns", "demo").Object, "status", "replicas")
	if err != nil || len(replicas) != 1 {
		r.Fatalf("replicas are %v, want one: %v", replicas, err)
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

// serveOtherCluster restarts xdsd with the arguments for another hosted cluster, and with rights to read
// everything, until Mend.
func (r *Running) serveOtherCluster() {
	r.Helper()
	r.Add("apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: everything}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\n" +
		"subjects: [{kind: ServiceAccount, name: demo-proxy, namespace: $ns}]\n")
	p := r.Pods["proxy"]
	i := slices.IndexFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == "xdsd" })
	before := p.Spec.Containers[i].Command
	restart := func(command []string) {
		p.Containers["xdsd"].Kill(r.T)
		p.Spec.Containers[i].Command = command
		p.RestartContainer(r.T, "xdsd", true)
	}
	r.Undo(func() { restart(before) })
	other := slices.Clone(before)
	for i, word := range other {
		other[i] = strings.ReplaceAll(word, "clusters/demo", "clusters/other")
		if slices.Contains([]string{"--infra", "--proxy-server"}, before[max(0, i-1)]) {
			other[i] = word
		}
	}
	restart(other)
}

// postAdmin sends a POST request to Envoy's admin interface.
func (r *Running) postAdmin(path string) {
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
