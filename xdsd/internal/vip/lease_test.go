package vip

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/densityops/oooi/test/lab"
)

func TestAcquireOnlyAnUnchangedLease(t *testing.T) {
	lease := func(holder string, renewed time.Time) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: new(metav1.NewMicroTime(renewed))}}
	}
	observed := newLeaseRecord(lease("lower", start))
	c := &leaseClient{identity: "middle", self: testMAC}
	for name, tc := range map[string]struct {
		current *coordinationv1.Lease
		granted bool
	}{
		"unchanged":      {lease("lower", start), true},
		"released":       {lease("", start), true},
		"renewed":        {lease("lower", start.Add(time.Second)), false},
		"another holder": {lease("higher", start), false},
		"its own":        {lease("middle", start.Add(time.Second)), true},
	} {
		err := c.modify(tc.current, acquire, observed, start.Add(time.Minute))
		if granted := err == nil && *tc.current.Spec.HolderIdentity == "middle"; granted != tc.granted {
			t.Errorf("%s: granted %t (%v)", name, granted, err)
		}
	}
}

func TestDeletedLeaseIsCreatedAgain(t *testing.T) {
	leases := fake.NewClientset().CoordinationV1().Leases("x")
	c := &leaseClient{client: leases, name: "address", identity: "middle", self: testMAC, requestDeadline: requestDeadline}
	for _, r := range []request{acquire, renew, acquire} {
		res := c.do(t.Context(), r, leaseRecord{})
		if res.err != nil || res.granted != (r == acquire) {
			t.Errorf("%s: granted %t, %v", r, res.granted, res.err)
		}
		if r == acquire {
			lab.Must(t, leases.Delete(t.Context(), "address", metav1.DeleteOptions{}))
		}
	}
}

func TestDeletionEndsTheWatch(t *testing.T) {
	leases := fake.NewClientset().CoordinationV1().Leases("x")
	c := &leaseClient{client: leases, name: "address", identity: "middle", self: testMAC, requestDeadline: requestDeadline}
	lab.Must(t, c.do(t.Context(), acquire, leaseRecord{}).err)
	holders := make(chan string)
	go c.watch(t.Context(), func(e leaseEvent) {
		select {
		case holders <- e.lease.holder:
		case <-t.Context().Done():
		}
	})
	if holder := <-holders; holder != "middle" {
		t.Errorf("the holder is %q", holder)
	}
	lab.Must(t, leases.Delete(t.Context(), "address", metav1.DeleteOptions{}))
	for timeout := time.After(20 * time.Second); ; {
		select {
		case holder := <-holders:
			if holder == "" {
				return
			}
		case <-timeout:
			t.Fatal("the Lease is not read again")
		}
	}
}
