//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// attachments is a NetworkAttachmentDefinition of the VLAN for Pods that specify their addresses.
const attachments = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan50, namespace: %[1]s}
spec:
  config: '{"cniVersion": "0.3.1", "name": "vlan50", "type": "bridge", "bridge": "vlan50", "ipam": {"type": "static"}, "capabilities": {"ips": true, "mac": true}}'
`

// servers is a web server of a Deployment or a StatefulSet that returns its name.
const servers = `
apiVersion: apps/v1
kind: %[2]s
metadata: {name: %[3]s, namespace: %[1]s}
spec:
  replicas: 1
  %[6]s
  selector: {matchLabels: {app: %[3]s}}
  template:
    metadata:
      labels: {app: %[3]s}
      annotations:
        k8s.v1.cni.cncf.io/networks: '[{"name": "vlan50", "interface": "net1", "ips": ["%[4]s/24"], "mac": "%[5]s"}]'
    spec:
      terminationGracePeriodSeconds: 1
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: web
        image: localhost/tools:e2e
        command: [/bin/busybox, httpd, -f, -p, "8080", -h, /etc/web]
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /name, port: http}, periodSeconds: 1}
        volumeMounts: [{name: web, mountPath: /etc/web}]
        securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
      volumes: [{name: web, configMap: {name: %[3]s}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: %[3]s, namespace: %[1]s}
data: {name: "this is %[3]s\n"}
---
apiVersion: v1
kind: Service
metadata: {name: %[3]s, namespace: %[1]s}
spec:
  selector: {app: %[3]s}
  ports: [{name: http, port: 80, targetPort: http}]
`

// TestServersOnVLAN checks that a server is reachable at its VLAN address, which Multus configures, and from
// Pods by its Service.
func TestServersOnVLAN(t *testing.T) {
	cp := cluster(t)
	namespace := restricted(t, cp)
	apply(t, cp, attachments, namespace)
	vm := lab.NewMachine(t, vlan, "02:00:00:00:50:64")
	vm.Run(t, "ip", "address", "add", "198.18.50.100/24", "dev", "eth0")
	for i, kind := range []string{"Deployment", "StatefulSet"} {
		var more string
		if kind == "StatefulSet" {
			more = "serviceName: web-statefulset"
		}
		name := "web-" + strings.ToLower(kind)
		address, mac := fmt.Sprintf("198.18.50.%d", 2+i), fmt.Sprintf("02:00:00:00:50:%02x", 2+i)
		apply(t, cp, servers, namespace, kind, name, address, mac, more)
		pod := readyPod(t, cp, namespace, "app="+name)

		networks := networkStatus(t, pod.Annotations)
		want := networkOfPod{Name: namespace + "/vlan50", Interface: "net1", IPs: []netip.Addr{netip.MustParseAddr(address)}, MAC: mac}
		if len(networks) != 2 || fmt.Sprint(networks[1]) != fmt.Sprint(want) {
			t.Errorf("%s: network status %+v, want %+v as the second network", kind, networks, want)
		}
		greeting := "this is " + name + "\n"
		if got := vm.Run(t, "curl", "--silent", "--max-time", "20", "http://"+address+":8080/name"); got != greeting {
			t.Errorf("%s: response to a machine on the VLAN %q", kind, got)
		}
		if got := vm.Run(t, "ip", "neighbour", "show", address); !strings.Contains(got, mac) {
			t.Errorf("%s: neighbour entry of the machine %q", kind, got)
		}
		if got := runPod(t, cp, namespace, "client-"+name, "curl", "--silent", "--show-error", "--max-time", "20", "http://"+clusterIP(t, cp, namespace, name)+"/name"); got != greeting {
			t.Errorf("%s: response to a Pod through the Service %q", kind, got)
		}
	}
}

// networkOfPod is a network of a Pod in the network status of Multus.
type networkOfPod struct {
	Name      string       `json:"name"`
	Interface string       `json:"interface"`
	IPs       []netip.Addr `json:"ips"`
	MAC       string       `json:"mac"`
}

func networkStatus(t *testing.T, annotations map[string]string) (networks []networkOfPod) {
	t.Helper()
	if err := json.Unmarshal([]byte(annotations["k8s.v1.cni.cncf.io/network-status"]), &networks); err != nil {
		t.Fatalf("parsing the network status: %v: %q", err, annotations)
	}
	return networks
}

const resolver = `
apiVersion: v1
kind: ConfigMap
metadata: {name: resolver, namespace: %[1]s}
data:
  Corefile: |
    . {
      errors
      whoami
      ready
    }
---
apiVersion: v1
kind: Pod
metadata:
  name: resolver
  namespace: %[1]s
  labels: {app: resolver}
  annotations:
    k8s.v1.cni.cncf.io/networks: '[{"name": "vlan50", "interface": "net1", "ips": ["198.18.50.53/24"]}]'
spec:
  terminationGracePeriodSeconds: 1
  securityContext:
    runAsNonRoot: true
    seccompProfile: {type: RuntimeDefault}
    sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: "0"}]
  containers:
  - name: coredns
    image: localhost/oooi:e2e
    command: [/coredns, -conf, /etc/coredns/Corefile]
    readinessProbe: {httpGet: {path: /ready, port: 8181}, periodSeconds: 1}
    volumeMounts: [{name: config, mountPath: /etc/coredns}]
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
  volumes: [{name: config, configMap: {name: resolver}}]
---
apiVersion: v1
kind: Service
metadata: {name: resolver, namespace: %[1]s}
spec:
  selector: {app: resolver}
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53}]
`

// TestPort53WithoutCapabilities checks that Pod Security "restricted" admits the sysctl with which a Pod can
// bind port 53 without capabilities.
func TestPort53WithoutCapabilities(t *testing.T) {
	cp := cluster(t)
	namespace := restricted(t, cp)
	apply(t, cp, attachments, namespace)
	apply(t, cp, resolver, namespace)
	readyPod(t, cp, namespace, "app=resolver")
	vm := lab.NewMachine(t, vlan, "02:00:00:00:50:65")
	vm.Run(t, "ip", "address", "add", "198.18.50.101/24", "dev", "eth0")
	for _, protocol := range []string{"+notcp", "+tcp"} {
		if got := vm.Run(t, "dig", "@198.18.50.53", "+time=20", "+tries=1", protocol, "example.com"); !strings.Contains(got, "198.18.50.101") {
			t.Errorf("whoami (%s) does not return the machine's address:\n%s", protocol, got)
		}
	}
	// The Pod's own address must be visible to whoami, and not an address of the node.
	client := runPod(t, cp, namespace, "client", "dig", "@"+clusterIP(t, cp, namespace, "resolver"), "+time=20", "+tries=1", "example.com")
	if pod := getPod(t, cp, namespace, "client"); !strings.Contains(client, pod.Status.PodIP) {
		t.Errorf("whoami does not return the Pod's address %s through the Service:\n%s", pod.Status.PodIP, client)
	}
}
