package faults

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/test/lab"
)

// backendFaults returns faults of the hosted control plane's servers and of Envoy that no object shows.
func backendFaults(r *Running) []Fault {
	return []Fault{
		{Name: "hosted API server hangs", Want: []string{"PRX-018 fail"}, Break: func(*Site) {
			r.signalHosted(syscall.SIGSTOP)
			r.Undo(func() { r.signalHosted(syscall.SIGCONT) })
		}},
		{Name: "hosted API server is not ready without etcd", Want: []string{"HC-005 fail"}, Break: func(*Site) {
			if err := r.Hosted.KillEtcd(); err != nil {
				r.Fatal(err)
			}
			r.Undo(func() {
				if err := r.Hosted.StartEtcd(r.Context()); err != nil {
					r.Fatal(err)
				}
			})
		}},
		{Name: "another backend does not listen, and the hosted API server is not ready without etcd", Want: []string{"PRX-012 fail", "HC-005 fail"}, Break: func(*Site) {
			r.Add(runningCluster.Backend("extra", 8443, netip.MustParseAddrPort("198.18.0.97:8443"), ""))
			r.Patch(proxyKind, "$ns", "demo", `{"spec": {"backends": [{"name": "extra", "hostname": "extra.example.com", "port": 443, "targetService": "extra", "targetPort": 8443, "targetNamespace": "$ns-demo", "healthCheck": {}}]}}`)
			if err := r.Hosted.KillEtcd(); err != nil {
				r.Fatal(err)
			}
			r.Undo(func() {
				if err := r.Hosted.StartEtcd(r.Context()); err != nil {
					r.Fatal(err)
				}
			})
		}},
		{Name: "API server has a certificate for another name", Want: []string{"PRX-019 fail"}, Break: func(*Site) {
			r.replaceEndpoint("kube-apiserver", r.ca.TLSBackend(r.parent, "198.18.0.91:6443", "api.other.example.com"))
		}},
		{Name: "API server has a certificate of another CA", Want: []string{"HC-006 fail"}, Says: "expected: issued by", Break: func(*Site) {
			r.replaceEndpoint("kube-apiserver", r.ca.TLSBackend(r.parent, "198.18.0.96:6443", "api."+RunningDomain))
		}},
		{Name: "Route of the ignition server has the host of the OAuth server", Want: []string{"DNS-002 fail"}, Says: "kubectl -n clusters-demo delete route ignition-server", Break: func(*Site) {
			r.Add("apiVersion: route.openshift.io/v1\nkind: Route\nmetadata: {name: ignition-server, namespace: $ns-demo}\nspec: {host: oauth." + RunningDomain + ", to: {kind: Service, name: ignition-server-proxy}, port: {targetPort: 443}}\n")
		}},
		{Name: "another EndpointSlice leads to the ignition server instead of the OAuth server", Want: []string{"PRX-019 fail"}, Says: "EndpointSlice clusters-demo/oauth-openshift-old", Break: func(*Site) {
			r.Add("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: oauth-openshift-old, namespace: $ns-demo, labels: {kubernetes.io/service-name: oauth-openshift}}\n" +
				"addressType: IPv4\nports: [{port: 8443, protocol: TCP}]\nendpoints: [{addresses: [198.18.0.83], conditions: {ready: true}}]\n")
		}},
		{Name: "certificate of konnectivity has expired", Want: []string{"PRX-019 fail"}, Break: func(*Site) {
			r.replaceEndpoint("konnectivity-server", r.ca.ExpiredTLSBackend(r.parent, "198.18.0.92:8091", "konnectivity."+RunningDomain))
		}},
		{Name: "OAuth server does not use TLS", Want: []string{"PRX-018 fail"}, Break: func(*Site) {
			r.replaceEndpoint("oauth-openshift", lab.TCPBackend(r.parent, "198.18.0.93:6443", "oauth"))
		}},
		{Name: "large packets of konnectivity are lost", Want: []string{"PRX-018 fail"}, Break: func(*Site) {
			r.segmentPackets()
			r.nft("table inet large {\n chain output {\n type filter hook output priority 0\n ip saddr 198.18.0.84 tcp sport 8091 meta length > 1400 drop\n }\n}\n")
			r.Undo(func() { r.nft("delete table inet large\n") })
		}},
		{Name: "ingress router accepts connections and does not answer", Want: []string{"PRX-018 fail"}, Says: "apps address 192.0.2.200:443 accepts TCP connections, but TLS handshakes fail", Break: func(*Site) {
			r.nft("table inet mute {\n chain input {\n type filter hook input priority 0\n ip daddr 192.0.2.200 tcp dport 443 meta length > 60 drop\n }\n}\n")
			r.Undo(func() { r.nft("delete table inet mute\n") })
		}},
		{Name: "one of two endpoints of konnectivity does not listen", Want: []string{"PRX-012 warn"}, Says: "is an endpoint in EndpointSlice ", Break: func(*Site) { r.addEndpoint("198.18.0.94") }},
		{Name: "one of two endpoints of konnectivity hangs", Want: []string{"PRX-018 warn"}, Break: func(*Site) {
			silent, err := (&net.ListenConfig{}).Listen(r.Context(), "tcp", "198.18.0.95:8091") // the kernel accepts connections
			if err != nil {
				r.Fatal(err)
			}
			r.Undo(func() { _ = silent.Close() })
			r.addEndpoint("198.18.0.95")
		}},
		{Name: "MetalLB's pool was moved into the DHCP ranges", Want: []string{"APP-001 fail"}, Says: "192.0.2.50 is in our DHCP range 192.0.2.10-192.0.2.99", Break: func(*Site) { r.moveApps("192.0.2.50") }},
		{Name: "Service of apps names a pool that does not exist", Want: []string{"APP-001 fail"}, Says: `(message: "Failed to allocate IP for \"openshift-ingress/demo-apps\": unknown pool \"vlan50\"")`, Break: func(*Site) {
			r.warnAboutApps("AllocationFailed", `Failed to allocate IP for "openshift-ingress/demo-apps": unknown pool "vlan50"`)
			r.moveApps("")
		}},
		{Name: "hosted cluster rejects the credentials of DNS and the proxy", Want: []string{"APP-004 warn"}, Break: func(*Site) { r.invalidateReader() }},
		{Name: "Envoy has reached its connection limit", Want: []string{"PRX-013 fail"}, Break: func(*Site) { r.exhaustConnections() }},
		{Name: "another process has a port of the proxy", Want: []string{"PRX-003 fail"}, Break: func(*Site) {
			envoy := r.Pods["proxy"].Containers["envoy"]
			envoy.Kill(r.T)
			other, err := (&net.ListenConfig{}).Listen(r.Context(), "tcp", "192.0.2.4:443")
			if err != nil {
				r.Fatal(err)
			}
			r.Undo(func() {
				envoy.Kill(r.T)
				_ = other.Close()
				r.Pods["proxy"].RestartContainer(r.T, "envoy", false)
			})
			r.Pods["proxy"].RestartContainer(r.T, "envoy", false)
		}},
		{Name: "Envoy has closed its listeners", Inconclusive: true, Want: []string{"PRX-006 fail", "PRX-007 warn"}, Break: func(*Site) {
			r.Undo(func() {
				r.Pods["proxy"].Containers["envoy"].Kill(r.T)
				r.Pods["proxy"].RestartContainer(r.T, "envoy", false)
			})
			r.postAdmin("/drain_listeners")
		}},
	}
}

