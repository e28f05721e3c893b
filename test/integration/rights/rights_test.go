package rights_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// deployed is a site with running daemons.
type deployed struct {
	*site

	proxy, dns, dhcp, control *pod
	workers                   [2]*lab.Machine
}

// TestRights makes the daemons use each of their permissions, and compares the audit log with the granted permissions.
// Then it revokes each right in turn.
func TestRights(t *testing.T) {
	d := &deployed{site: newSite(t)}
	d.exercise()
	d.reportReplica("{pod: gone}") // control reads the pod from the API server, because its cache has none
	if d.checkAllRights(); t.Failed() {
		return
	}
	d.reportReplica("")
	d.revokeEach()
	d.checkInfraWithoutHostedCluster()
}

// reportReplica replaces the replicas that the test adds to the proxy's status.
func (d *deployed) reportReplica(replica string) {
	d.Helper()
	lab.Must(d.T, d.management.ApplyStatusYAML(d.Context(), fmt.Appendf(nil,
		"{apiVersion: hostedcluster.densityops.com/v1alpha1, kind: ProxyServer, metadata: {name: demo, namespace: clusters}, status: {replicas: [%s]}}", replica)))
}

// exercise makes every daemon use all of its features.
func (d *deployed) exercise() {
	// DHCP: an abandoned address of a machine, a declined one, and one whose Lease has no labels, so that
	// DHCP finds it only by a conflict.
	yesterday := time.Now().Add(-24 * time.Hour)
	d.lease("192.0.2.30", "bound", "clusters-demo/worker-1/vlan", yesterday)
	d.lease("192.0.2.31", "bound", "clusters-demo/worker-1/vlan", yesterday.Add(time.Hour))
	d.lease("192.0.2.32", "declined", "declined", yesterday, expired)
	d.unlabelledLease("192.0.2.40", "clusters-demo/worker-2/vlan")
	d.machine("worker-1", "02:00:00:00:00:01")
	d.machine("worker-2", "02:00:00:00:00:02", reserved("192.0.2.40"))
	// DHCP creates an Event about a rejected reservation.
	d.machine("worker-9", "02:00:00:00:00:09", reserved("192.0.2.1"))

	controls := d.pods("oooi-system", "control", 2)
	first := d.start(&controls[0], controlPod)
	d.proxy = d.start(&d.pods("clusters", "proxy", 1)[0], proxyPod)
	d.dns = d.start(&d.pods("clusters", "dns", 1)[0], dnsPod)
	d.dhcp = d.start(&d.pods("clusters", "dhcp", 1)[0], dhcpPod)
	d.assignAppsAddress()
	d.awaitReady()
	d.checkDNS()

	for i, want := range []string{"192.0.2.31", "192.0.2.40"} {
		d.workers[i] = lab.NewMachine(d.T, vlanDevice, fmt.Sprintf("02:00:00:00:00:%02d", i+1))
		if lease := d.workers[i].DHCP(d.T); lease["ip_address"] != want {
			d.Errorf("worker-%d: want address %s, lease %v", i+1, want, lease)
		}
	}

	// Another replica takes over.
	d.control = d.start(&controls[1], controlPod2)
	first.Containers["control"].Terminate(d.T)
	d.dns.setReady(d.T, corev1.ConditionFalse)
	d.awaitFalse()
	d.dns.setReady(d.T, corev1.ConditionTrue)
	d.awaitReady()

	// The reader's credentials are created again when its ServiceAccount has another UID.
	before := d.readerSecret()
	lab.Must(d, d.guestKube.CoreV1().ServiceAccounts("openshift-ingress").Delete(d.Context(), "demo-apps-reader", metav1.DeleteOptions{}))
	d.updateInfra(func(i *v1alpha1.Infra) { i.Spec.AppsIngress.AddressDeadline = "1m" })
	lab.Await(d.T, "new credentials", func() string {
		if now := d.readerSecret(); now == nil || now.ResourceVersion == before.ResourceVersion {
			return "the Secret has not changed"
		}
		return ""
	})
	// They are deleted when apps ingress is disabled, and created again when it is enabled.
	d.updateInfra(func(i *v1alpha1.Infra) { i.Spec.AppsIngress.Enabled = false })
	lab.Await(d.T, "the credentials to be deleted", func() string {
		if d.readerSecret() != nil {
			return "they still exist"
		}
		return ""
	})
	d.updateInfra(func(i *v1alpha1.Infra) { i.Spec.AppsIngress.Enabled = true })
	d.assignAppsAddress()
	d.awaitReady()
	d.checkDNS()

	// The proxy's pod is deleted, and the StatefulSet controller creates another.
	d.proxy.Kill(d.T)
	lab.Must(d, d.kube.CoreV1().Pods("clusters").Delete(d.Context(), d.proxy.Name, metav1.DeleteOptions{}))
	d.awaitFalse()
	d.proxy = d.start(&d.pods("clusters", "proxy", 1)[0], proxyPod)
	d.awaitReady()

	lab.Await(d.T, "the Event about a reservation", func() string {
		list, err := d.kube.EventsV1().Events("clusters-demo").List(d.Context(), metav1.ListOptions{})
		lab.Must(d, err)
		if !slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.Name == "worker-9" && e.Reason == "ReservationRefused" }) {
			return fmt.Sprintf("none among %d Events", len(list.Items))
		}
		return ""
	})
	lab.Await(d.T, "the abandoned address to be released", func() string {
		if state := d.leaseState("192.0.2.30"); state != "released" {
			return "state " + state
		}
		return ""
	})
	lab.Await(d.T, "the expired quarantine to be deleted", func() string { return d.leaseState("192.0.2.32") })
}

