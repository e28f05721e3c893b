package verify

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/test/lab"
)

// TestGapsMatchDocs looks for the expected times without a service in the tables that operators read.
func TestGapsMatchDocs(t *testing.T) {
	rows := map[string][]string{"availability": {
		fmt.Sprintf("| container `coredns`, or the DNS pod | no names | 1 to %.0f s |", restarts[v1alpha1.ComponentDNS].usual.Seconds()),
		fmt.Sprintf("| container `coredhcp`, or the DHCP pod | no renewals, no new addresses; VMs keep their addresses | 1 to %.0f s "+
			"|", restarts[v1alpha1.ComponentDHCP].usual.Seconds()),
		fmt.Sprintf("| container `envoy`, or the proxy pod | no connections; open connections end | 0.4 to %.0f s "+
			"|", restarts[v1alpha1.ComponentProxy].usual.Seconds()),
		fmt.Sprintf("| no new connections for up to %.0f seconds;", move.usual.Seconds()),
	}}
	row := func(service string, want gap) {
		rows["cli"] = append(rows["cli"], fmt.Sprintf("| %s | %.0f s | %.0f s |", service, want.usual.Seconds(), want.limit.Seconds()))
	}
	row("addresses, with one replica of DHCP", restarts[v1alpha1.ComponentDHCP])
	row("names, with one replica of DNS", restarts[v1alpha1.ComponentDNS])
	row("connections, with one replica of the proxy", restarts[v1alpha1.ComponentProxy])
	row("connections, with several replicas of the proxy", move)
	row("any other", others)
	for name, path := range map[string]string{"availability": "../../../docs/explanation/availability.md", "cli": "../../../docs/reference/cli.md"} {
		text, err := os.ReadFile(path)
		lab.Must(t, err)
		for _, want := range rows[name] {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s does not contain %q", path, want)
			}
		}
	}
}

// TestGapsAreJudged judges times without a service that are usual, unusual, and too long.
func TestGapsAreJudged(t *testing.T) {
	for got, want := range map[time.Duration]struct {
		status        output.Result
		note, problem string
	}{
		3 * time.Second:  {status: output.Passed},
		4 * time.Second:  {status: output.Passed, note: "longer than the usual 3s"},
		11 * time.Second: {status: output.Failed, problem: "no response for 11s, expected at most 10s, usually 3s: timeout"},
	} {
		began := time.Now()
		r := &replacement{services: []*service{
			{component: v1alpha1.ComponentDNS, steps: make([]probe.Step, 1)}, {component: v1alpha1.ComponentProxy, steps: make([]probe.Step, 2)},
		}}
		for _, o := range []probe.Outcome{
			{Step: 0, Ended: began}, {Step: 2, Ended: began}, {Step: 1, Ended: began.Add(got / 2), Error: "timeout"}, {Step: 1, Ended: began.Add(got)}, {Step: 0, Ended: began.Add(got)},
		} {
			r.take(&o)
		}
		if silent := r.silent(); silent != nil {
			t.Errorf("after a gap of %s, %s are silent", got, serviceNames[silent.component])
		}
		result := &Result{Status: output.Passed}
		result.addGap(r.services[1], r.now, " during the test", expectedGap(v1alpha1.ComponentProxy, v1alpha1.ComponentProxy, 2))
		request := Request{Client: VLAN, Label: "connections to the control plane during the test", Took: metav1.Duration{Duration: got}, Note: want.note, Problem: want.problem}
		if result.Status != want.status || len(result.Requests) != 1 || result.Requests[0] != request {
			t.Errorf("a gap of %s is %s: %+v", got, result.Status, result.Requests)
		}
	}
}
