package rights_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// deployed is the site with everything running.
type deployed struct {
	*site

	proxy, dns, dhcp, control *pod
	workers                   [2]*lab.Machine
}

// TestRights runs everything once, so that each right is used, and looks into the audit log. Then it
// takes each right away by itself.
func TestRights(t *testing.T) {
	d := &deployed{site: newSite(t)}
	d.work()
	if d.sufficient(); t.Failed() {
		return
	}
	d.necessary()
	d.early()
}

// work has every daemon do all that it does in a lifetime.
func (d *deployed) work() {
	// DHCP: an address that a machine has left behind, one that nobody could use for a while, and one
	// whose Lease has lost its labels, so that it is found when it is in the way.
	yesterday := time.Now().Add(-24 * time.Hour)
	d.lease("192.0.2.30", "bound", "clusters-demo/worker-1/vlan", "", yesterday)
	d.lease("192.0.2.31", "bound", "clusters-demo/worker-1/vlan", "", yesterday.Add(time.Hour))
	d.lease("192.0.2.32", "declined", "declined", `leasedb.densityops.com/expires: "2026-01-02T03:16:00Z"`, yesterday)
	d.stray("192.0.2.40", "clusters-demo/worker-2/vlan")
	d.machine("worker-1", "02:00:00:00:00:01", "")
	d.machine("worker-2", "02:00:00:00:00:02", "hostedcluster.densityops.com/dhcp-addresses: 192.0.2.40")
	// A reservation that is not honoured, of which DHCP makes an Event.
	d.machine("worker-9", "02:00:00:00:00:09", "hostedcluster.densityops.com/dhcp-addresses: 192.0.2.1")

	controls := d.pods("oooi-system", "control", 2)
	first := d.start(&controls[0], controlPod)
	d.proxy = d.start(&d.pods("clusters", "proxy", 1)[0], proxyPod)
	d.dns = d.start(&d.pods("clusters", "dns", 1)[0], dnsPod)
	d.dhcp = d.start(&d.pods("clusters", "dhcp", 1)[0], dhcpPod)
	d.assign()
	d.awaitReady()
	d.answers()

	for i, want := range []string{"192.0.2.31", "192.0.2.40"} {
		d.workers[i] = lab.NewMachine(d.T, vlanDevice, fmt.Sprintf("02:00:00:00:00:%02d", i+1))
		if lease := d.workers[i].DHCP(d.T); lease["ip_address"] != want {
			d.Errorf("worker-%d has not the address %s: %v", i+1, want, lease)
		}
	}

	// Another replica takes over, and tells of what happens: one Event for two conditions that turn.
	d.control = d.start(&controls[1], controlPod2)
	first.Run["control"].Terminate(d.T)
	d.dns.ready(d.T, corev1.ConditionFalse)
	d.awaitFalse()
	d.dns.ready(d.T, corev1.ConditionTrue)
	d.awaitReady()

	// The reader's credentials are made anew when its account is another one.
	before := d.reader()
	if err := d.guestKube.CoreV1().ServiceAccounts("openshift-ingress").Delete(d.Context(), "demo-apps-reader", metav1.DeleteOptions{}); err != nil {
		d.Fatal(err)
	}
	d.change(func(i *v1alpha1.Infra) { i.Spec.AppsIngress.AddressDeadline = "1m" })
	await(d.T, "new credentials", func() string {
		if now := d.reader(); now == nil || now.ResourceVersion == before.ResourceVersion {
			return "they are as before"
		}
		return ""
	})
	// They go with the applications, and come back with them.
	d.change(func(i *v1alpha1.Infra) { i.Spec.AppsIngress.Enabled = false })
	await(d.T, "the credentials to go", func() string {
		if d.reader() != nil {
			return "they are there"
		}
		return ""
	})
	d.change(func(i *v1alpha1.Infra) { i.Spec.AppsIngress.Enabled = true })
	d.assign()
	d.awaitReady()
	d.answers()

	// The proxy's pod is lost, and the controller makes another.
	d.proxy.Kill(d.T)
	if err := d.kube.CoreV1().Pods("clusters").Delete(d.Context(), d.proxy.Name, metav1.DeleteOptions{}); err != nil {
		d.Fatal(err)
	}
	d.awaitFalse()
	d.proxy = d.start(&d.pods("clusters", "proxy", 1)[0], proxyPod)
	d.awaitReady()

	await(d.T, "the Event about a reservation", func() string {
		list, err := d.kube.EventsV1().Events("clusters-demo").List(d.Context(), metav1.ListOptions{})
		if err != nil {
			d.Fatal(err)
		}
		if !slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.Name == "worker-9" && e.Reason == "ReservationRefused" }) {
			return fmt.Sprintf("there are %d others", len(list.Items))
		}
		return ""
	})
	await(d.T, "the address that was left behind to be released", func() string {
		if state := d.leaseState("192.0.2.30"); state != "released" {
			return "it is " + state
		}
		return ""
	})
	await(d.T, "what is over to be collected", func() string { return d.leaseState("192.0.2.32") })
}

