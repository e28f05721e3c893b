package rollout_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// lease is a bound DHCP lease of a VM.
func (s *site) lease(address string) {
	s.Helper()
	s.Apply(fmt.Sprintf(`
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: %[1]s.demo.%[2]s, namespace: %[1]s, labels: {leasedb.densityops.com/pool: %[1]s.demo, leasedb.densityops.com/state: bound}}
spec: {holderIdentity: %[1]s-demo/worker/default, renewTime: "2026-01-02T03:04:05.000000Z"}
`, s.Namespace, address))
}

func TestSetupWarnsOfMovedDNS(t *testing.T) {
	s := newSite(t)
	s.Setup()
	s.lease("192.0.2.50")
	good := s.Infra
	const moved = "Warning: DNS moves from 192.0.2.3 to 192.0.2.5: VMs query the previous address until they renew their leases; "
	s.Infra = strings.Replace(good, "dns: {serverIP: 192.0.2.3", "dns: {serverIP: 192.0.2.5", 1)
	s.Expect(0, "setup -f FILE --dry-run=server", moved)
	for _, same := range []string{good, strings.Replace(good, "dns: {serverIP: 192.0.2.3", "dns: {instances: [{ip: 192.0.2.3}, {ip: 192.0.2.5}]", 1)} {
		s.Infra = same
		if _, stderr, code := s.Run("setup", "-f", "FILE", "--dry-run=server"); code != 0 || strings.Contains(stderr, "DNS moves") {
			t.Errorf("setup exited with %d, stderr %s", code, stderr)
		}
	}
}

func TestSetupRefusesASecondDHCPServer(t *testing.T) {
	s := newSite(t)
	s.Setup()
	good := s.Infra
	s.Infra = strings.NewReplacer("metadata: {name: demo,", "metadata: {name: second,", "192.0.2.2,", "192.0.2.102,", "192.0.2.10,", "192.0.2.110,", "192.0.2.99}", "192.0.2.120}",
		"dns: {serverIP: 192.0.2.3}", "dns: {serverIP: 192.0.2.103}", "proxy: {serverIP: 192.0.2.4}", "proxy: {serverIP: 192.0.2.104}").Replace(good)
	s.Refused("Infra " + s.Namespace + "/demo already serves DHCP to the VMs of HostedCluster " + s.Namespace + "/demo on network " + s.Namespace + "/vlan100")
}

func TestSetupRefusesToLoseItsHostedCluster(t *testing.T) {
	s := newSite(t)
	s.Setup()
	s.Infra = strings.NewReplacer("hostedClusterRef: {name: demo,", "hostedClusterRef: {name: gone,", "dns: {serverIP: 192.0.2.3}", "dns: {serverIP: 192.0.2.3, clusterName: gone, baseDomain: example.com}").Replace(s.Infra)
	s.Refused("the Infra serves HostedCluster " + s.Namespace + "/demo, which would lose its names and its proxy")
}

// TestStatefulSetBesideTheRecordIsDeleted deletes the records, creates a StatefulSet that no record has, and replaces the single
// replica by two others: its StatefulSet must not remain, but the VMs' network must.
func TestStatefulSetBesideTheRecordIsDeleted(t *testing.T) {
	s := newSite(t)
	s.Setup()
	s.DeleteRecords()
	set := s.statefulSet("demo-dns")
	set.Name, set.ResourceVersion, set.UID, set.ManagedFields = "demo-dns-192-0-2-3", "", "", nil
	s.Must(s.Client.Create(t.Context(), set))
	s.Infra = strings.Replace(s.Infra, "dns: {serverIP: 192.0.2.3}", "dns: {instances: [{ip: 192.0.2.5}, {ip: 192.0.2.6}]}", 1)
	stderr := s.Setup()
	for _, want := range []string{"demo-dns-192-0-2-3 deleted", "demo-dns deleted", "demo-dns-192-0-2-5 created"} {
		if !strings.Contains(stderr, "StatefulSet "+s.Namespace+"/"+want) {
			t.Errorf("setup did not print %q:\n%s", want, stderr)
		}
	}
	if strings.Contains(stderr, "NetworkAttachmentDefinition "+s.Namespace+"/vlan100 deleted") {
		t.Error("setup deleted the VMs' network")
	}
}

