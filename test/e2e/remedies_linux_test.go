//go:build e2e

package e2e_test

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"testing"
	"time"

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

// TestRemediesThatRestartPods carries out doctor's remedies for hand edits on the node. Each is to run setup, which
// replaces only the pods of the edited component; other components keep serving and doctor then finds nothing.
func TestRemediesThatRestartPods(t *testing.T) {
	s := newSite(t)
	vlanServer(t, s.ca, shop)
	s.setup(t, infra)
	v := s.monitor(t)
	const network = `{"cniVersion": "0.3.1", "name": "vlan50", "type": "bridge", "bridge": "vlan50"%s}`
	attach := func(t *testing.T, more string) {
		t.Helper()
		apply(t, s.cp, "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: vlan50, namespace: clusters}\nspec: {config: '"+network+"'}\n", more)
	}
	edit := func(set, patch string) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			_, err := kube(t, s.cp).AppsV1().StatefulSets("clusters").Patch(t.Context(), set, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "other-client"})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	restartWithoutConfig := func(t *testing.T) {
		t.Helper()
		maps, pods := kube(t, s.cp).CoreV1().ConfigMaps("clusters"), kube(t, s.cp).CoreV1().Pods("clusters")
		pod, err := pods.Get(t.Context(), "demo-dns-0", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range pod.Spec.Volumes {
			if v.ConfigMap != nil {
				err = errors.Join(err, maps.Delete(t.Context(), v.ConfigMap.Name, metav1.DeleteOptions{}))
			}
		}
		if err := errors.Join(err, pods.Delete(t.Context(), "demo-dns-0", metav1.DeleteOptions{})); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name string
		edit func(*testing.T)
		// restarts are the components whose pods the edit or the remedy replaces.
		restarts []string
		extra    bool
	}{
		{name: "VMs' network with another MTU", edit: func(t *testing.T) { attach(t, `, "mtu": 1400`) }, restarts: []string{"dns", "dhcp", "proxy"}},
		{name: "DNS without its ConfigMap", edit: restartWithoutConfig, restarts: []string{"dns"}},
		{name: "DNS with another image", edit: edit("demo-dns", `{"spec": {"template": {"spec": {"containers": [{"name": "coredns", "image": "`+missingImage+`"}]}}}}`), restarts: []string{"dns"}},
		{name: "DHCP on no node", extra: true, edit: edit("demo-dhcp", `{"spec": {"template": {"spec": {"nodeSelector": {"pool": "none"}}}}}`), restarts: []string{"dhcp"}},
	} {
		if tc.extra && !lab.Long() {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			v.awaitService(t, "service before: "+tc.name, time.Now())
			before, began := s.containers(t), time.Now()
			tc.edit(t)
			var flags []string
			for _, remedy := range s.remedies(t) {
				flags = append(flags, remedyFlag.FindAllString(remedy, -1)...)
			}
			slices.Sort(flags)
			cmd := s.setupCommand(t.Context(), t, infra, slices.Compact(flags)...)
			out, err := cmd.CombinedOutput()
			t.Logf("%s\n%s", cmd, out)
			if err != nil {
				t.Fatalf("carrying out the remedy: %v", err)
			}
			v.awaitService(t, "service after: "+tc.name, time.Now())
			for component, ids := range s.containers(t) {
				if !slices.Contains(tc.restarts, component) && !slices.Equal(ids, before[component]) {
					t.Errorf("containers of %s were %s and are %s, although the remedy does not restart it", component, before[component], ids)
				}
			}
			for _, p := range v.probes {
				for _, err := range p.wrongAnswers() {
					t.Error(err)
				}
			}
			await(t, "doctor to find nothing", func() string {
				if answer := s.doctor(t, "--fail-on", "warn", "--skip", "OOOI-DNS-004"); answer.Code != 0 {
					return answer.Stdout + answer.Stderr
				}
				return ""
			})
			v.add(t, v.row(tc.name, began))
		})
	}
	t.Logf("seconds without service:\n%s", v.table())
}

// remedies waits until doctor reports differences from the rendered objects, with remedies that run setup, and returns them.
func (s *site) remedies(t *testing.T) (remedies []string) {
	t.Helper()
	await(t, "a remedy of OOOI-INF-002", func() string {
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
