package doctor

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRejectedWrites(t *testing.T) {
	const consequence = ": new VMs get no address, no pod is replaced, and statuses of Infras are outdated; VMs keep their addresses, and DNS and the proxy serve what they know\n"
	election := func(message string) map[page]string {
		return map[page]string{controlState: fmt.Sprintf(`{"election": "2026-01-02T03:04:00Z: %s", "store": {"synced": true}}`, message)}
	}
	for _, tc := range []struct {
		name  string
		pages map[page]string
		want  []string
	}{
		{"another error", election("failed calling webhook"), []string{}},
		{"full", election("etcdserver: mvcc: database space exceeded"), []string{
			"fail the API server of the management cluster accepts no writes, because the database of etcd is full" + consequence +
				"Pod control: Lease oooi-system/oooi-control: 2026-01-02T03:04:00Z: etcdserver: mvcc: database space exceeded",
		}},
		{"no leader", election("etcdserver: no leader"), []string{
			"fail the API server of the management cluster accepts no writes, because etcd has no leader or does not answer" + consequence +
				"Pod control: Lease oooi-system/oooi-control: 2026-01-02T03:04:00Z: etcdserver: no leader",
		}},
		{"full some time ago", map[page]string{dhcpState: `{"leasedb": [{"pool": "clusters.demo", "read": "2026-01-02T03:04:05Z", "operations": {"put": {"failed": "2026-01-02T03:00:00Z", "error": "etcdserver: no space", "succeeded": "2026-01-02T03:01:00Z"}}}]}`}, []string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, findingsOn(t, "OOOI-API-005", tc.pages)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
