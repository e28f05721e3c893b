package faults

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/test/lab"
)

// pathGroup has faults of paths and clients, which daemons report when they have lasted.
func pathGroup(r *Running) Group {
	return Group{Name: "paths", Faults: []Fault{
		{Name: "status of the Infra cannot be written", Want: "CTL-005 fail", Says: "not today", Break: func() {
			r.deny("statuses", "hostedcluster.densityops.com", "v1alpha1", "infras/status", "clusters", "not today")
			r.Await("statuses to be rejected", func() bool {
				none := client.RawPatch(types.MergePatchType, []byte(`{"status": {"message": "x"}}`))
				return r.Client.Status().Patch(r.Context(), object(demoInfra), none, &client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: []string{metav1.DryRunAll}}}) != nil
			})
			r.Patch(demoInfra, `{"spec": {"infraComponents": {"dhcp": {"leaseTime": "2h"}}}}`)
		}},
		{Name: "DHCP cannot read VMs", Want: "API-006 fail", Says: "cannot watch resource \"virtualmachineinstances\"", Break: func() {
			r.Undo(r.forgetClients) // it would wait for longer and longer between two attempts
			r.Remove("rbac.authorization.k8s.io/v1 RoleBinding clusters-demo/oooi-clusters-demo-dhcp")
			r.restart("dhcp", "coredhcp")
		}},
		{Name: "leases cannot be stored", Want: "DHCP-012 fail", Says: "no more leases", Break: func() {
			r.Undo(r.forgetClients)
			r.deny("leases", "coordination.k8s.io", "v1", "leases", "clusters", "no more leases")
			r.Await("Leases to be rejected", func() bool {
				return r.Client.Create(r.Context(), object("coordination.k8s.io/v1 Lease clusters/probe"), client.DryRunAll) != nil
			})
			r.addVM("worker-s", "02:00:00:00:00:96", time.Now())
			r.requestAddress("02:00:00:00:00:96")
		}},
		{Name: "guest of a VM changes its MAC address", Want: "DHCP-015 fail", Says: "02:00:00:00:00:92", Break: func() {
			r.addVM("worker-m", "02:00:00:00:00:93", time.Now())
			r.Patch("kubevirt.io/v1 VirtualMachineInstance clusters-demo/worker-m", `{"status": {"interfaces": [{"name": "vlan", "mac": "02:00:00:00:00:93", "infoSource": "domain"},
				{"mac": "02:00:00:00:00:92", "interfaceName": "eth0", "infoSource": "guest-agent"}]}}`)
			r.requestAddress("02:00:00:00:00:92")
		}},
		{Name: "VM is attached to the VLAN by another network", Want: "DHCP-015 fail", Says: "which is on network clusters/vlan5O", Break: func() {
			r.Undo(r.forgetClients)
			r.addVM("worker-w", "02:00:00:00:00:95", time.Now())
			r.Patch("kubevirt.io/v1 VirtualMachineInstance clusters-demo/worker-w", `{"spec": {"networks": [{"name": "vlan", "multus": {"networkName": "clusters/vlan5O"}}]}}`)
			r.requestAddress("02:00:00:00:00:95")
		}},
		{Name: "upstream resolver does not answer", Want: "DNS-007 fail", Says: upstreamResolver, Break: func() {
			r.drop("upstream", "ip daddr "+upstreamResolver+" udp dport 53")
			r.query("www.example.org.")
		}},
		{Name: "backend has no endpoint", Want: "PRX-012 fail", Says: "lacks a ready endpoint", Break: func() {
			r.Add(lab.Service("clusters-demo", "extra", 443))
			r.Patch(demoProxy, `{"spec": {"backends": [{"name": "extra", "hostname": "extra.example.com", "port": 443, "targetService": "extra", "targetPort": 443, "targetNamespace": "clusters-demo"}]}}`)
		}},
		{Name: "konnectivity refuses connections", Want: "PRX-012 fail", Says: "konnectivity-server", Break: func() {
			r.Backends["konnectivity-server"].Close()
			r.Undo(func() {
				r.Backends["konnectivity-server"] = r.ca.TLSBackend(r.parent, "198.18.0.84:8091", "konnectivity."+RunningDomain)
			})
		}},
		{Name: "connections to the OAuth server time out", Want: "PRX-012 fail", Says: "oauth-openshift/6443 get no answer", Break: func() { r.drop("oauth", "ip daddr 198.18.0.82") }},
		{Name: "apps address does not answer", Want: "PRX-012 fail", Says: "apps address 192.0.2.200", Break: func() { r.drop("apps", "ip daddr 192.0.2.200") }},
		{Name: "ignition server has a certificate for another name", Want: "PRX-019 fail", Says: "ignition.other.example.com", Break: func() {
			other := r.ca.TLSBackend(r.parent, "198.18.0.91:8443", "ignition.other.example.com")
			r.Undo(other.Close)
			r.Patch("discovery.k8s.io/v1 EndpointSlice clusters-demo/ignition-server-proxy-1", `{"endpoints": [{"addresses": ["198.18.0.91"], "conditions": {"ready": true}}]}`)
		}},
		{Name: "API server rejects the token of DNS", Want: "API-006 warn", Says: "Unauthorized", Break: r.invalidateToken},
		{Name: "xdsd cannot write its snapshot file", Want: "POD-011 warn", Says: "read-only file system", Break: r.denySnapshots},
	}}
}

