package leases

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

const objects = `
- metadata: {name: clusters.demo.192.0.2.100, namespace: clusters, labels: {leasedb.densityops.com/state: bound, leasedb.densityops.com/mac: 02-00-00-00-00-01, leasedb.densityops.com/hostname: worker-0}}
  spec: {holderIdentity: guests/worker-0/vlan, renewTime: "2026-01-02T03:04:05.678901Z"}
- metadata: {name: clusters.demo.192.0.2.20, namespace: clusters, labels: {leasedb.densityops.com/state: released, leasedb.densityops.com/mac: 02-00-00-00-00-02}}
  spec: {holderIdentity: guests/worker-1/vlan, renewTime: "2026-01-02T03:04:05.000000Z"}
- metadata: {name: clusters.a.b.192.0.2.9, namespace: clusters, labels: {leasedb.densityops.com/state: declined}, annotations: {leasedb.densityops.com/expires: "2026-01-02T03:14:05.5Z"}}
  spec: {holderIdentity: declined, renewTime: "2026-01-02T03:04:05.000000Z"}
- metadata: {name: clusters.demo.2001-0db8-0000-0000-0000-0000-0000-0010, namespace: clusters, labels: {leasedb.densityops.com/state: bound, leasedb.densityops.com/hostname: cut}, annotations: {leasedb.densityops.com/hostname: "a host, with words", leasedb.densityops.com/mac: "odd", leasedb.densityops.com/expires: "2026-01-02T05:00:00Z"}}
  spec: {holderIdentity: "id:0102", renewTime: "2026-01-02T03:04:05.000000Z"}
- metadata: {name: clusters.demo.192.0.2.30, namespace: clusters, labels: {leasedb.densityops.com/state: bound}, annotations: {leasedb.densityops.com/expires: "2026-01-02T04:00:00Z"}}
  spec: {holderIdentity: "mac:020000000003", renewTime: "2026-01-02T03:04:05.000000Z"}
- metadata: {name: default.192.0.2.31, namespace: clusters}
- metadata: {name: clusters.demo, namespace: clusters}
- metadata: {name: clusters.192.0.2.1, namespace: clusters}
- metadata: {name: clusters.demo.192.0.2.40, namespace: clusters}
- metadata: {name: clusters.demo.192.0.2.41, namespace: clusters}
  spec: {holderIdentity: guests/worker-0/vlan}
- metadata: {name: clusters.demo.192.0.2.42, namespace: clusters, annotations: {leasedb.densityops.com/expires: soon}}
  spec: {holderIdentity: "id:0102", renewTime: "2026-01-02T03:04:05.000000Z"}
`

func TestRead(t *testing.T) {
	var all []*coordinationv1.Lease
	lab.Must(t, yaml.UnmarshalStrict([]byte(objects), &all))
	var list []*Lease
	var b strings.Builder
	for _, o := range all {
		l, err := Read(o, time.Date(2026, 1, 2, 4, 30, 0, 0, time.UTC))
		switch {
		case err != nil:
			b.WriteString("error: " + err.Error() + "\n")
		case l == nil:
			b.WriteString("no lease: " + o.Name + "\n")
		default:
			list = append(list, l)
		}
	}
	Sort(list)
	lab.Must(t, output.NewTable(Columns(false, true), list, true).Write(&b))
	golden.Check(t, "testdata/leases.golden", b.String())
}

// TestReservationIsALease uses an Infra whose pool name is too long for a label.
func TestReservationIsALease(t *testing.T) {
	infra, address, now := strings.Repeat("x", 60), netip.MustParseAddr("192.0.2.10"), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o := Reservation("clusters", infra, "oooi-probe", address, now, time.Minute)
	for key, value := range o.Labels {
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			t.Errorf("label %s: %v", key, problems)
		}
	}
	l, err := Read(o, now)
	lab.Must(t, err)
	if l.Infra != infra || l.Address != address || l.State != "bound" || l.Client != "id:6f6f6f692d70726f6265" || !l.Expires.Equal(now.Add(time.Minute)) {
		t.Errorf("the reservation is read as %+v", l)
	}
}
