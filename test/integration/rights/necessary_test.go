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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// trial takes the rights of an account away, one after the other, and each time starts the
// daemon anew and waits until it suffers.
type trial struct {
	account   account
	pod       *pod
	container string
	// before and after are what happens to provoke the use of a right: before the daemon starts,
	// and when it runs. undo is what is done when that was seen.
	before, after, undo map[right]func(t *testing.T)
	// stopped, if set, is called before the daemon starts.
	stopped func(t *testing.T)
	// ready is the page that says so; whoever may not list one of these resources is not.
	ready string
	needs []string
	// signs are where a right is missed by something else than words.
	signs map[right]func(t *testing.T) string
	// others are rights that are not tried: another container's, or those that only other API
	// servers are asked for.
	others []right
}

func (x *trial) run(t *testing.T) {
	granted := slices.DeleteFunc(x.account.granted(t), func(r right) bool { return slices.Contains(x.others, r) })
	for _, r := range lab.Sample(granted, 4) {
		t.Run(r.String(), func(t *testing.T) {
			giveBack := x.account.takeAway(t, r)
			defer giveBack()
			defer func() {
				if t.Failed() {
					t.Logf("the end of what the daemon said:\n%s", x.pod.Run[x.container].Log.Tail())
				}
			}()
			x.restart(t, x.before[r])
			if after := x.after[r]; after != nil {
				after(t)
			}
			if undo := x.undo[r]; undo != nil {
				defer undo(t)
			}
			await(t, "the daemon to miss its right", func() string { return x.misses(t, r) })
			if r.verb != "list" || !slices.Contains(x.needs, r.resource) {
				return
			}
			await(t, "the daemon to say that it is not ready", func() string { return x.unready(t) })
		})
	}
	x.restart(t, nil)
	await(t, "the daemon to be ready, with every right", func() string {
		if status, body := get(t, x.ready); status != http.StatusOK {
			return fmt.Sprint(status, " ", body)
		}
		return ""
	})
}

// restart starts the daemon anew, with something done while it is away.
func (x *trial) restart(t *testing.T, meanwhile func(t *testing.T)) {
	t.Helper()
	x.pod.Run[x.container].Kill(t)
	if x.stopped != nil {
		x.stopped(t)
	}
	if meanwhile != nil {
		meanwhile(t)
	}
	x.pod.Resume(t, x.container, true)
}

// misses looks for a sign that a right is missed; empty when there is one.
func (x *trial) misses(t *testing.T, r right) string {
	t.Helper()
	if sign := x.signs[r]; sign != nil {
		return sign(t)
	}
	return saysRefused(x.pod.Run[x.container].Log.String(), r)
}