// processGroup has faults of processes, and of another DHCP server, which coredhcp forgets when it restarts.
func processGroup(r *Running) Group {
	return Group{Name: "processes", Faults: []Fault{
		{Name: "VM has an address of another DHCP server", Want: "DHCP-014 fail", Says: "192.0.2.239", Break: func() { r.selectOtherDHCP("02:00:00:00:00:0b") }},
		{Name: "DNS hangs", Want: "DNS-001 fail", Break: func() {
			r.Undo(func() { r.Pods["dns"].Containers["coredns"].Signal(r.T, syscall.SIGCONT) })
			r.Pods["dns"].Containers["coredns"].Signal(r.T, syscall.SIGSTOP)
		}},
		{Name: "another process listens on one of the proxy's ports", Want: "PRX-003 fail", Break: r.occupyPort},
	}}
}

// restart restarts a container, with its files as their objects are now.
func (r *Running) restart(pod, container string) {
	r.Helper()
	r.Pods[pod].Containers[container].Kill(r.T)
	r.Pods[pod].RestartContainer(r.T, container, false)
}

// forgetClients restarts DHCP, which reports clients and other servers for some time after their last packet.
func (r *Running) forgetClients() { r.restart("dhcp", "coredhcp") }

// nft runs commands of nftables.
func (r *Running) nft(rules string) {
	r.Helper()
	cmd := exec.CommandContext(r.Context(), "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		r.Fatalf("nft: %v\n%s", err, out)
	}
}

// drop drops packets that match, by a table with a name.
func (r *Running) drop(table, match string) {
	r.Helper()
	r.nft("table inet " + table + " {\n chain input {\n type filter hook input priority 0\n " + match + " drop\n }\n}\n")
	r.Undo(func() { r.nft("delete table inet " + table + "\n") })
}