func (r *Running) signalHosted(signal syscall.Signal) {
	r.Helper()
	if err := r.Hosted.SignalAPIServer(signal); err != nil {
		r.Fatal(err)
	}
}

// warnAboutApps creates an Event about the apps Service in the hosted cluster, as MetalLB does, until Mend.
func (r *Running) warnAboutApps(reason, message string) {
	r.Helper()
	o := &corev1.Service{}
	if err := r.HostedClient.Get(r.Context(), client.ObjectKey{Namespace: "openshift-ingress", Name: "demo-apps"}, o); err != nil {
		r.Fatal(err)
	}
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: o.Namespace, GenerateName: "demo-apps-"},
		InvolvedObject: corev1.ObjectReference{Kind: "Service", Namespace: o.Namespace, Name: o.Name, UID: o.UID},
		Type:           corev1.EventTypeWarning, Reason: reason, Message: message, LastTimestamp: metav1.Now(),
	}
	if err := r.HostedClient.Create(r.Context(), event); err != nil {
		r.Fatal(err)
	}
	r.Undo(func() {
		if err := r.HostedClient.Delete(r.Context(), event); err != nil {
			r.Fatal(err)
		}
	})
}

// moveApps assigns another address to the apps Service, none if it is empty, and closes the previous one, until Mend.
func (r *Running) moveApps(address string) {
	r.Helper()
	assign := func(address string) {
		o := &corev1.Service{}
		if err := r.HostedClient.Get(r.Context(), client.ObjectKey{Namespace: "openshift-ingress", Name: "demo-apps"}, o); err != nil {
			r.Fatal(err)
		}
		o.Status.LoadBalancer.Ingress = nil
		if address != "" {
			o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
		}
		if err := r.HostedClient.Status().Update(r.Context(), o); err != nil {
			r.Fatal(err)
		}
	}
	r.Backends["apps"].Close()
	r.Backends["apps over HTTP"].Close()
	r.Undo(func() {
		r.Backends["apps"] = r.ca.TLSBackend(r.parent, "192.0.2.200:443", "*.apps."+RunningDomain)
		r.Backends["apps over HTTP"] = lab.HTTPBackend(r.parent, "192.0.2.200:80", "apps")
		assign("192.0.2.200")
	})
	assign(address)
}

