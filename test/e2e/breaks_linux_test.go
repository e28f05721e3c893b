//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// A siteBreak is a fault that one scenario finds. The end of the test that injects it repairs it. want has the scenarios
// that do not pass, as "NAME STATUS"; those that need the first one are skipped.
type siteBreak struct {
	want   []string
	inject func(*testing.T)
}

// breaks returns a fault for each scenario.
func (s *site) breaks() []siteBreak {
	var list []siteBreak
	add := func(name string, inject func(*testing.T)) {
		list = append(list, siteBreak{[]string{name + " fail"}, inject})
	}
	list = append(list, siteBreak{[]string{"dhcp-lease fail", "dhcp-options skip", "dhcp-servers skip"}, func(t *testing.T) {
		for _, pid := range s.processes(t, "demo-dhcp-0", "coredhcp") {
			lab.Must(t, syscall.Kill(pid, syscall.SIGSTOP))
			t.Cleanup(func() {
				if err := syscall.Kill(pid, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) { // the kubelet may have restarted it
					t.Error(err)
				}
			})
		}
	}})
	const gateway = `{"spec": {"networkConfig": {"gateway": "%s"}}}`
	add("dhcp-options", s.patches("Infra", fmt.Sprintf(gateway, "198.18.50.254"), fmt.Sprintf(gateway, "198.18.50.1")))
	add("dhcp-servers", func(t *testing.T) { t.Cleanup(lab.OtherDHCP(t, vlan, "198.18.50")) })

	// Packets are selected by raw bytes: their offsets from the UDP header select ARCOUNT, the first four bytes of
	// the name, and of the type in a query for api.demo.lab.example.com; over TCP, from the TCP header with timestamps.
	// An app that does not exist has a name of 10 bytes that begins with "test".
	const (
		query    = "udp dport 53 "
		plain    = "@th,144,16 0 "
		api      = "@th,160,32 0x03617069 "
		unused   = "@th,160,32 0x0a746573 "
		upstream = "@th,160,32 0x096f6f6f "
	)
	for _, client := range []struct{ name, device string }{{"vlan", "net1"}, {"pod", "eth0"}} {
		for _, fault := range []struct{ scenario, match string }{
			{"udp", "udp dport 53"},
			{"names", query + plain + api + "@th,368,16 1"},
			{"names", query + plain + unused},
			{"tcp", "tcp dport 53"},
			{"edns", query + "@th,144,16 != 0 ip length < 200"},
			{"negative", query + plain + api + "@th,368,16 28"},
			{"upstream", query + plain + upstream},
			{"upstream-tcp", "tcp dport 53 @th,368,32 0x096f6f6f"},
		} {
			prefix := "dns-" + client.name + "-"
			want := []string{prefix + fault.scenario + " fail"}
			switch fault.scenario {
			case "tcp":
				want = append(want, prefix+"upstream-tcp skip")
			case "udp":
				want = append(want, prefix+"names skip", prefix+"edns skip", prefix+"negative skip", prefix+"upstream skip")
				if client.name == "vlan" {
					want = append(want, "mtu-vlan skip", "egress-registry skip", "isolation-names skip")
				}
			}
			list = append(list, siteBreak{want, s.drops("demo-dns-0", client.device, fault.match)})
		}
	}
	for _, service := range []struct {
		scenario, name string
		port           int
		address        string
	}{
		{"tls-api", "kube-apiserver", 6443, "192.0.2.81:6443"}, {"tls-oauth", "oauth-openshift", 6443, "192.0.2.82:6443"},
		{"tls-ignition", "ignition-server-proxy", 443, "192.0.2.83:8443"}, {"tls-konnectivity", "konnectivity-server", 8091, "192.0.2.84:8091"},
	} {
		at := netip.MustParseAddrPort(service.address)
		add(service.scenario, func(t *testing.T) {
			s.cp.MustApply(t, hostedCluster.Backend(service.name, service.port, netip.AddrPortFrom(at.Addr(), 1), ""))
			t.Cleanup(func() { s.restore(t, hostedCluster.Backend(service.name, service.port, at, "")) })
		})
	}
	for _, fault := range []struct {
		scenario, server string
		status           int
	}{
		{"tls-api", "kube-apiserver", 500}, {"tls-api", "kube-apiserver", 0}, // as with an etcd that hangs: not ready, or no response
		{"tls-oauth", "oauth-openshift", 503}, {"tls-ignition", "ignition-server-proxy", 0}, {"apps-https", "apps-https", 503}, {"apps-http", "apps-http", 503},
	} {
		add(fault.scenario, func(t *testing.T) {
			s.servers[fault.server].Respond(fault.status)
			t.Cleanup(func() { s.servers[fault.server].Respond(http.StatusOK) })
		})
	}
	for _, fault := range []struct{ scenario, match, verdict string }{
		{"apps-https", "tcp dport 443", "drop"}, {"apps-http", "tcp dport 80", "drop"},
		{"apps-http", "ip saddr 198.18.50.7 tcp dport 80", "reject with tcp reset"}, // to pods, Envoy responds itself
	} {
		add(fault.scenario, func(t *testing.T) {
			onMachine(t, "nft", "add table ip fault; add chain ip fault c { type filter hook input priority 0; }; add rule ip fault c ip daddr 198.18.50.200 "+fault.match+" "+fault.verdict)
			t.Cleanup(func() { onMachine(t, "nft", "delete table ip fault") })
		})
	}
	add("mtu-vlan", s.drops("demo-dns-0", "net1", query+"ip length > 1300"))
	add("egress-registry", func(t *testing.T) {
		onMachine(t, "nft", "add table ip fault; add chain ip fault c { type filter hook input priority 0; }; add rule ip fault c ip daddr "+registryAddress+" tcp dport 443 drop")
		t.Cleanup(func() { onMachine(t, "nft", "delete table ip fault") })
	})
	add("isolation-names", func(t *testing.T) {
		upstreamAddresses.Store(otherAPI+".", otherProxy)
		t.Cleanup(func() { upstreamAddresses.Delete(otherAPI + ".") })
	})
	route := s.patches("ProxyServer",
		`{"spec": {"backends": [{"name": "other", "hostname": "`+otherAPI+`", "port": 6443, "targetService": "other", "targetPort": 6443, "targetNamespace": "clusters-demo"}]}}`,
		`{"spec": {"backends": null}}`)
	add("isolation-proxy", func(t *testing.T) {
		s.cp.Create(t, hostedCluster.Backend("other", 6443, s.ca.TLSBackend(t, "192.0.2.85:6443", otherAPI).Addr(), ""))
		route(t)
	})
	for address, serve := range map[string]func(t *testing.T){
		otherProxy: func(t *testing.T) { s.ca.TLSBackend(t, otherProxy+":6443", otherAPI) },
		otherDNS: func(t *testing.T) {
			lab.ServeDNS(t, otherDNS+":53", func(w dns.ResponseWriter, q *dns.Msg) {
				_ = w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeRefused)) // the client may have closed its socket
			})
		},
	} {
		add("isolation-addresses", func(t *testing.T) {
			for address, device := range map[string]string{"198.18.50.1/24": vlan, address + "/32": "lo"} {
				onMachine(t, "ip", "address", "add", address, "dev", device)
				t.Cleanup(func() { onMachine(t, "ip", "address", "del", address, "dev", device) })
			}
			serve(t)
		})
	}
	slices.SortFunc(list, func(a, b siteBreak) int { return strings.Compare(a.want[0], b.want[0]) })
	return list
}

