package cmd

import (
	"strings"
	"testing"
)

// lone are a standalone ProxyServer and the pod of its proxy.
const lone = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: lone, namespace: NS}
spec:
  networkConfig: {serverIP: 192.0.2.7, networkAttachmentName: vlan100}
  backends:
  - {name: api, hostname: api.example.com, port: 6443, targetService: kube-apiserver, targetPort: 6443, targetNamespace: NS-demo}
---
apiVersion: v1
kind: Pod
metadata:
  name: lone-proxy-0
  namespace: NS
  labels: {app.kubernetes.io/part-of: oooi, app.kubernetes.io/component: proxy, hostedcluster.densityops.com/proxyserver: lone}
spec: {nodeName: node-a, containers: [{name: envoy, image: example.com/envoy}]}
`

// loneStatus is the status of the ProxyServer lone.
const loneStatus = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: lone, namespace: NS}
status:
  observedGeneration: 1
  conditions:
  - {type: ConfigurationValid, status: "True", reason: ConfigApplied, message: accepted, lastTransitionTime: "2026-01-02T03:04:05Z", observedGeneration: 1}
  - {type: Ready, status: "False", reason: ListenerNotReady, message: "pod lone-proxy-0: port 6443: no endpoint takes the connection", lastTransitionTime: "2026-01-02T03:04:05Z", observedGeneration: 1}
  replicas:
  - {pod: lone-proxy-0, heartbeatTime: "2026-01-02T03:04:05Z", observedGeneration: 1, version: "3", acknowledged: "3", listeners: [{port: 6443, ready: false, reason: no endpoint takes the connection}]}
`

// TestStatusOfAStandaloneProxy shows a ProxyServer without an Infra beside an Infra, and by its name.
func TestStatusOfAStandaloneProxy(t *testing.T) {
	s := newSite(t)
	s.Setup()
	s.Apply(strings.ReplaceAll(lone, "NS", s.Namespace))
	s.Must(s.ControlPlane.ApplyStatusYAML(t.Context(), []byte(strings.ReplaceAll(loneStatus, "NS", s.Namespace))))
	for _, tc := range []struct {
		line string
		want []string
	}{
		{"status", []string{"demo               NS/demo", "proxyserver/lone   <none>", "Disabled   Disabled   False     Disabled   False     ListenerNotReady"}},
		{"status -o name", []string{"infra.hostedcluster.densityops.com/demo\nproxyserver.hostedcluster.densityops.com/lone\n"}},
		{"status lone -o name", []string{"proxyserver.hostedcluster.densityops.com/lone\n"}},
		{"status proxyserver/lone -o jsonpath={.kind}:{.metadata.kind}:{.ready.reason}:{.components[2].pods[0].name}", []string{"ProxyServerStatus:ProxyServer:ListenerNotReady:lone-proxy-0"}},
		{"status lone", []string{
			"Name:        proxyserver/lone\n", "Network:     NS/vlan100\n", "Ready:       False, ListenerNotReady: pod lone-proxy-0: port 6443: no endpoint takes the connection\n",
			"proxy   False   192.0.2.7   lone-proxy-0   node-a", "lone          lone-proxy-0   1 of 1       3 acknowledged   6443 not ready: no endpoint takes the connection\n",
		}},
		{"routes lone", []string{"api.example.com"}},
	} {
		out, stderr, code := s.Run(append(strings.Fields(tc.line), "-n", s.Namespace)...)
		for _, want := range tc.want {
			if want = strings.ReplaceAll(want, "NS", s.Namespace); code != 0 || !strings.Contains(out, want) {
				t.Errorf("%s exited with %d: %s\n%s\nwant %q", tc.line, code, stderr, out, want)
			}
		}
		if strings.Contains(out, "dhcp") && tc.line == "status lone" {
			t.Errorf("%s shows components that a proxy alone does not have:\n%s", tc.line, out)
		}
	}
	s.Expect(1, "status proxyserver/demo -n $NS", `Infra or ProxyServer without an Infra "demo" not found`)
}
