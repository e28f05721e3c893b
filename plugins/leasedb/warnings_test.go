package leasedb

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

// fullDisk is a store whose disk is full.
type fullDisk struct{ store.Store }

func (fullDisk) Put(context.Context, store.Binding) (store.Binding, error) {
	return store.Binding{}, syscall.ENOSPC
}

func TestWarnings(t *testing.T) {
	d := newDirectory()
	d.boot("worker-0", mac(1))
	i := serve(t, d, bolt(t)+network)
	process.mu.Lock()
	process.instances = append(process.instances, i)
	process.mu.Unlock()
	t.Cleanup(func() {
		process.mu.Lock()
		process.instances = nil
		process.mu.Unlock()
	})
	expectWarning := func(want string) {
		t.Helper()
		if got := strings.Join(Warnings(), "\n"); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("got %q, want %q", got, want)
		}
		if want != "" && !Ready() {
			t.Error("not ready although known clients are answered")
		}
	}

	i.pool.Collect(t.Context())
	expectWarning("the store contained no bindings although the network has VMs")
	addr := dora(t, i, mac(1))
	i.pool.Collect(t.Context())
	expectWarning("")

	working := i.store.Store
	i.store.Store = fullDisk{working}
	d.boot("worker-1", mac(2))
	offer := want(t, i, message(dhcpv4.MessageTypeDiscover, mac(2)), dhcpv4.MessageTypeOffer)
	request := message(dhcpv4.MessageTypeRequest, mac(2), withServer("192.0.2.2"), withWanted(offer.YourIPAddr))
	want(t, i, request, dhcpv4.MessageTypeNone)
	expectWarning("no space left on device")
	failed := Status()[0].Operations["put"]
	if failed.Error != syscall.ENOSPC.Error() || !failed.Failed.After(failed.Succeeded) || failed.Succeeded.IsZero() {
		t.Errorf("after a failed write: %+v", failed)
	}
	want(t, i, message(dhcpv4.MessageTypeRequest, mac(1), dhcpv4.WithClientIP(addr)), dhcpv4.MessageTypeAck)
	i.store.Store = working
	want(t, i, request, dhcpv4.MessageTypeAck)
	expectWarning("")

	first, second := netip.MustParseAddr(addr.String()), netip.MustParseAddr(offer.YourIPAddr.String())
	if got := RecentClients(3); !slices.Equal(got, []netip.Addr{second, first}) {
		t.Errorf("recent clients are %v, want %s and %s", got, second, first)
	}
	if got := RecentClients(1); !slices.Equal(got, []netip.Addr{second}) {
		t.Errorf("the most recent client is %v, want %s", got, second)
	}
	d.remove(mac(2))
	if got := RecentClients(3); !slices.Equal(got, []netip.Addr{first}) {
		t.Errorf("recent clients are %v after a VM was deleted, want %s", got, first)
	}
}
