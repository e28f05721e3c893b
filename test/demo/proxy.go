package main

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/densityops/oooi/test/lab"
)

// Addresses of pods, and the last address that MetalLB assigns to the apps Service.
const (
	apiPod      = "198.51.100.10"
	oauthPod    = "198.51.100.11"
	newOAuthPod = "198.51.100.12"
	appsIP      = "192.168.50.205"
)

const proxyServer = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: demo, namespace: clusters}
spec:
  infraRef: {name: demo}
  networkConfig: {serverIP: 127.50.0.4, networkAttachmentName: vlan50}
`

// endpoints returns the EndpointSlice of a Service with one pod.
func endpoints(service, portName, port, address string) string {
	return fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: clusters-demo, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: "%[2]s", port: %[3]s}]
endpoints: [{addresses: [%[4]s], conditions: {ready: true}}]
`, service, portName, port, address)
}

// startProxy starts the proxy of cluster demo, and waits until it routes to apps, whose address is the last to be known, because
// it comes from the hosted cluster.
func (l *loopbackShow) startProxy() {
	l.printf("\n# The proxy of cluster demo: Envoy starts with a configuration that xdsd prints, and gets the rest from xdsd.\n")
	serviceIP := l.answer(l.ctx, podIP, "api."+domain)
	l.startBackends()
	socket := filepath.Join(l.dir, "xdsd.sock")
	serve := []string{
		"serve", "--kubeconfig", l.management.Kubeconfig(), "--proxy-server", "clusters/demo", "--infra", "clusters/demo", "--hosted-cluster", "clusters/demo",
		// Without kube-proxy, Envoy listens on the cluster IP of its Service itself.
		"--bind", strings.Join([]string{vlanIP, serviceIP, bridgeProxy}, ","), "--http", "127.0.0.1:9902", "--socket", socket,
	}
	l.printf("$ xdsd %s &\n", strings.Join(serve, " "))
	l.daemon(l.xdsd, serve...)
	bootstrap := []string{"--proxy-server", "clusters/demo", "--node-id", "demo-proxy-0", "--admin-socket", filepath.Join(l.dir, "admin.sock"), "--socket", socket}
	l.printf("$ xdsd bootstrap %s > envoy.yaml\n$ envoy -c envoy.yaml $(xdsd ... --args) &\n", strings.Join(bootstrap, " "))
	lab.NewProxy(l, l.xdsd, bootstrap...)
	shop := visit{url: "https://" + shopName + "/", trust: "shop.crt"}
	vm := l.from(demoVM)
	l.await("the app shop to answer through the proxy", func() (bool, string) {
		reply, right := vm.curl("shop", vm.curlArguments(shop, vlanIP))
		return right, reply
	})
}

// startBackends starts two OAuth servers and the router of apps, and applies the Services and endpoints behind the proxy, and its
// ProxyServer. The demo runs no other server of the hosted control plane.
func (l *loopbackShow) startBackends() {
	oauth, shop, cart := l.certificate("oauth", oauthNames...), l.certificate("shop", shopName), l.certificate("cart", cartName)
	router := http.NewServeMux()
	router.Handle(shopName+"/", named("shop", true))
	router.Handle(cartName+"/", named("cart", true))
	router.HandleFunc("/ticks", ticks)
	router.HandleFunc(shopName+"/ticks", ticks)
	lab.ServeHTTP(l, oauthPod+":6443", named("oauth-openshift-1", false), oauth)
	lab.ServeHTTP(l, newOAuthPod+":6443", named("oauth-openshift-2", false), oauth)
	lab.ServeHTTP(l, appsIP+":443", router, shop, cart)
	lab.ServeHTTP(l, appsIP+":80", router)

	hosted, err := url.Parse(l.hosted.ServerURL())
	l.check(err)
	l.write("api.crt", string(l.hosted.CA()))
	const controlPlane = "clusters-demo"
	l.management.MustApply(l, lab.Service(controlPlane, "oauth-openshift", 6443, "spec: {selector: {app: oauth-openshift}}"),
		lab.Service(controlPlane, "ignition-server-proxy", 443, "spec: {selector: {app: ignition-server-proxy}}"),
		lab.Service(controlPlane, "konnectivity-server", 8091, "spec: {selector: {app: kube-apiserver}}"),
		endpoints("kube-apiserver", "client", hosted.Port(), apiPod), endpoints("oauth-openshift", "", "6443", oauthPod))
	l.typeApply(proxyServer)
	l.management.MustApply(l, proxyServer)
}