// TestImmutableFieldHasARemedy replaces a StatefulSet by one with another service name, which cannot be updated.
func TestImmutableFieldHasARemedy(t *testing.T) {
	s := newSite(t)
	s.Setup()
	set := s.statefulSet("demo-dns")
	s.Must(s.Client.Delete(t.Context(), set))
	set.ResourceVersion, set.UID, set.ManagedFields, set.Spec.ServiceName = "", "", nil, "other"
	s.Must(s.Client.Create(t.Context(), set))
	s.Refused("kubectl -n "+s.Namespace+" delete statefulset demo-dns --cascade=orphan", "--force-conflicts")
}

// TestObsoleteStatefulSetWithAFinalizerIsRefused replaces a StatefulSet by one for each address, and disables a component,
// while a finalizer keeps the StatefulSet or its pod. Nothing may be deleted.
func TestObsoleteStatefulSetWithAFinalizerIsRefused(t *testing.T) {
	s := newSite(t)
	s.Setup()
	s.setReady("demo-dns")
	good, keep, remove := s.Infra, patchFinalizers("example.com/hold", "orphan"), patchFinalizers()
	patch := func(o client.Object, with client.Patch) {
		t.Helper()
		s.Must(s.Client.Patch(s.AfterTest(), o, with))
	}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "demo-dns"}}
	for _, tc := range []struct {
		held     client.Object
		from, to string
		want     string
	}{
		{
			set, "dns: {serverIP: 192.0.2.3}", "dns: {instances: [{ip: 192.0.2.5}, {ip: 192.0.2.6}]}",
			"StatefulSet %[1]s/demo-dns has the finalizers example.com/hold, orphan and would not be deleted; remove them and run setup again: " +
				`kubectl -n %[1]s patch statefulset demo-dns --type=merge -p '{"metadata":{"finalizers":null}}'`,
		},
		{
			s.Pod("demo-proxy"), "proxy: {serverIP: 192.0.2.4}", "proxy: {enabled: false}",
			`Pod %[1]s/demo-proxy-0 has the finalizers example.com/hold, orphan and would not be deleted`,
		},
	} {
		patch(tc.held, keep)
		s.Infra = strings.Replace(good, tc.from, tc.to, 1)
		s.Refused(fmt.Sprintf(tc.want, s.Namespace))
		patch(tc.held, remove)
	}
	if pod := s.Pod("demo-dns"); pod.DeletionTimestamp != nil {
		t.Error("the pod of demo-dns is being deleted")
	}
}

// patchFinalizers returns a patch that replaces the finalizers of an object.
func patchFinalizers(finalizers ...string) client.Patch {
	text := `null`
	if len(finalizers) > 0 {
		text = `["` + strings.Join(finalizers, `", "`) + `"]`
	}
	return client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": `+text+`}}`))
}

func TestInfraThatIsBeingDeletedIsRefused(t *testing.T) {
	s := newSite(t)
	s.Setup()
	infra := s.Object(v1alpha1.SchemeGroupVersion.WithKind("Infra"), "demo")
	s.Must(s.Client.Patch(t.Context(), infra, patchFinalizers("example.com/hold")))
	t.Cleanup(func() {
		if err := s.Client.Patch(s.AfterTest(), infra, patchFinalizers()); err != nil {
			t.Error(err)
		}
	})
	s.Must(s.Client.Delete(t.Context(), infra))
	s.Infra = strings.Replace(s.Infra, "203.0.113.53", "203.0.113.54", 1)
	want := "Infra " + s.Namespace + "/demo is being deleted (since "
	s.Refused(want)
	s.Expect(2, "diff -f FILE", want, "; finalizers: example.com/hold)")
}
