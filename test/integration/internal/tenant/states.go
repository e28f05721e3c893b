package tenant

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// Phases of status.appsIngress.
const (
	Pending  = v1alpha1.AppsIngressPending
	Ready    = v1alpha1.AppsIngressReady
	Degraded = v1alpha1.AppsIngressDegraded
)

// State returns the Infra's status.appsIngress, nil if it has none.
func (n *Tenant) State() *v1alpha1.AppsIngressStatus {
	n.Helper()
	infra := &v1alpha1.Infra{}
	lab.Must(n, n.Client.Get(n.Context(), n.Key("demo"), infra))
	return infra.Status.AppsIngress
}

// Await waits until status.appsIngress has the phase, the reason, a message that contains message, and
// exactly these addresses in this order. The test fails if that takes longer than lab.WaitTimeout.
func (n *Tenant) Await(phase v1alpha1.AppsIngressPhase, reason v1alpha1.AppsIngressReason, message string, addresses ...string) {
	n.Helper()
	lab.Await(n.T, fmt.Sprintf("%s %s %v", phase, reason, addresses), func() string {
		s := n.State()
		if s != nil && s.Phase == phase && s.Reason == reason && strings.Contains(s.Message, message) && strings.Join(s.ExternalIPs, " ") == strings.Join(addresses, " ") {
			return ""
		}
		return fmt.Sprintf("%+v", s)
	})
}

// AwaitHistory waits until status.appsIngress has had exactly these states since the Infra was
// created. A state is "phase reason addresses", or "none" without status.appsIngress. It waits because
// a watch may be behind a get. Only tenants of NewTenant record their states.
func (n *Tenant) AwaitHistory(states ...string) {
	n.Helper()
	want := strings.Join(states, "\n")
	lab.Await(n.T, "the states to be\n"+want, func() string {
		if got := n.history.String(); got != want {
			return "got\n" + got
		}
		return ""
	})
}

// history is a list of states without repetitions. It is safe for concurrent use.
type history struct {
	mu   sync.Mutex
	list []string
}

func (h *history) add(s string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.list) == 0 || h.list[len(h.list)-1] != s {
		h.list = append(h.list, s)
	}
}

func (h *history) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.list, "\n")
}

// watchStates records the states of status.appsIngress until the test ends, and logs them if it failed.
func (n *Tenant) watchStates() *history {
	n.Helper()
	c, err := client.NewWithWatch(n.Management.RESTConfig(), client.Options{Scheme: n.Client.Scheme()})
	lab.Must(n, err)
	h := &history{}
	ctx, cancel := context.WithCancel(n.Context())
	events, err := c.Watch(ctx, &v1alpha1.InfraList{}, client.InNamespace(n.Namespace))
	if err != nil {
		cancel()
		n.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for e := range events.ResultChan() {
			if infra, ok := e.Object.(*v1alpha1.Infra); ok {
				h.add(stateText(infra.Status.AppsIngress))
			}
		}
	}()
	n.Cleanup(func() {
		events.Stop()
		cancel()
		<-ended
		if n.Failed() {
			n.Logf("states of status.appsIngress:\n%s", h)
		}
	})
	return h
}

// stateText returns a state in the format of AwaitHistory.
func stateText(s *v1alpha1.AppsIngressStatus) string {
	if s == nil {
		return "none"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", s.Phase, s.Reason, strings.Join(s.ExternalIPs, " ")))
}