// saysRefused is empty where a text, with whatever quoting, says that a right is missing.
func saysRefused(text string, r right) string {
	if strings.Contains(strings.ReplaceAll(text, `\`, ""), r.refused()) {
		return ""
	}
	return "nothing says that it " + r.refused()
}

// unready is empty when the daemon answers that it is not ready.
func (x *trial) unready(t *testing.T) string {
	t.Helper()
	switch status, body := get(t, x.ready); status {
	case http.StatusServiceUnavailable:
		return ""
	default:
		return fmt.Sprint(status, " ", body)
	}
}

// get asks for a page; 0 while nobody answers.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	status, text := lab.Get(t, url)
	return status, string(text)
}

// necessary takes away every right that there is. The reader's comes first, while no control
// gives it back.
func (d *deployed) necessary() {
	control, dns, dhcp, proxy, reader := d.accounts()
	d.control.Run["control"].Terminate(d.T)
	answering := &trial{account: dns, pod: d.dns, container: "coredns", ready: "http://" + dnsPod + ":8181/ready", needs: []string{"hostedclusters", "infras", "routes", "services"}}
	d.Run("reader", func(t *testing.T) {
		x := *answering
		x.account = reader
		x.needs = nil // what it knows from the Infra's status is good enough
		x.run(t)
	})
	d.control.Resume(d.T, "control", true)
	d.awaitReady()
	d.Run("daemons", func(t *testing.T) {
		t.Run("dns", func(t *testing.T) {
			t.Parallel()
			answering.run(t)
		})
		t.Run("proxy", func(t *testing.T) {
			t.Parallel()
			x := &trial{account: proxy, pod: d.proxy, container: "xdsd", ready: "http://" + proxyPod + ":9902/readyz"}
			x.needs = append([]string{"endpointslices", "proxyservers"}, answering.needs...)
			x.run(t)
		})
		t.Run("dhcp", func(t *testing.T) {
			t.Parallel()
			d.dhcpTrial(dhcp).run(t)
		})
		t.Run("control", func(t *testing.T) {
			t.Parallel()
			d.controlTrial(control).run(t)
		})
	})
}

// asks has a machine ask for an address until the test ends.
func asks(t *testing.T, m *lab.Machine) {
	t.Helper()
	client := lab.NewDaemon(t, "udhcpc", func() *exec.Cmd {
		return m.Command(context.Background(), "busybox", "udhcpc", "-f", "-i", "eth0", "-s", "/bin/true", "-t", "1000", "-T", "1")
	})
	client.Start(t)
}

func (d *deployed) dhcpTrial(a account) *trial {
	leases := func(verb string) right { return right{verb, "coordination.k8s.io", "leases", "clusters", ""} }
	yesterday := time.Now().Add(-24 * time.Hour)
	return &trial{
		account: a, pod: d.dhcp, container: "coredhcp", ready: "http://" + dhcpPod + ":9903/readyz", needs: []string{"virtualmachineinstances", "leases"},
		before: map[right]func(*testing.T){
			leases("create"): func(t *testing.T) { d.in(t).machine("worker-3", "02:00:00:00:00:03", "") },
			leases("update"): func(t *testing.T) {
				d.in(t).lease("192.0.2.30", "bound", "clusters-demo/worker-1/vlan", "", yesterday)
			},
			leases("delete"): func(t *testing.T) {
				d.in(t).lease("192.0.2.32", "declined", "declined", `leasedb.densityops.com/expires: "2026-01-02T03:16:00Z"`, yesterday)
			},
			leases("get"): func(t *testing.T) { d.in(t).stray("192.0.2.40", "clusters-demo/worker-2/vlan") },
		},
		after: map[right]func(*testing.T){
			leases("create"): func(t *testing.T) { asks(t, lab.NewMachine(t, vlanDevice, "02:00:00:00:00:03")) },
			leases("get"):    func(t *testing.T) { asks(t, d.workers[1]) },
			// What it has left behind is released when it asks for what it has.
			leases("update"): func(t *testing.T) { asks(t, d.workers[0]) },
		},
		signs: map[right]func(*testing.T) string{
			leases("get"): func(t *testing.T) string { // the client is met with silence, and the cause counted
				const failed = `coredhcp_leasedb_store_errors_total{operation="get"}`
				if _, metrics := get(t, "http://"+dhcpPod+":9903/metrics"); !strings.Contains(metrics, failed) {
					return "there is no metric " + failed
				}
				return ""
			},
		},
	}
}

func (d *deployed) controlTrial(a account) *trial {
	reader := func(verb string) right { return right{verb, "", "secrets", "clusters", "demo-apps-reader"} }
	admin := right{"get", "", "secrets", "clusters", "demo-admin-kubeconfig"}
	pods := right{"get", "", "pods", "", ""}
	twice := right{"patch", "events.k8s.io", "events", "", ""}
	apps := func(enabled bool) func(*testing.T) {
		return func(t *testing.T) {
			d.in(t).change(func(i *v1alpha1.Infra) { i.Spec.AppsIngress.Enabled = enabled })
		}
	}
	replicas := func(list string) func(*testing.T) {
		return func(t *testing.T) {
			err := d.management.ApplyStatusYAML(t.Context(), []byte(
				"apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: ProxyServer\nmetadata: {name: demo, namespace: clusters}\nstatus: {replicas: "+list+"}\n"))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	turn := func(p *pod) func(*testing.T) { return func(t *testing.T) { p.turn(t) } }
	return &trial{
		account: a, pod: d.control, container: "control", ready: "http://" + controlPod2 + ":9904/readyz",
		needs: []string{"hostedclusters", "infras", "routes", "services", "endpointslices", "proxyservers"},
		stopped: func(t *testing.T) { // nobody waits for who was killed
			err := d.kube.CoordinationV1().Leases("oooi-system").Delete(t.Context(), "oooi-control", metav1.DeleteOptions{})
			if client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
		},
		before: map[right]func(*testing.T){
			{"patch", v1alpha1.GroupName, "infras/status", "", ""}:       turn(d.dns),
			{"patch", v1alpha1.GroupName, "proxyservers/status", "", ""}: turn(d.proxy),
			{"create", "events.k8s.io", "events", "", ""}:                turn(d.proxy),
			// A replica has reported, and has no pod.
			pods: replicas("[{pod: demo-proxy-9}]"),
			reader("create"): func(t *testing.T) {
				err := d.kube.CoreV1().Secrets("clusters").Delete(t.Context(), "demo-apps-reader", metav1.DeleteOptions{})
				if client.IgnoreNotFound(err) != nil {
					t.Fatal(err)
				}
			},
			// The credentials are to be made anew.
			reader("patch"): func(t *testing.T) {
				err := d.guestKube.CoreV1().ServiceAccounts("openshift-ingress").Delete(t.Context(), "demo-apps-reader", metav1.DeleteOptions{})
				if client.IgnoreNotFound(err) != nil {
					t.Fatal(err)
				}
			},
			reader("delete"): func(t *testing.T) {
				d.in(t).apply(d.management, "apiVersion: v1\nkind: Secret\nmetadata: {name: demo-apps-reader, namespace: clusters, annotations: {hostedcluster.densityops.com/serviceaccount-uid: of-old}}\n")
				apps(false)(t)
			},
		},
		undo: map[right]func(*testing.T){pods: replicas("[]"), reader("delete"): apps(true)},
		signs: map[right]func(*testing.T) string{
			admin: func(t *testing.T) string {
				state := d.in(t).theInfra().Status.AppsIngress
				if state == nil || state.Reason != v1alpha1.AppsIngressKubeconfigMissing {
					return fmt.Sprintf("the state of the applications is %+v", state)
				}
				return saysRefused(state.Message, admin)
			},
			// Two conditions of one Infra that turn for one reason are one Event, which has happened twice.
			twice: func(t *testing.T) string {
				if d.in(t).seen(d.dns) {
					d.dns.turn(t)
				}
				return saysRefused(d.control.Run["control"].Log.String(), twice)
			},
		},
	}
}

// seen reports whether control has taken in what the Pod of the DNS server says of itself.
func (d *deployed) seen(p *pod) bool {
	d.Helper()
	c := meta.FindStatusCondition(d.theInfra().Status.Conditions, v1alpha1.ConditionNamesServed)
	says := c != nil && strings.Contains(c.Message, "pod "+p.Name+": it is Running")
	return says == (p.status != corev1.ConditionTrue)
}

// in is the same for another test.
func (d *deployed) in(t *testing.T) *deployed {
	there, s := *d, *d.site
	s.T, there.site = t, &s
	return &there
}
