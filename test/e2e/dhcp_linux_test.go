//go:build e2e

package e2e_test

import (
	"testing"

	"github.com/densityops/oooi/test/lab"
)

const dhcpServer = `
apiVersion: v1
kind: ConfigMap
metadata: {name: dhcp, namespace: %[1]s}
data:
  machines.txt: |
    02:00:00:00:50:66 198.18.50.102
  config.yml: |
    server4:
      listen: ["%%net1"]
      plugins:
      - netmask: 255.255.255.0
      - dns: 198.18.50.53
      - lease_time: 1h
      - file: /etc/coredhcp/machines.txt # last plugin of the chain
---
apiVersion: v1
kind: Pod
metadata:
  name: dhcp
  namespace: %[1]s
  labels: {app: dhcp}
  annotations:
    k8s.v1.cni.cncf.io/networks: '[{"name": "vlan50", "interface": "net1", "ips": ["198.18.50.67/24"]}]'
spec:
  terminationGracePeriodSeconds: 1
  securityContext:
    runAsNonRoot: true
    seccompProfile: {type: RuntimeDefault}
    sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: "0"}]
  containers:
  - name: coredhcp
    image: localhost/oooi:e2e
    command: [/coredhcp, --config, /etc/coredhcp/config.yml, --http, "$(POD_IP):9903"]
    env: [{name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
    readinessProbe: {httpGet: {path: /readyz, port: 9903}, periodSeconds: 1}
    volumeMounts: [{name: config, mountPath: /etc/coredhcp}]
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
  volumes: [{name: config, configMap: {name: dhcp}}]
`

// TestDHCPWithoutCapabilities leases an address from a Pod without capabilities.
func TestDHCPWithoutCapabilities(t *testing.T) {
	cp := cluster(t)
	namespace := restricted(t, cp)
	apply(t, cp, attachments, namespace)
	apply(t, cp, dhcpServer, namespace)
	readyPod(t, cp, namespace, "app=dhcp")
	lease := lab.NewMachine(t, vlan, "02:00:00:00:50:66").DHCP(t)
	for name, want := range map[string]string{"ip_address": "198.18.50.102", "domain_name_servers": "198.18.50.53", "dhcp_server_identifier": "198.18.50.67"} {
		if lease[name] != want {
			t.Errorf("%s: got %q, want %q, of %v", name, lease[name], want, lease)
		}
	}
}