// infraWithoutHostedCluster is an Infra whose hosted cluster does not exist yet.
var infraWithoutHostedCluster = lab.Site{Name: "early", VLAN: "192.0.3", Network: "vlan100"}.Infra(`spec:
  networkConfig: {dnsServers: [192.0.3.1]}
  infraComponents: {dns: {clusterName: early, baseDomain: example.com}, proxy: {serverIP: 192.0.3.5, instances: [{ip: 192.0.3.4}]}}`)

// checkInfraWithoutHostedCluster sets up an Infra before its hosted control plane exists. Its daemons then
// have permissions in all namespaces, because no Role can be created in a namespace that does not exist, and must
// work with these. Its proxy has a floating address and a Lease.
func (d *deployed) checkInfraWithoutHostedCluster() {
	for _, p := range []*pod{d.proxy, d.dns, d.dhcp} {
		p.Kill(d.T)
	}
	d.setup(infraWithoutHostedCluster)
	for _, x := range []struct{ component, ip, ready string }{
		{"proxy", proxyPod, ":9902/readyz"}, {"dns", dnsPod, ":8181/ready"}, {"dhcp", dhcpPod, ":9903/readyz"},
	} {
		at := slices.IndexFunc(d.pods("clusters", x.component, 2), func(p corev1.Pod) bool { return p.Labels[v1alpha1.LabelInfra] == "early" })
		p := d.start(&d.pods("clusters", x.component, 2)[at], x.ip)
		lab.Await(d.T, x.component+" to be ready", func() string { return lab.CheckStatus(d.T, "http://"+x.ip+x.ready, http.StatusOK) })
		of := account{d.kube, "clusters", "early-" + x.component}
		isAddressLease := func(g lab.Right) bool { return g.Name == "early-proxy-address" }
		holding := func() bool { return lab.Pages(x.ip+":9906").Metric(d.T, "xdsd_hold_holding") == 1 }
		if x.component == "proxy" {
			lab.Poll(d.T, "the proxy to hold the address", holding)
		}
		d.checkRights(of, d.management, func(g lab.Right) bool { return g.Namespace == "" || isAddressLease(g) })
		if x.component == "proxy" {
			d.Run("holder", func(t *testing.T) {
				serveRights := slices.DeleteFunc(of.granted(t), isAddressLease)
				(&removalTest{account: of, pod: p, container: "holder", ready: "http://" + x.ip + ":9906/readyz", others: serveRights}).run(t)
			})
			lab.Poll(d.T, "the proxy to hold the address again", holding)
		}
	}
}

// checkDNS waits until DNS resolves a control-plane name and an apps name for VMs.
func (d *deployed) checkDNS() {
	d.Helper()
	for name, want := range map[string]string{"api." + domain: "192.0.2.4", "shop.apps." + domain: "192.0.2.200"} {
		lab.Await(d.T, name+" to resolve to "+want, func() string {
			if got := lab.Resolve(d.Context(), "192.0.2.2", "192.0.2.3:53", name, dns.TypeA); got != want {
				return "answer " + got
			}
			return ""
		})
	}
}

// awaitFalse waits until the Infra's condition Ready is False.
func (d *deployed) awaitFalse() {
	d.Helper()
	lab.Await(d.T, "the Infra's condition Ready to be False", func() string {
		for _, c := range d.getInfra().Status.Conditions {
			if c.Type == v1alpha1.ConditionReady && c.Status == metav1.ConditionFalse {
				return ""
			}
		}
		return "it is not False"
	})
}

// accounts returns setup's ServiceAccounts, and the reader's ServiceAccount in the hosted cluster.
func (d *deployed) accounts() (control, dns, dhcp, proxy, reader account) {
	return account{d.kube, "oooi-system", "oooi-control"}, account{d.kube, "clusters", "demo-dns"},
		account{d.kube, "clusters", "demo-dhcp"}, account{d.kube, "clusters", "demo-proxy"},
		account{d.guestKube, "openshift-ingress", "demo-apps-reader"}
}

// patchEvent is permission to count a repeated Event. client-go combines two Events only if both have the same version of the object,
// which depends on when control's cache receives its own writes. Tests therefore cannot require that the right is used.
var patchEvent = right("patch", "events.k8s.io", "events", "", "")

// checkAllRights compares granted permissions and requests of all accounts.
func (d *deployed) checkAllRights() {
	control, dns, dhcp, proxy, reader := d.accounts()
	for _, a := range []account{control, dns, dhcp, proxy, reader} {
		cp := d.management
		if a == reader {
			cp = d.hosted
		}
		d.checkRights(a, cp, func(r lab.Right) bool { return r != patchEvent })
	}
}

// checkRights compares an account's requests with its granted permissions, and waits until the permissions that used
// selects have been used: a daemon that starts with a snapshot file is ready before it has read any object.
func (d *deployed) checkRights(a account, cp *lab.ControlPlane, used func(lab.Right) bool) {
	d.Helper()
	granted := a.granted(d.T)
	var sent lab.Requests
	lab.Await(d.T, a.user()+" to use its permissions", func() string {
		sent = lab.RequestsOf(d.T, cp, a.user())
		var unused []string
		for _, g := range granted {
			if used(g) && !slices.ContainsFunc(slices.Collect(maps.Keys(sent.Allowed)), g.Covers) {
				unused = append(unused, g.String())
			}
		}
		return strings.Join(unused, "; ")
	})
	d.Logf("%s has %d permissions and made %d different requests", a.user(), len(granted), len(sent.Allowed))
	for r := range sent.Denied {
		d.Errorf("%s was denied: %s", a.user(), r)
	}
	for r := range sent.Allowed {
		if !slices.ContainsFunc(granted, func(g lab.Right) bool { return g.Covers(r) }) {
			d.Errorf("%s was allowed a request that setup does not grant: %s", a.user(), r)
		}
	}
}