// replaceEndpoint replaces the endpoint of a Service of the hosted control plane by a server, until Mend, which closes
// it.
func (r *Running) replaceEndpoint(service string, by *lab.Backend) {
	r.Helper()
	r.Undo(by.Close)
	r.Patch(sliceKind, "$ns-demo", service+"-1", `{"endpoints": [{"addresses": [`+toJSON(by.Addr().Addr().String())+`], "conditions": {"ready": true}}], "ports": [{"port": `+toJSON(by.Addr().Port())+`, "protocol": "TCP"}]}`)
}

// addEndpoint adds an endpoint to the Service of konnectivity, until Mend.
func (r *Running) addEndpoint(address string) {
	r.Helper()
	r.Patch(sliceKind, "$ns-demo", "konnectivity-server-1", `{"endpoints": [{"addresses": ["198.18.0.84"], "conditions": {"ready": true}}, {"addresses": [`+toJSON(address)+`], "conditions": {"ready": true}}]}`)
}

// segmentPackets makes the kernel divide the data of TCP connections into packets before rules of nftables see them, until
// Mend.
func (r *Running) segmentPackets() {
	r.Helper()
	set := func(segments string) {
		var own *lab.Namespace
		own.Run(r.T, "ip", "link", "set", "lo", "gso_max_segs", segments)
	}
	r.Undo(func() { set("65535") })
	set("1")
}

// invalidateReader replaces the token with which DNS and the proxy read the apps Service, until Mend.
func (r *Running) invalidateReader() {
	r.Helper()
	data, _, _ := unstructured.NestedString(r.Get(secretKind, "$ns", "demo-apps-reader").Object, "data", "kubeconfig")
	config, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		r.Fatal(err)
	}
	config = regexp.MustCompile(`token: .*`).ReplaceAll(config, []byte("token: expired"))
	r.Patch(secretKind, "$ns", "demo-apps-reader", `{"data": {"kubeconfig": "`+base64.StdEncoding.EncodeToString(config)+`"}}`)
}

// exhaustConnections restarts Envoy with a limit of four connections, and opens more, until Mend.
func (r *Running) exhaustConnections() {
	r.Helper()
	file := filepath.Join(r.Pods["proxy"].Volume("envoy"), "envoy.yaml")
	before, err := os.ReadFile(file)
	if err != nil {
		r.Fatal(err)
	}
	restart := func(config []byte) {
		r.Pods["proxy"].Containers["envoy"].Kill(r.T)
		if err := os.WriteFile(file, config, 0o600); err != nil {
			r.Fatal(err)
		}
		r.Pods["proxy"].RestartContainer(r.T, "envoy", false)
	}
	r.Undo(func() { restart(before) })
	limited := regexp.MustCompile(`(max_active_downstream_connections: )[^\n]*`).ReplaceAll(before, []byte(`${1}"4"`))
	if bytes.Equal(limited, before) {
		r.Fatal("Envoy's configuration has no connection limit")
	}
	restart(limited)
	r.Await("port 443 to accept connections", func() bool {
		conn, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", "192.0.2.4:443")
		return err == nil && conn.Close() == nil
	})
	ctx, cancel := context.WithCancel(r.Context())
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for ctx.Err() == nil { // Envoy ends a connection without a name after 15 seconds
				hold(ctx, "192.0.2.4:443")
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	r.Undo(func() {
		cancel()
		clients.Wait()
	})
}

// hold opens a connection, and returns when the server or ctx ends it.
func hold(ctx context.Context, address string) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return // the server refuses it
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_, _ = io.Copy(io.Discard, conn)
	_ = conn.Close()
}
