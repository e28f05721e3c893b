package apps_test

import (
	"fmt"
	"testing"
	"time"

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
