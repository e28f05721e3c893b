package render_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// TestEgress renders how DNS on the VLAN answers other names, the connections that the proxy's NetworkPolicy permits, and Envoy's
// environment.
func TestEgress(t *testing.T) {
	site := lab.Site{}
	const network = `
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan, namespace: clusters}
spec: {config: '{"cniVersion": "0.3.1", "name": "vlan", "type": "bridge", "bridge": "br-vlan"}'}
`
	for name, changes := range map[string]string{
		"names":        "egress: {hosts: [quay.io, '*.quay.io'], allowAddresses: [10.20.0.0/16], denyAddresses: [10.20.30.0/24, 8.8.8.0/24]}",
		"closed":       "egress: {hosts: [quay.io], ports: [443, 80]}, infraComponents: {dns: {forward: Deny}}",
		"all-names":    "egress: {hosts: ['*'], allowAll: true}",
		"ntp":          "egress: {ntp: [time.example.com]}",
		"names-ntp":    "egress: {hosts: [quay.io], ntp: [time.example.com, 10.20.0.1], allowAddresses: [10.20.0.0/16]}",
		"parent-proxy": "egress: {hosts: [quay.io], parentProxy: {url: 'http://proxy.example.com:3128', secretRef: {name: parent}}}",
	} {
		t.Run(name, func(t *testing.T) {
			known, err := setup.ReadFiles([]string{"-"}, strings.NewReader(
				site.Infra("spec: {"+changes+"}")+site.HostedCluster().YAML()+network), "default", nil)
			lab.Must(t, err)
			known.ControlPlane = true
			plan, err := setup.Make(known, render.Images{Oooi: "oooi", Envoy: "envoy"})
			lab.Must(t, err)
			var out strings.Builder
			for _, m := range all[corev1.ConfigMap](t, plan.Objects, "ConfigMap") {
				if vlan, _, found := strings.Cut(m.Data["Corefile"], "\n.:53 {"); found {
					_, after, _ := strings.Cut(vlan, "hcpapps\n")
					fmt.Fprintf(&out, "# Corefile of the VLAN, after hcpapps\n%s", after)
				}
			}
			for _, p := range all[networkingv1.NetworkPolicy](t, plan.Objects, "NetworkPolicy") {
				if p.Spec.Egress != nil {
					text, err := yaml.Marshal(p.Spec.Egress)
					lab.Must(t, err)
					fmt.Fprintf(&out, "# egress of NetworkPolicy %s, %v\n%s", p.Name, p.Spec.PolicyTypes, text)
				}
			}
			for _, s := range all[appsv1.StatefulSet](t, plan.Objects, "StatefulSet") {
				for _, c := range s.Spec.Template.Spec.Containers {
					if c.Name == "envoy" {
						fmt.Fprintf(&out, "# environment of Envoy\n%v\n", c.Env)
					}
				}
			}
			golden.Check(t, "testdata/egress-"+name+".golden", out.String())
		})
	}
}
