package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// TestServerWithoutAPIServerAnswersAtOnce starts CoreDNS without an API server. Clients must get SERVFAIL with an
// extended error soon, without the wait of a reload.
func TestServerWithoutAPIServerAnswersAtOnce(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(`
apiVersion: v1
kind: Config
clusters: [{name: away, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: away, context: {cluster: away, user: away}}]
users: [{name: away, user: {token: none}}]
current-context: away
`), 0o600); err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	instance := start(t, fmt.Sprintf(".:0 {\n bind 127.0.0.1\n hcpviews {\n kubeconfig %s\n guard example.com\n }\n hcpapps\n template IN A {\n rcode NXDOMAIN\n }\n}", kubeconfig))
	if took := time.Since(before); took > 2*time.Second {
		t.Errorf("the server listened after %s", took)
	}
	for _, name := range []string{"api.blue.example.com.", "shop.apps.blue.example.com."} {
		m := new(dns.Msg).SetQuestion(name, dns.TypeA)
		m.SetEdns0(1232, false)
		reply := exchange(t, address(t, instance, 0), pod, m)
		opt := reply.IsEdns0()
		if reply.Rcode != dns.RcodeServerFailure || opt == nil || len(opt.Option) != 1 {
			t.Fatalf("%s: %s", name, reply)
		}
		if ede, ok := opt.Option[0].(*dns.EDNS0_EDE); !ok || ede.InfoCode != dns.ExtendedErrorCodeNotReady {
			t.Errorf("%s: the extended error is %v", name, opt.Option[0])
		}
	}
	expect(t, address(t, instance, 0), pod, "www.example.net.", "NXDOMAIN") // outside of the guarded zones
}
