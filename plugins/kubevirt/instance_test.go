package kubevirt

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// parseYAML returns an object of YAML.
func parseYAML(tb testing.TB, text string) *unstructured.Unstructured {
	tb.Helper()
	u := &unstructured.Unstructured{}
	lab.Must(tb, yaml.Unmarshal([]byte(text), &u.Object))
	return u
}

// TestInstances runs the transcript testdata/instances.txt: each line is merged into a VirtualMachineInstance with an interface on the
// network. The output is the instance with its interfaces on the network, what the annotations say about interface "vlan", and the
// addresses that the status reports.
func TestInstances(t *testing.T) {
	const base = `{metadata: {name: w1, namespace: clusters-demo}, spec: {networks: [{name: vlan, multus: {networkName: clusters/vlan}}],
		domain: {devices: {interfaces: [{name: vlan, macAddress: "02:00:00:00:00:0a"}]}}}}`
	golden.Transcript(t, "testdata/instances.txt", func(line string) []string {
		u := parseYAML(t, strings.TrimSuffix(lab.Merge(base, line), "---\n"))
		var i *instance
		switch o := decodeInstance(u).(type) {
		case *instance:
			i = o
		case *objects.Broken:
			return []string{"broken: " + o.Name + ": " + o.Error}
		}
		own := &networks{own: "clusters/vlan"}
		i.Interfaces = own.on(i, nil)
		text, err := json.Marshal(i)
		lab.Must(t, err)
		lines := []string{strings.NewReplacer(`"namespace":"clusters-demo",`, "", `"uid":"","created":null,`, "").Replace(string(text))}
		if reserved, options, err := i.parseAnnotations("vlan"); err != nil {
			lines = append(lines, fmt.Sprintf("reserved %v, %d options, %v", reserved, len(options), err))
		} else if i.Addresses+i.Options != "" {
			lines = append(lines, fmt.Sprintf("reserved %v, %d options", reserved, len(options)))
		}
		list, err := reportedBy(u, own)
		lab.Must(t, err)
		for _, reported := range list {
			if len(reported.Addrs) > 0 {
				lines = append(lines, fmt.Sprintf("%s with %s reports %v as %s", reported, reported.MAC, reported.Addrs, reported.Hostname))
			}
		}
		return lines
	})
}

// FuzzAnnotations parses arbitrary annotations.
func FuzzAnnotations(f *testing.F) {
	f.Add("vlan=192.0.2.10,2001:db8::1", "domain=a.example option=43:hex:0102 routes=10.0.0.0/8>192.0.2.1")
	f.Add("=,=", "force=224:uint32:7 t1=1s t2=2s search=a,b")
	f.Fuzz(func(t *testing.T, addresses, options string) {
		i := instance{Addresses: addresses, Options: options}
		got, parsed, err := i.parseAnnotations("vlan")
		if err == nil && len(got) > 2 {
			t.Errorf("%d addresses, want at most one per family", len(got))
		}
		for code := range parsed {
			if code == 0 || code == 53 || code == 54 || code == 255 {
				t.Errorf("the protocol option %d is accepted", code)
			}
		}
	})
}
