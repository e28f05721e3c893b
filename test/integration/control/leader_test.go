package control_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

func TestOneReplicaWritesAndAnotherTakesOver(t *testing.T) {
	cp := management.Get(t)
	install(t, cp)
	namespace := cp.Namespace(t)
	replicas := []*replica{newReplica(t, cp, "control-0", "--lease-duration", "6s"), newReplica(t, cp, "control-1", "--lease-duration", "6s")}
	for _, r := range replicas {
		r.Start(t)
	}
	leader := awaitLeader(t, replicas)
	apply(t, cp, infraOf(namespace, "192.0.2.3"))
	c := cp.Client(t)
	awaitNetwork(t, c, namespace, metav1.ConditionTrue)

	replicas[leader].Kill(t)
	awaitLeader(t, replicas[1-leader:2-leader])
	apply(t, cp, infraOf(namespace, "203.0.113.3"))
	awaitNetwork(t, c, namespace, metav1.ConditionFalse)

	// The one that was killed comes back and waits.
	replicas[leader].Start(t)
	await(t, "it to be ready", func() string { return replicas[leader].unready(t) })
	if replicas[leader].leads(t) || !replicas[1-leader].leads(t) {
		t.Error("who comes back takes the lead")
	}

	// Who ends in peace gives up the lead at once.
	replicas[1-leader].Terminate(t)
	awaitLeader(t, replicas[leader:leader+1])
}

// awaitLeader waits until exactly one of the replicas leads.
func awaitLeader(t *testing.T, replicas []*replica) (leader int) {
	t.Helper()
	await(t, "one to lead", func() string {
		var leaders []int
		for i, r := range replicas {
			if r.leads(t) {
				leaders = append(leaders, i)
			}
		}
		if len(leaders) != 1 {
			return fmt.Sprint("leaders are ", leaders)
		}
		leader = leaders[0]
		return ""
	})
	return leader
}

// install applies what setup does for control.
func install(t *testing.T, cp *lab.ControlPlane) {
	t.Helper()
	rbac := lab.ReadFile(t, "manifests", "base", "control", "rbac.yaml")
	apply(t, cp, "apiVersion: v1\nkind: Namespace\nmetadata: {name: oooi-system}\n---\n"+string(rbac))
}

// infraOf is an Infra whose proxy has an address.
func infraOf(namespace, address string) string {
	return fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: demo, namespace: %s}
spec:
  networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: vlan}
  infraComponents: {proxy: {serverIP: %s}}
`, namespace, address)
}

// awaitNetwork waits for the verdict on the addresses of the Infra that is there now.
func awaitNetwork(t *testing.T, c client.Client, namespace string, want metav1.ConditionStatus) {
	t.Helper()
	await(t, fmt.Sprintf("NetworkValid=%s", want), func() string {
		infra := &v1alpha1.Infra{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "demo"}, infra); err != nil {
			t.Fatal(err)
		}
		valid := meta.FindStatusCondition(infra.Status.Conditions, v1alpha1.ConditionNetworkValid)
		if valid == nil || valid.Status != want || valid.ObservedGeneration != infra.Generation {
			return fmt.Sprintf("it is %+v", valid)
		}
		return ""
	})
}

func apply(t *testing.T, cp *lab.ControlPlane, yaml string) {
	t.Helper()
	if err := cp.ApplyYAML(t.Context(), []byte(yaml)); err != nil {
		t.Fatal(err)
	}
}
