package apps_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/integration/internal/tenant"
	"github.com/densityops/oooi/test/lab"
)

// TestNamesAndConnectionsFollowTheAddress checks that a changed address reaches CoreDNS and Envoy, from
// MetalLB through the Service in the hosted cluster.
func TestNamesAndConnectionsFollowTheAddress(t *testing.T) {
	d := newDataPlane(t, `192.0.2.200/32, "2001:db8::200/128"`)
	for _, address := range []string{"192.0.2.200", "192.0.2.210"} {
		d.backend(address)
	}
	start := time.Now()
	d.ApplyInfra(tenant.AppsIngress(", service: {ipFamilyPolicy: RequireDualStack}"))
	d.Await(tenant.Ready, "", "", "192.0.2.200", "2001:db8::200")
	t.Logf("Ready after %s", time.Since(start).Round(time.Millisecond))
	d.awaitAddress(time.Now(), "192.0.2.200", "2001:db8::200")

	// Another address.
	start = time.Now()
	d.ApplyPool(`192.0.2.210/32, "2001:db8::210/128"`)
	d.awaitAddress(start, "192.0.2.210", "2001:db8::210")
	d.Await(tenant.Ready, "", "", "192.0.2.210", "2001:db8::210")

	// A withdrawn address stays in use until another one is assigned.
	lab.Must(t, d.Hosted.KillMetalLB())
	d.AssignAddresses()
	d.Await(tenant.Degraded, "AddressWithdrawn", "", "192.0.2.210", "2001:db8::210")
	d.awaitAddress(time.Now(), "192.0.2.210", "2001:db8::210")
	start = time.Now()
	d.AssignAddresses("192.0.2.200")
	d.awaitAddress(start, "192.0.2.200", "NOERROR")
	d.Await(tenant.Ready, "", "", "192.0.2.200")
}

// outage is for how long the hosted API server is down. At full length it exceeds the timeouts of watches and
// requests, and control's longest retry interval.
var outage = lab.Length(5*time.Second, 2*time.Minute)

// TestLastAddressIsKeptDuringAHostedClusterOutage restarts CoreDNS, xdsd serve and Envoy during the outage.
func TestLastAddressIsKeptDuringAHostedClusterOutage(t *testing.T) {
	d := newDataPlane(t, "192.0.2.200/32")
	for _, address := range []string{"192.0.2.200", "192.0.2.210"} {
		d.backend(address)
	}
	d.ApplyInfra(tenant.AppsIngress(""))
	d.awaitAddress(time.Now(), "192.0.2.200", "NOERROR")
	d.Await(tenant.Ready, "", "", "192.0.2.200")
	lab.Must(t, d.Hosted.KillAPIServer())
	killed := time.Now()
	d.Await(tenant.Degraded, "HostedClusterUnreachable", "", "192.0.2.200")
	d.coredns.Kill(t)
	d.coredns.Start(t)
	d.serve.Kill(t)
	d.envoy.Kill(t)
	d.serve.Start(t)
	d.envoy.Start(t)
	d.awaitAddress(time.Now(), "192.0.2.200", "NOERROR")

	checks := 0
	for ; time.Since(killed) < outage; time.Sleep(100 * time.Millisecond) {
		checks++
		if differences := d.differences(t.Context(), "192.0.2.200", "NOERROR", nil); differences != "" {
			t.Fatalf("%s into the outage: %s", time.Since(killed).Round(time.Second), differences)
		}
	}
	d.Await(tenant.Degraded, "HostedClusterUnreachable", "", "192.0.2.200")
	t.Logf("%d checks found the last address in use", checks)
	lab.Must(t, d.Hosted.StartAPIServer(t.Context()))
	back := time.Now()
	d.Await(tenant.Ready, "", "", "192.0.2.200")
	t.Logf("Ready %s after the API server started", time.Since(back).Round(time.Millisecond))
	d.ApplyPool("192.0.2.210/32")
	lab.Await(t, "MetalLB to assign another address", func() string {
		if list := d.Service().Status.LoadBalancer.Ingress; len(list) != 1 || list[0].IP != "192.0.2.210" {
			return fmt.Sprint(list)
		}
		return ""
	})
	d.awaitAddress(time.Now(), "192.0.2.210", "NOERROR")
}

// TestRemovedAppsNamesAreNotAnswered disables apps ingress, and then deletes the Infra.
func TestRemovedAppsNamesAreNotAnswered(t *testing.T) {
	d := newDataPlane(t, "192.0.2.200/32")
	d.backend("192.0.2.200")
	awaitRemoval := func() {
		t.Helper()
		lab.Await(t, "the apps names to be removed", func() string {
			for what, got := range map[string]string{
				"VMs": d.resolve(t.Context(), vm, dns.TypeA), "pods": d.resolve(t.Context(), pod, dns.TypeA),
			} {
				if got != "NXDOMAIN" {
					return "A for " + what + " is " + got
				}
			}
			if got := d.connect(t.Context(), proxy); !strings.Contains(got, "handshake") {
				return "TLS is " + got
			}
			return ""
		})
	}
	d.ApplyInfra(tenant.AppsIngress(""))
	d.awaitAddress(time.Now(), "192.0.2.200", "NOERROR")
	d.ApplyInfra("{enabled: false}")
	awaitRemoval() // the names are now routed to the API server like other names of the cluster, and that has no backend
	d.ApplyInfra(tenant.AppsIngress(""))
	d.awaitAddress(time.Now(), "192.0.2.200", "NOERROR")
	lab.Must(t, d.Client.Delete(t.Context(), &v1alpha1.Infra{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: "demo"}}))
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for what, where := range map[string]string{"VMs": vm, "pods": pod} {
			if got := d.resolve(t.Context(), where, dns.TypeA); got == "NXDOMAIN" {
				t.Fatalf("the Infra disappeared, and A for %s is %s; want the address as before", what, got)
			}
		}
	}
}
