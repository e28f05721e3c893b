package control_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/integration/internal/tenant"
	"github.com/densityops/oooi/test/lab"
)

func TestOneReplicaWritesAndAnotherTakesOver(t *testing.T) {
	cp := tenants.Management.Get(t)
	tenant.InstallControl(t, cp)
	namespace := cp.Namespace(t)
	replicas := []*lab.Replica{tenants.NewReplica(t, cp, "control-0", "--lease-duration", "6s"), tenants.NewReplica(t, cp, "control-1", "--lease-duration", "6s")}
	for _, r := range replicas {
		r.Start(t)
	}
	leader := awaitLeader(t, replicas)
	infra := func(proxy string) string {
		return lab.Site{Namespace: namespace}.Infra("spec: {hostedClusterRef: null, infraComponents: {dhcp: null, dns: null, proxy: {serverIP: " + proxy + "}}}")
	}
	cp.MustApply(t, infra("192.0.2.3"))
	c := cp.Client(t)
	awaitNetwork(t, c, namespace, metav1.ConditionTrue)

	replicas[leader].Kill(t)
	awaitLeader(t, replicas[1-leader:2-leader])
	cp.MustApply(t, infra("203.0.113.3"))
	awaitNetwork(t, c, namespace, metav1.ConditionFalse)

	// The killed replica starts again, and does not lead.
	replicas[leader].Start(t)
	replicas[leader].AwaitReady(t)
	if replicas[leader].State(t).Leads || !replicas[1-leader].State(t).Leads {
		t.Error("the restarted replica leads")
	}

	// A replica that is terminated releases the Lease immediately.
	replicas[1-leader].Terminate(t)
	awaitLeader(t, replicas[leader:leader+1])
}

// awaitLeader waits until exactly one of the replicas leads.
func awaitLeader(t *testing.T, replicas []*lab.Replica) (leader int) {
	t.Helper()
	lab.Await(t, "one replica to lead", func() string {
		var leaders []int
		for i, r := range replicas {
			if r.State(t).Leads {
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

// awaitNetwork waits for the condition NetworkValid of the Infra's current generation.
func awaitNetwork(t *testing.T, c client.Client, namespace string, want metav1.ConditionStatus) {
	t.Helper()
	lab.Await(t, fmt.Sprintf("NetworkValid=%s", want), func() string {
		infra := &v1alpha1.Infra{}
		lab.Must(t, c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "demo"}, infra))
		valid := meta.FindStatusCondition(infra.Status.Conditions, v1alpha1.ConditionNetworkValid)
		if valid == nil || valid.Status != want || valid.ObservedGeneration != infra.Generation {
			return fmt.Sprintf("condition is %+v", valid)
		}
		return ""
	})
}

// TestReplicasStartDuringAnOutage starts replicas while the API server is down: they do not exit, which would delay the next start by
// up to five minutes, but when they are terminated. One leads when the API server is back.
func TestReplicasStartDuringAnOutage(t *testing.T) {
	cp := tenants.Management.Get(t)
	tenant.InstallControl(t, cp)
	outage := lab.StartOutage(t, cp)
	first, second := tenants.NewReplica(t, cp, "first"), tenants.NewReplica(t, cp, "second")
	for _, r := range []*lab.Replica{first, second} {
		r.Start(t)
		r.AwaitResponse(t)
	}
	second.Terminate(t)
	outage.End(t)
	awaitLeader(t, []*lab.Replica{first})
	first.Terminate(t)
}
