package rights_test

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// removalTest revokes the permissions of an account one after the other, each time restarts the daemon, and waits
// until the daemon reports the missing permission.
type removalTest struct {
	account   account
	pod       *pod
	container string
	// before and after trigger the use of a right: before the daemon starts, and when it runs. undo reverts
	// that after the missing permission was reported.
	before, after, undo map[lab.Right]func(t *testing.T)
	// stopped, if set, is called after the daemon was killed.
	stopped func(t *testing.T)
	// ready is the URL of the readiness endpoint. The daemon must not be ready without permission to list one
	// of the resources in needs.
	ready string
	needs []string
	// signs are checks for permissions whose absence does not appear in the log with the API server's message.
	signs map[lab.Right]func(t *testing.T) string
	// others are permissions that are not tested: permissions of another container, permissions that only other API servers
	// check, and those whose use depends on timing.
	others []lab.Right
}

func (x *removalTest) run(t *testing.T) {
	granted := slices.DeleteFunc(x.account.granted(t), func(r lab.Right) bool { return slices.Contains(x.others, r) })
	for _, r := range lab.Sample(granted, 4) {
		t.Run(r.String(), func(t *testing.T) {
			restore := x.account.revoke(t, r)
			defer restore()
			defer func() {
				if t.Failed() {
					t.Logf("end of the daemon's log:\n%s", x.pod.Containers[x.container].Log.Tail())
				}
			}()
			x.restart(t, x.before[r])
			if after := x.after[r]; after != nil {
				after(t)
			}
			if undo := x.undo[r]; undo != nil {
				defer undo(t)
			}
			lab.Await(t, "the daemon to report the missing permission", func() string { return x.checkMissing(t, r) })
			if r.Verb != "list" || !slices.Contains(x.needs, r.Resource) {
				return
			}
			lab.Await(t, "the daemon to be not ready", func() string { return lab.CheckStatus(t, x.ready, http.StatusServiceUnavailable) })
		})
	}
	x.restart(t, nil)
	lab.Await(t, "the daemon to be ready with all permissions", func() string { return lab.CheckStatus(t, x.ready, http.StatusOK) })
}

// restart kills the daemon, calls meanwhile unless it is nil, and starts the daemon without its state.
func (x *removalTest) restart(t *testing.T, meanwhile func(t *testing.T)) {
	t.Helper()
	x.pod.Containers[x.container].Kill(t)
	if x.stopped != nil {
		x.stopped(t)
	}
	if meanwhile != nil {
		meanwhile(t)
	}
	x.pod.RestartContainer(t, x.container, true)
}

// checkMissing returns "" if the daemon has reported that a permission is missing.
func (x *removalTest) checkMissing(t *testing.T, r lab.Right) string {
	t.Helper()
	if sign := x.signs[r]; sign != nil {
		return sign(t)
	}
	return checkDenied(x.pod.Containers[x.container].Log.String(), r)
}