// showProxy connects through the proxy as VMs and as pods.
func (l *loopbackShow) showProxy() {
	service, vm, pod := inNetwork("127.96.0.0/16"), l.from(demoVM), l.from(podIP)
	const api, version = "https://api." + domain + ":6443/version", `"gitVersion": "v`
	vm.visit(visit{"A VM connects by name to the API server of the hosted cluster, and verifies its certificate", api, "api.crt", only(vlanIP), version})
	l.printf("\n# The OAuth server, by its control-plane name and by its name in the apps domain.\n")
	for _, name := range oauthNames {
		vm.visit(visit{"", "https://" + name + "/", "oauth.crt", only(vlanIP), "oauth-openshift-1: request for " + name})
	}
	replyOf := func(app, name string) string { return app + ": request for " + name + " from " + vlanIP }
	l.printf("\n# A pod connects to apps; the proxy connects to them from its VLAN address.\n")
	pod.visit(visit{"", "https://" + shopName + "/", "shop.crt", service, replyOf("shop", shopName)})
	pod.visit(visit{"", "https://" + cartName + "/", "cart.crt", service, replyOf("cart", cartName)})
	pod.visit(visit{"", "http://" + shopName + "/", "", service, replyOf("shop", shopName)})
	pod.visit(visit{"", "http://" + cartName + "/", "", service, replyOf("cart", cartName)})
	pod.visit(visit{"", api, "api.crt", service, version})
	l.printf("\n# VMs reach apps without the proxy, but the proxy accepts their connections, too.\n")
	vm.connect(visit{url: "https://" + shopName + "/", trust: "shop.crt", reply: replyOf("shop", shopName)}, vlanIP)
	vm.connect(visit{url: "http://" + shopName + "/", reply: replyOf("shop", shopName)}, vlanIP)
}

// showSwap moves the OAuth server to another pod while a client reads a stream from the app shop, which must not be interrupted.
func (l *loopbackShow) showSwap() {
	vm := l.from(demoVM)
	args := vm.curlArguments(visit{url: "https://" + shopName + "/ticks", trust: "shop.crt"}, vlanIP)
	l.printf("\n# While a client reads a stream from the app shop, the OAuth server moves to another pod.\n$ curl --no-buffer %s &\n", strings.Join(args, " "))
	stream := lab.NewDaemon(l, "curl", func() *exec.Cmd { // it is killed at the end of the show
		cmd := exec.Command("curl", append([]string{"--silent", "--show-error", "--no-buffer"}, args...)...) //nolint:noctx // see above
		cmd.Dir = l.dir
		return cmd
	})
	stream.Start(l)
	more := func() { // waits for ten more lines
		wanted := len(stream.Log.Lines()) + 10
		l.await("the stream to continue", func() (bool, string) { return len(stream.Log.Lines()) >= wanted || stream.Exited(), "" })
	}
	more()
	oauth := visit{url: "https://" + oauthNames[0] + "/", trust: "oauth.crt", dns: only(vlanIP), reply: "oauth-openshift-2: request for " + oauthNames[0]}
	change := endpoints("oauth-openshift", "", "6443", newOAuthPod)
	l.typeApply(change)
	roots := l.roots("oauth.crt")
	took := l.applyAndWait(l.management, change, "the new pod answering", func(ctx context.Context) bool {
		return replies(ctx, netip.MustParseAddr(demoVM), netip.MustParseAddrPort(vlanIP+":443"), oauthNames[0], oauth.reply, roots)
	})
	l.printf("  the new pod answered %s after the API server accepted the change\n", took)
	vm.visit(oauth)
	more()
	l.printf("$ fg\n")
	lines := strings.Split(strings.TrimSpace(stream.Log.String()), "\n")
	for i, line := range lines[:len(lines)-1] { // the last one may be incomplete
		if line != fmt.Sprintf("tick %d", i+1) {
			l.verdict(fmt.Sprintf("after tick %d came %q", i, line), false)
			return
		}
	}
	l.verdict(fmt.Sprintf("tick 1 to tick %d on one connection, none missing", len(lines)-1), !stream.Exited())
}
