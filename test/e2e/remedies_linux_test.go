//go:build e2e

package e2e_test

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/test/faults"
	"github.com/densityops/oooi/test/lab"
)

// setupRemedy matches a remedy that runs setup, and remedyFlag setup's flags in it.
var (
	setupRemedy = regexp.MustCompile(`run 'kubectl oooi setup -f FILE( --force-conflicts)?'`)
	remedyFlag  = regexp.MustCompile(`--[a-z-]+`)
)

// remedied returns hand edits, each with the remedy that doctor reports: to run setup, which replaces only the pods of the edited
// component. Other components keep serving, and doctor then finds nothing.
func (s *site) remedied() []event {
	edit := func(set, patch string) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			_, err := s.cp.Kube(t).AppsV1().StatefulSets("clusters").Patch(t.Context(), set, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "other-client"})
			lab.Must(t, err)
		}
	}
	restartWithoutConfig := func(t *testing.T) {
		t.Helper()
		maps, pods := s.cp.Kube(t).CoreV1().ConfigMaps("clusters"), s.cp.Kube(t).CoreV1().Pods("clusters")
		pod, err := pods.Get(t.Context(), "demo-dns-0", metav1.GetOptions{})
		lab.Must(t, err)
		for _, v := range pod.Spec.Volumes {
			if v.ConfigMap != nil {
				err = errors.Join(err, maps.Delete(t.Context(), v.ConfigMap.Name, metav1.DeleteOptions{}))
			}
		}
		lab.Must(t, errors.Join(err, pods.Delete(t.Context(), "demo-dns-0", metav1.DeleteOptions{})))
	}
	events := []event{
		{name: "VMs' network with another MTU", disturbs: daemons, closesConnections: true, run: func(t *testing.T) {
			s.attach(t, `{"cniVersion": "0.3.1", "name": "vlan50", "type": "bridge", "bridge": "vlan50", "mtu": 1400}`)
		}},
		{name: "DNS without its ConfigMap", disturbs: []string{"dns"}, run: restartWithoutConfig},
		{name: "DNS with another image", disturbs: []string{"dns"}, run: edit("demo-dns", `{"spec": {"template": {"spec": {"containers": [{"name": "coredns", "image": "`+missingImage+`"}]}}}}`)},
		{name: "DHCP pods unschedulable", extra: true, disturbs: []string{"dhcp"}, run: edit("demo-dhcp", `{"spec": {"template": {"spec": {"nodeSelector": {"pool": "none"}}}}}`)},
	}
	for i, e := range events {
		events[i].run = func(t *testing.T) {
			e.run(t)
			s.carryOutRemedy(t)
		}
	}
	return events
}

// carryOutRemedy runs setup with the flags of doctor's remedies, until doctor finds nothing.
func (s *site) carryOutRemedy(t *testing.T) {
	t.Helper()
	var flags []string
	for _, remedy := range s.remedies(t) {
		flags = append(flags, remedyFlag.FindAllString(remedy, -1)...)
	}
	slices.Sort(flags)
	s.setupWithoutFlags(t, slices.Compact(flags)...)
	lab.Await(t, "doctor to find nothing", func() string {
		if answer := s.doctor(t, "--fail-on", "warn", "--skip", "OOOI-DNS-004"); answer.Code != 0 {
			return answer.Stdout + answer.Stderr
		}
		return ""
	})
}

// remedies waits until doctor reports differences from the rendered objects, with remedies that run setup, and returns them.
func (s *site) remedies(t *testing.T) (remedies []string) {
	t.Helper()
	lab.Await(t, "a remedy of OOOI-INF-002", func() string {
		answer := s.doctor(t, "-o", "json", "--only", "OOOI-INF-002")
		d := &faults.Diagnosis{}
		if err := json.Unmarshal([]byte(answer.Stdout), d); err != nil {
			return err.Error()
		}
		remedies = nil
		for _, r := range d.Results {
			for _, found := range r.Findings {
				if setupRemedy.MatchString(found.Remedy) {
					remedies = append(remedies, found.Remedy)
				}
			}
		}
		if len(remedies) == 0 {
			return answer.Stdout
		}
		return ""
	})
	return remedies
}