// checkDenied returns "" if a text, with any quoting, contains the API server's message about a missing
// right.
func checkDenied(text string, r lab.Right) string {
	if strings.Contains(strings.ReplaceAll(text, `\`, ""), r.DeniedMessage()) {
		return ""
	}
	return "no message " + r.DeniedMessage()
}

// revokeEach revokes every granted right in turn. The reader of the hosted cluster comes first, while control
// does not run, because control would restore its permissions.
func (d *deployed) revokeEach() {
	control, dns, dhcp, proxy, reader := d.accounts()
	d.control.Containers["control"].Terminate(d.T)
	dnsTest := &removalTest{account: dns, pod: d.dns, container: "coredns", ready: "http://" + dnsPod + ":8181/ready", needs: []string{"hostedclusters", "infras", "routes", "services"}}
	d.Run("reader", func(t *testing.T) {
		x := *dnsTest
		x.account = reader
		x.needs = nil // the apps address in the Infra's status is sufficient
		x.run(t)
	})
	d.control.RestartContainer(d.T, "control", true)
	d.awaitReady()
	d.Run("daemons", func(t *testing.T) {
		t.Run("dns", func(t *testing.T) {
			t.Parallel()
			dnsTest.run(t)
		})
		t.Run("proxy", func(t *testing.T) {
			t.Parallel()
			x := &removalTest{account: proxy, pod: d.proxy, container: "xdsd", ready: "http://" + proxyPod + ":9902/readyz"}
			x.needs = append([]string{"endpointslices", "proxyservers"}, dnsTest.needs...)
			x.run(t)
		})
		t.Run("dhcp", func(t *testing.T) {
			t.Parallel()
			d.dhcpRemovalTest(dhcp).run(t)
		})
		t.Run("control", func(t *testing.T) {
			t.Parallel()
			d.controlRemovalTest(control).run(t)
		})
	})
}

// startUDHCPC runs a DHCP client on a machine until the test ends.
func startUDHCPC(t *testing.T, m *lab.Machine) {
	t.Helper()
	client := lab.NewDaemon(t, "udhcpc", func() *exec.Cmd {
		return m.Command(context.Background(), "busybox", "udhcpc", "-f", "-i", "eth0", "-s", "/bin/true", "-t", "1000", "-T", "1")
	})
	client.Start(t)
}

func (d *deployed) dhcpRemovalTest(a account) *removalTest {
	leases := func(verb string) lab.Right { return right(verb, "coordination.k8s.io", "leases", "clusters", "") }
	yesterday := time.Now().Add(-24 * time.Hour)
	return &removalTest{
		account: a, pod: d.dhcp, container: "coredhcp", ready: "http://" + dhcpPod + ":9903/readyz", needs: []string{"virtualmachineinstances", "leases"},
		before: map[lab.Right]func(*testing.T){
			leases("create"): func(t *testing.T) { d.in(t).machine("worker-3", "02:00:00:00:00:03") },
			leases("update"): func(t *testing.T) {
				d.in(t).lease("192.0.2.30", "bound", "clusters-demo/worker-1/vlan", yesterday)
			},
			leases("delete"): func(t *testing.T) {
				d.in(t).lease("192.0.2.32", "declined", "declined", yesterday, expired)
			},
			leases("get"): func(t *testing.T) { d.in(t).unlabelledLease("192.0.2.40", "clusters-demo/worker-2/vlan") },
		},
		after: map[lab.Right]func(*testing.T){
			leases("create"): func(t *testing.T) { startUDHCPC(t, lab.NewMachine(t, vlanDevice, "02:00:00:00:00:03")) },
			leases("get"):    func(t *testing.T) { startUDHCPC(t, d.workers[1]) },
			// An older address of the same machine is released when the machine renews its lease.
			leases("update"): func(t *testing.T) { startUDHCPC(t, d.workers[0]) },
		},
		signs: map[lab.Right]func(*testing.T) string{
			leases("get"): func(t *testing.T) string { // the client gets no reply, and the error is counted
				if lab.Pages(dhcpPod+":9903").Metric(t, `coredhcp_leasedb_store_errors_total{operation="get"}`) == 0 {
					return "no errors are counted"
				}
				return ""
			},
		},
	}
}

func (d *deployed) controlRemovalTest(a account) *removalTest {
	reader := func(verb string) lab.Right { return right(verb, "", "secrets", "clusters", "demo-apps-reader") }
	admin := right("get", "", "secrets", "clusters", "demo-admin-kubeconfig")
	getPods := right("get", "", "pods", "", "")
	apps := func(enabled bool) func(*testing.T) {
		return func(t *testing.T) {
			d.in(t).updateInfra(func(i *v1alpha1.Infra) { i.Spec.AppsIngress.Enabled = enabled })
		}
	}
	replicas := func(list string) func(*testing.T) {
		return func(t *testing.T) {
			lab.Must(t, d.management.ApplyStatusYAML(t.Context(), []byte(demo.ProxyServer("status: {replicas: "+list+"}"))))
		}
	}
	toggleReady := func(p *pod) func(*testing.T) { return func(t *testing.T) { p.toggleReady(t) } }
	return &removalTest{
		account: a, pod: d.control, container: "control", ready: "http://" + controlPod2 + ":9904/readyz",
		needs: []string{"hostedclusters", "infras", "routes", "services", "proxyservers"},
		stopped: func(t *testing.T) { // so that the new process does not wait for the Lease of the killed one
			err := d.kube.CoordinationV1().Leases("oooi-system").Delete(t.Context(), "oooi-control", metav1.DeleteOptions{})
			if client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
		},
		before: map[lab.Right]func(*testing.T){
			right("patch", v1alpha1.GroupName, "infras/status", "", ""):       toggleReady(d.dns),
			right("patch", v1alpha1.GroupName, "proxyservers/status", "", ""): toggleReady(d.proxy),
			right("create", "events.k8s.io", "events", "", ""):                toggleReady(d.proxy),
			// The status has a replica without a pod.
			getPods: replicas("[{pod: demo-proxy-9}]"),
			reader("create"): func(t *testing.T) {
				err := d.kube.CoreV1().Secrets("clusters").Delete(t.Context(), "demo-apps-reader", metav1.DeleteOptions{})
				if client.IgnoreNotFound(err) != nil {
					t.Fatal(err)
				}
			},
			// The credentials must be created again.
			reader("patch"): func(t *testing.T) {
				err := d.guestKube.CoreV1().ServiceAccounts("openshift-ingress").Delete(t.Context(), "demo-apps-reader", metav1.DeleteOptions{})
				if client.IgnoreNotFound(err) != nil {
					t.Fatal(err)
				}
			},
			reader("delete"): func(t *testing.T) {
				d.management.MustApply(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: demo-apps-reader, namespace: clusters, labels: {app.kubernetes.io/managed-by: oooi}}\n")
				apps(false)(t)
			},
		},
		undo:   map[lab.Right]func(*testing.T){getPods: replicas("[]"), reader("delete"): apps(true)},
		others: []lab.Right{patchEvent},
		signs: map[lab.Right]func(*testing.T) string{
			admin: func(t *testing.T) string {
				state := d.in(t).getInfra().Status.AppsIngress
				if state == nil || state.Reason != v1alpha1.AppsIngressKubeconfigMissing {
					return fmt.Sprintf("status.appsIngress is %+v", state)
				}
				return checkDenied(state.Message, admin)
			},
		},
	}
}

// in returns a copy for another test.
func (d *deployed) in(t *testing.T) *deployed {
	copied, s := *d, *d.site
	s.T, copied.site = t, &s
	return &copied
}
