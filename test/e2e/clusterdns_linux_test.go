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

// clusterDNS is a CoreDNS where Kubernetes has one, by the names that kubeadm gives it, which
// knows no name of its own.
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

// visitor is a Pod that goes to servers by their names, as any program would: it knows nothing but
// the cluster's DNS, and whose certificates to believe.
const visitor = `
apiVersion: v1
kind: ConfigMap
metadata: {name: visitor, namespace: %[1]s}
data:
  ca.crt: |
%[2]s
  visit: |
    until nslookup %[3]s; do sleep 1; done >/dev/null 2>&1
%[4]s
---
apiVersion: v1
kind: Pod
metadata: {name: visitor, namespace: %[1]s}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: visitor
    image: localhost/tools:e2e
    command: [/bin/busybox, sh, /etc/visitor/visit]
    env: [{name: PATH, value: /bin}]
    volumeMounts: [{name: visitor, mountPath: /etc/visitor}]
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
  volumes: [{name: visitor, configMap: {name: visitor}}]
`

// hurryClusterDNS has the kubelet bring the ConfigMap to its Pod now, and not within a minute:
// it does so whenever the Pod changes.
func (s *site) hurryClusterDNS(t *testing.T) {
	t.Helper()
	pod := readyPod(t, s.cp, "kube-system", "k8s-app=kube-dns")
	for range 4 { // it may hear of the ConfigMap later than of the Pod
		apply(t, s.cp, "{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: kube-system, annotations: {hurry: %q}}}", pod.Name, time.Now().String())
		time.Sleep(time.Second)
	}
}

// visitByName has a Pod run a script, once the cluster's DNS has an answer for a name.
func (s *site) visitByName(t *testing.T, name, script string) string {
	t.Helper()
	namespace := restricted(t, s.cp)
	apply(t, s.cp, visitor, namespace, indent(s.ca.PEM()), name, indent([]byte(script)))
	return finished(t, s.cp, namespace, "visitor")
}

// greet is a script that says what the server of a name says first, once it has verified the
// certificate.
func greet(name string, port int) string {
	return fmt.Sprintf("sleep 1 | timeout 20 openssl s_client -quiet -no_ign_eof -verify_return_error -CAfile /etc/visitor/ca.crt -servername %[1]s -verify_hostname %[1]s -connect %[1]s:%[2]d 2>/dev/null", name, port)
}

// indent makes text a block of YAML.
func indent(text []byte) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n    ")
}

// serveClusterDNS has Pods find somebody where the kubelet of a node sends them for names.
func (s *site) serveClusterDNS(t *testing.T, node *lab.Node) {
	t.Helper()
	apply(t, s.cp, clusterDNS, node.ClusterDNS())
	showIfFailed(t, s.cp, readyPod(t, s.cp, "kube-system", "k8s-app=kube-dns"))
}

// corefile is what the cluster's DNS goes by.
func (s *site) corefile(t *testing.T) string {
	t.Helper()
	m, err := kube(t, s.cp).CoreV1().ConfigMaps("kube-system").Get(t.Context(), "coredns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m.Data["Corefile"]
}