// earlyInfra is one whose hosted cluster is yet to come.
const earlyInfra = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: early, namespace: clusters}
spec:
  hostedClusterRef: {name: early}
  networkConfig: {cidr: 192.0.3.0/24, gateway: 192.0.3.1, networkAttachmentDefinition: vlan100, dnsServers: [192.0.3.1]}
  infraComponents:
    dhcp: {serverIP: 192.0.3.2, rangeStart: 192.0.3.10, rangeEnd: 192.0.3.99}
    dns: {serverIP: 192.0.3.3, clusterName: early, baseDomain: example.com}
    proxy: {serverIP: 192.0.3.5, instances: [{ip: 192.0.3.4}]}
`

// early sets up an Infra before there is its control plane. Then rights are for all namespaces,
// since there can be no Role in one that is yet to come; its daemons have to get along with them. Its
// proxy has an address that floats, and a Lease that says where.
func (d *deployed) early() {
	for _, p := range []*pod{d.proxy, d.dns, d.dhcp} {
		p.Kill(d.T)
	}
	d.setup(earlyInfra)
	for _, x := range []struct{ component, ip, ready string }{
		{"proxy", proxyPod, ":9902/readyz"}, {"dns", dnsPod, ":8181/ready"}, {"dhcp", dhcpPod, ":9903/readyz"},
	} {
		at := slices.IndexFunc(d.pods("clusters", x.component, 2), func(p corev1.Pod) bool { return p.Labels[v1alpha1.LabelInfra] == "early" })
		p := d.start(&d.pods("clusters", x.component, 2)[at], x.ip)
		await(d.T, x.component+" to be ready", func() string {
			if status, body := get(d.T, "http://"+x.ip+x.ready); status != http.StatusOK {
				return fmt.Sprint(status, " ", body)
			}
			return ""
		})
		of := account{d.kube, "clusters", "early-" + x.component}
		floats := func(g right) bool { return g.name == "early-proxy-address" }
		holds := func() string {
			if _, metrics := get(d.T, "http://"+x.ip+":9906/metrics"); !strings.Contains(metrics, "\nxdsd_hold_leased 1\n") {
				return metrics
			}
			return ""
		}
		if x.component == "proxy" {
			await(d.T, "the address to be held", holds)
		}
		d.judge(of, d.management, func(g right) bool { return g.namespace == "" || floats(g) })
		if x.component == "proxy" {
			d.Run("holder", func(t *testing.T) {
				xdsds := slices.DeleteFunc(of.granted(t), floats)
				(&trial{account: of, pod: p, container: "holder", ready: "http://" + x.ip + ":9906/readyz", others: xdsds}).run(t)
			})
			await(d.T, "the address to be held again", holds)
		}
	}
}

// answers checks what DNS says to machines: of the control plane, and of the applications.
func (d *deployed) answers() {
	d.Helper()
	for name, want := range map[string]string{"api." + domain: "192.0.2.4", "shop.apps." + domain: "192.0.2.200"} {
		await(d.T, name+" to be answered", func() string {
			if got := d.dig(name); got != want {
				return "it is " + got
			}
			return ""
		})
	}
}

// awaitFalse waits until control says that something does not work.
func (d *deployed) awaitFalse() {
	d.Helper()
	await(d.T, "the Infra not to be ready", func() string {
		for _, c := range d.theInfra().Status.Conditions {
			if c.Type == v1alpha1.ConditionReady && c.Status == metav1.ConditionFalse {
				return ""
			}
		}
		return "it is"
	})
}

// The accounts that setup has made, and the reader's in the hosted cluster.
func (d *deployed) accounts() (control, dns, dhcp, proxy, reader account) {
	return account{d.kube, "oooi-system", "oooi-control"}, account{d.kube, "clusters", "demo-dns"},
		account{d.kube, "clusters", "demo-dhcp"}, account{d.kube, "clusters", "demo-proxy"},
		account{d.guestKube, "openshift-ingress", "demo-apps-reader"}
}

// sufficient compares what is granted with what was asked for.
func (d *deployed) sufficient() {
	control, dns, dhcp, proxy, reader := d.accounts()
	for _, a := range []account{control, dns, dhcp, proxy, reader} {
		cp := d.management
		if a == reader {
			cp = d.hosted
		}
		d.judge(a, cp, func(right) bool { return true })
	}
}

// judge compares what an account has requested with what it is granted, and waits until it has used
// some of its rights: a daemon that starts with a snapshot file is ready before it has read anything.
func (d *deployed) judge(a account, cp *lab.ControlPlane, used func(right) bool) {
	d.Helper()
	granted := a.granted(d.T)
	var asked requests
	await(d.T, a.user()+" to use its rights", func() string {
		asked = requestsOf(d.T, cp, a.user())
		var unused []string
		for _, g := range granted {
			if used(g) && !slices.ContainsFunc(slices.Collect(maps.Keys(asked.made)), g.covers) {
				unused = append(unused, g.String())
			}
		}
		return strings.Join(unused, "; ")
	})
	d.Logf("%s has %d rights and made %d different requests", a.user(), len(granted), len(asked.made))
	for r := range asked.refused {
		d.Errorf("%s was refused: %s", a.user(), r)
	}
	for r := range asked.made {
		if !slices.ContainsFunc(granted, func(g right) bool { return g.covers(r) }) {
			d.Errorf("%s may do what setup has not granted: %s", a.user(), r)
		}
	}
}