// onMachine runs a command on the machine of the test, also at the end of the test.
func onMachine(t *testing.T, line ...string) {
	t.Helper()
	if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), line[0], line[1:]...).CombinedOutput(); err != nil {
		t.Errorf("%v: %v: %s", line, err, out)
	}
}

// restore applies objects at the end of a test.
func (s *site) restore(t *testing.T, yaml string) {
	t.Helper()
	lab.Report(t, s.cp.ApplyYAML(context.WithoutCancel(t.Context()), []byte(yaml)))
}

// drops returns a function that drops packets which arrive at a device of a pod.
func (s *site) drops(pod, device, match string) func(*testing.T) {
	return func(t *testing.T) {
		pid := fmt.Sprint(s.processes(t, pod, "")[0])
		nft := func(script string) { onMachine(t, "nsenter", "--net=/proc/"+pid+"/ns/net", "nft", script) }
		nft("add table inet fault; add chain inet fault c { type filter hook input priority -350; }; add rule inet fault c iifname " + device + " " + match + " drop")
		t.Cleanup(func() { nft("delete table inet fault") })
	}
}

// patches returns a function that patches the object demo of one of oooi's kinds.
func (s *site) patches(kind, patch, undo string) func(*testing.T) {
	return func(t *testing.T) {
		c, err := client.New(s.cp.RESTConfig(), client.Options{})
		lab.Must(t, err)
		merge := func(patch string) {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind))
			u.SetNamespace("clusters")
			u.SetName("demo")
			lab.Report(t, c.Patch(context.WithoutCancel(t.Context()), u, client.RawPatch(types.MergePatchType, []byte(patch))))
		}
		merge(patch)
		t.Cleanup(func() { merge(undo) })
	}
}
