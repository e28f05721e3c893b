package vip_test

import (
	"context"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// A client is a machine on the near side of the VLAN. It connects to the proxy, and sends ARP probes for the floating address, at a
// constant rate.
type client struct {
	*lab.ARPWatch

	machine *lab.Machine
	dials   *lab.Probe
}

func newClient(t *testing.T, near, far string) *client {
	t.Helper()
	c := &client{machine: lab.NewMachine(t, near, "02:00:00:00:01:00")}
	for _, address := range []string{"192.0.2.100/24", "2001:db8::100/64"} {
		c.machine.Run(t, "ip", "address", "add", address, "dev", c.machine.Device, "nodad")
	}
	// A host on the far side sends ARP requests, because a replica that hears no other host considers itself
	// cut off.
	other := lab.NewNamespace(t)
	lab.Must(t, lab.Cable(lab.End{Bridge: far}, lab.End{In: other, Device: "eth0", Addresses: []string{"192.0.2.101/24"}}))
	chatter := lab.NewDaemon(t, "the host on the far side", func() *exec.Cmd {
		return other.Command(context.Background(), "busybox", "arping", "-I", "eth0", "-q", "192.0.2.102")
	})
	chatter.Start(t)
	return c
}

// start starts connections and ARP probes, until the test ends.
func (c *client) start(t *testing.T) {
	t.Helper()
	c.ARPWatch = lab.WatchARP(t, c.machine.Namespace, c.machine.Device, floating)
	c.dials = &lab.Probe{Name: "connections", Ask: func(ctx context.Context) error {
		_, err := c.machine.Greeting(ctx, netip.Addr{}, netip.AddrPortFrom(floating, port))
		return err
	}}
	c.dials.Start(t)
}

// The times in which the replicas that have replied to ARP probes are taken as the holders.
const briefly, steadily = 200 * time.Millisecond, time.Second

// timeWithoutService returns for how long since a time there was no service. It waits until connections succeed again.
func (c *client) timeWithoutService(t *testing.T, since time.Time) time.Duration {
	t.Helper()
	lab.Await(t, "connections to succeed again", func() string { return c.dials.Problem(since) })
	return c.dials.Outage(since)
}
