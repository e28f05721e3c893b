//go:build e2e

package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/test/lab"
)

// clusterDNS is a CoreDNS with the object names of kubeadm, which returns NXDOMAIN for every name.
const clusterDNS = `
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data:
  Corefile: |
    .:53 {
        errors
        ready
        reload 2s
        template ANY ANY {
            rcode NXDOMAIN
        }
    }
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: coredns, namespace: kube-system}
spec:
  selector: {matchLabels: {k8s-app: kube-dns}}
  template:
    metadata: {labels: {k8s-app: kube-dns}}
    spec:
      dnsPolicy: Default
      terminationGracePeriodSeconds: 1
      securityContext: {sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: "53"}]}
      containers:
      - name: coredns
        image: localhost/oooi:e2e
        command: [/coredns, -conf, /etc/coredns/Corefile]
        readinessProbe: {httpGet: {path: /ready, port: 8181}, periodSeconds: 1}
        volumeMounts: [{name: config, mountPath: /etc/coredns}]
      volumes: [{name: config, configMap: {name: coredns}}]
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec:
  clusterIP: %s
  selector: {k8s-app: kube-dns}
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53}]
`

// clientPod is a Pod that connects to servers by name. It has only the cluster's DNS and the CA certificate.
const clientPod = `
apiVersion: v1
kind: ConfigMap
metadata: {name: client, namespace: %[1]s}
data:
  ca.crt: |
%[2]s
  script: |
    until nslookup %[3]s; do sleep 1; done >/dev/null 2>&1
%[4]s
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: %[1]s}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: client
    image: localhost/tools:e2e
    command: [/bin/busybox, sh, /etc/client/script]
    env: [{name: PATH, value: /bin}]
    volumeMounts: [{name: client, mountPath: /etc/client}]
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
  volumes: [{name: client, configMap: {name: client}}]
`

// syncClusterDNS makes the kubelet update the ConfigMap in the Pod of the cluster's DNS immediately instead
// of within a minute: it does so whenever the Pod changes.
func (s *site) syncClusterDNS(t *testing.T) {
	t.Helper()
	pod := readyPod(t, s.cp, "kube-system", "k8s-app=kube-dns")
	for range 4 { // the kubelet may observe the ConfigMap later than the Pod
		s.cp.MustApply(t, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: kube-system, annotations: {sync: %q}}}", pod.Name, time.Now()))
		time.Sleep(time.Second)
	}
}

// runClientPod runs a script in a Pod, once the cluster's DNS resolves name, and returns the Pod's log.
func (s *site) runClientPod(t *testing.T, name, script string) string {
	t.Helper()
	namespace := restricted(t, s.cp)
	s.cp.MustApply(t, fmt.Sprintf(clientPod, namespace, indent(s.ca.PEM()), name, indent([]byte(script))))
	return awaitSuccess(t, s.cp, namespace, "client")
}

// greet returns a shell command that prints what a server sends first, after verifying its certificate for
// name.
func greet(name string, port int) string {
	return fmt.Sprintf("sleep 1 | timeout 20 openssl s_client -quiet -no_ign_eof -verify_return_error -CAfile /etc/client/ca.crt -servername %[1]s -verify_hostname %[1]s -connect %[1]s:%[2]d 2>/dev/null", name, port)
}

// indent returns text indented as a block of YAML.
func indent(text []byte) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n    ")
}

// serveClusterDNS deploys a DNS server at the address that a node's kubelet configures in Pods.
func (s *site) serveClusterDNS(t *testing.T, node *lab.Node) {
	t.Helper()
	s.cp.MustApply(t, fmt.Sprintf(clusterDNS, node.ClusterDNS()))
	logIfFailed(t, s.cp, readyPod(t, s.cp, "kube-system", "k8s-app=kube-dns"))
}

// corefile returns the Corefile of the cluster's DNS.
func (s *site) corefile(t *testing.T) string {
	t.Helper()
	m, err := s.cp.Kube(t).CoreV1().ConfigMaps("kube-system").Get(t.Context(), "coredns", metav1.GetOptions{})
	lab.Must(t, err)
	return m.Data["Corefile"]
}