// background calls a function again and again, with a pause, until it is undone.
func (r *Running) background(call func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			call(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	r.Undo(func() { cancel(); running.Wait() })
}

// query resolves a name by DNS again and again.
func (r *Running) query(name string) {
	r.background(func(ctx context.Context) {
		_, _, _ = new(dns.Client).ExchangeContext(ctx, new(dns.Msg).SetQuestion(name, dns.TypeA), "192.0.2.3:53") // an error if DNS does not respond
	})
}

// requestAddress requests an address for a MAC address again and again.
func (r *Running) requestAddress(mac string) {
	r.Helper()
	m := lab.NewMachine(r.T, "net1", mac)
	r.background(func(ctx context.Context) {
		_ = m.Command(ctx, "busybox", "udhcpc", "-i", "eth0", "-f", "-n", "-q", "-t", "3", "-T", "1", "-s", "/bin/true").Run() // an error without a lease
	})
}

// selectOtherDHCP requests an address for a MAC address from another DHCP server.
func (r *Running) selectOtherDHCP(mac string) {
	r.Helper()
	own := r.Pods["dhcp"].Containers["coredhcp"]
	r.Undo(r.forgetClients)
	r.Undo(lab.OtherDHCP(r.T, "net1", "192.0.2"))
	own.Signal(r.T, syscall.SIGSTOP) // it reads the requests later
	lab.NewMachine(r.T, "net1", mac).UDHCPC(r.T)
	own.Signal(r.T, syscall.SIGCONT)
}

// takeControlLease gives the Lease of control to another holder while no replica runs.
func (r *Running) takeControlLease() {
	r.Helper()
	const lease = "coordination.k8s.io/v1 Lease oooi-system/oooi-control"
	hold := func(holder string, seconds int) {
		body := fmt.Sprintf(`{"spec": {"holderIdentity": %q, "leaseDurationSeconds": %d, "renewTime": %q}}`, holder, seconds, time.Now().UTC().Format(microTime))
		lab.Must(r, r.Client.Patch(r.Context(), object(lease), client.RawPatch(types.MergePatchType, []byte(body))))
	}
	r.Undo(func() { hold("me", 1) })
	r.restartControl(func() { hold("me", 3600) })
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

// leaveUndeletableService creates a Service of a deleted Infra in the hosted cluster, and denies its deletion. Control finds it
// when it starts to lead.
func (r *Running) leaveUndeletableService() {
	r.Helper()
	policy := denial("keep-services", `{apiGroups: [""], apiVersions: [v1], resources: [services], operations: [DELETE]}`, "Services stay")
	service := lab.Service("openshift-ingress", "left-apps", 443,
		"metadata: {labels: {app.kubernetes.io/managed-by: oooi}, annotations: {hostedcluster.densityops.com/infra: clusters/left}}")
	left := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-ingress", Name: "left-apps"}}
	lab.Must(r, r.Hosted.ApplyYAML(r.Context(), []byte(policy+service)))
	r.Undo(func() {
		lab.Must(r, r.Hosted.DeleteYAML(r.Context(), []byte(policy)))
		r.restartControl(func() {}) // it would wait for longer and longer between two attempts
		r.Await("the Service to be deleted", func() bool {
			return apierrors.IsNotFound(r.HostedClient.Get(r.Context(), client.ObjectKeyFromObject(left), left))
		})
	})
	r.Await("the deletion of Services to be denied", func() bool { return r.HostedClient.Delete(r.Context(), left.DeepCopy(), client.DryRunAll) != nil })
}

// occupyPort restarts Envoy while another process has its port 443.
func (r *Running) occupyPort() {
	r.Helper()
	envoy := r.Pods["proxy"].Containers["envoy"]
	envoy.Kill(r.T)
	other, err := (&net.ListenConfig{}).Listen(r.Context(), "tcp", "192.0.2.4:443")
	lab.Must(r, err)
	r.Undo(func() {
		envoy.Kill(r.T)
		_ = other.Close() // listens only
		r.Pods["proxy"].RestartContainer(r.T, "envoy", false)
	})
	r.Pods["proxy"].RestartContainer(r.T, "envoy", false)
}

// invalidateToken restarts DNS with a token that the API server rejects.
func (r *Running) invalidateToken() {
	r.Helper()
	p := r.Pods["dns"]
	r.Undo(func() { r.restart("dns", "coredns") }) // with a new token
	p.Containers["coredns"].Kill(r.T)
	tokens, err := filepath.Glob(filepath.Join(p.Volume("*"), "token"))
	if err != nil || len(tokens) != 1 {
		r.Fatalf("tokens %v, error %v", tokens, err)
	}
	lab.Must(r, os.WriteFile(tokens[0], []byte("expired"), 0o600))
	p.Containers["coredns"].Start(r.T)
}

// withOtherToken returns a kubeconfig, encoded as in a Secret, with credentials that no API server accepts.
func (r *Running) withOtherToken(data string) string {
	r.Helper()
	config, err := base64.StdEncoding.DecodeString(data)
	lab.Must(r, err)
	config = regexp.MustCompile(`(?m)^( +)client-certificate-data: .*\n +client-key-data: .*$`).ReplaceAll(config, []byte("${1}token: expired"))
	return base64.StdEncoding.EncodeToString(config)
}

// denySnapshots makes the volume with the snapshot file of xdsd read-only, and changes objects that it reads.
func (r *Running) denySnapshots() {
	r.Helper()
	service := lab.Service("clusters-demo", "another", 443)
	remount := func(option string) {
		target := strconv.Itoa(r.Pods["proxy"].Containers["xdsd"].PID())
		volume := filepath.Join(r.Pods["proxy"].Volume("root of xdsd"), "var", "lib", "xdsd")
		out, err := exec.CommandContext(r.Context(), "nsenter", "--target", target, "--mount", "mount", "-o", "remount,bind,"+option, volume).CombinedOutput()
		if err != nil {
			r.Fatalf("remounting the volume: %v\n%s", err, out)
		}
	}
	r.Undo(func() { // a change, so that xdsd writes the file again
		lab.Must(r, r.ControlPlane.DeleteYAML(r.Context(), []byte(service)))
	})
	r.Undo(func() { remount("rw") })
	remount("ro")
	r.Apply(service)
}

// exhaustConnections restarts Envoy with a limit of four connections, and opens more.
func (r *Running) exhaustConnections() {
	r.Helper()
	file := filepath.Join(r.Pods["proxy"].Volume("envoy"), "envoy.yaml")
	before, err := os.ReadFile(file)
	lab.Must(r, err)
	restart := func(config []byte) {
		lab.Must(r, os.WriteFile(file, config, 0o600))
		r.restart("proxy", "envoy")
	}
	r.Undo(func() {
		restart(before)
		r.restart("proxy", "xdsd") // it reports a limit for ten minutes
	})
	limited := regexp.MustCompile(`(max_active_downstream_connections: )[^\n]*`).ReplaceAll(before, []byte(`${1}"4"`))
	if bytes.Equal(limited, before) {
		r.Fatal("Envoy's configuration lacks a connection limit")
	}
	restart(limited)
	for range 8 {
		r.background(func(ctx context.Context) { // Envoy ends a connection without a name after 15 seconds
			conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", "192.0.2.4:443")
			if err != nil {
				return
			}
			stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
			defer stop()
			_, _ = conn.Read(make([]byte, 1)) // until Envoy closes it
			_ = conn.Close()
		})
	}
}
