package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"

	"github.com/densityops/oooi/test/lab"
)

// Addresses outside of the VLAN: of the API servers, of the servers that simulate the rest of the hosted control
// plane, and of the upstream resolver.
const (
	managementIP   = "192.0.2.1"
	hostedIP       = "192.0.2.10"
	oauthIP        = "192.0.2.11"
	ignitionIP     = "192.0.2.12"
	konnectivityIP = "192.0.2.13"
	resolverIP     = "192.0.2.53"
)

// Names and addresses on the VLAN, which is a Linux bridge.
const (
	nodeVLAN  = "vlan50"
	nodeDNS   = "198.18.50.3"
	nodeProxy = "198.18.50.4"
	nodeApps  = "198.18.50.200" // the first address of MetalLB's pool
	vmMAC     = "02:00:c6:12:32:01"
	vmName    = "demo-worker-6k8d2"
)

// ignitionName is a hostname that HyperShift generates, so it is in no spec.
const ignitionName = "ignition-4f2a.demo.lab.example.com"

// A site is the environment before setup: the clusters, a node, the servers behind the proxy, and a VM.
type site struct {
	dir string // working directory, for configuration, certificates and programs
	*clusters
	node      *lab.Node
	imports   errgroup.Group // of images that setup does not need
	servers   *backends
	resolvers []*dns.Server // over UDP and TCP
	vm        *virtualMachine
}

// startSite starts a management cluster with a node, the control plane of a hosted cluster, and the VLAN with a VM.
func startSite(ctx context.Context, dir string) (*site, error) {
	start := time.Now()
	s := &site{dir: dir, clusters: &clusters{}, servers: &backends{dir: dir}}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	progress("started a management cluster with a node, and a hosted control plane, in %.1f s", time.Since(start).Seconds())
	return s, nil
}

func (s *site) start(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.startManagement(groupCtx) })
	group.Go(func() error { return s.startHosted(groupCtx) })
	if err := group.Wait(); err != nil {
		return err
	}
	s.imports.Go(func() error { return s.node.ImportImage(ctx, clientImage) })
	if err := s.startServers(ctx); err != nil {
		return err
	}
	if err := s.startResolver(ctx); err != nil {
		return err
	}
	if err := s.publish(ctx); err != nil {
		return err
	}
	var err error
	s.vm, err = newVM(nodeVLAN, s.dir, "vm", vmMAC)
	return err
}

func (s *site) startManagement(ctx context.Context) (err error) {
	s.management, err = lab.Start(ctx, lab.Config{
		Name: "management", Dir: filepath.Join(s.dir, "management"), Address: managementIP, ControllerManager: true, Scheduler: true,
		CRDs: siteCRDs(),
	})
	if err != nil {
		return err
	}
	s.node, err = lab.StartNode(ctx, s.management, lab.NodeConfig{Bridges: []string{nodeVLAN}, Images: []string{oooiImage, envoyImage}})
	return err
}

// siteCRDs returns the CRDs of the management cluster, in addition to those of a node. Ours are not among them,
// because setup creates them.
func siteCRDs() []lab.CRDSet {
	return []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.KubeVirt, lab.KubeVirtMachines}
}

func (s *site) startHosted(ctx context.Context) (err error) {
	s.hosted, err = lab.Start(ctx, lab.Config{
		Name: "hosted", Dir: filepath.Join(s.dir, "hosted"), ServiceCIDR: "172.31.0.0/16", Address: hostedIP, ServerNames: []string{"api.demo.lab.example.com"},
	})
	if err != nil {
		return err
	}
	if err := s.hosted.StartMetalLB(ctx, lab.MetalLBConfig{LoadBalancerClass: "metallb.io/vlan"}); err != nil {
		return err
	}
	return applyFolder(ctx, s.hosted, "objects/node/hosted")
}

// startServers starts servers that simulate the rest of the hosted control plane, and the router of apps on the VLAN.
// They reply with their name and the request.
func (s *site) startServers(ctx context.Context) error {
	if err := ip(ctx, "address", "add", nodeApps+"/24", "dev", nodeVLAN); err != nil {
		return err
	}
	for _, server := range []struct {
		name, address string
		hosts         []string
	}{
		{"oauth", oauthIP + ":6443", []string{"oauth.demo.lab.example.com", "oauth-openshift.apps.demo.lab.example.com"}},
		{"ignition", ignitionIP + ":443", []string{"ignition.demo.lab.example.com", ignitionName}},
		{"konnectivity", konnectivityIP + ":8091", []string{"konnectivity.demo.lab.example.com"}},
		{"shop", nodeApps + ":443", []string{shopName, "console-openshift-console.apps.demo.lab.example.com"}}, // the router of both
	} {
		certificate, err := s.servers.certificate(server.name, server.hosts...)
		if err != nil {
			return err
		}
		greeting := replyWith(func(r *http.Request) string {
			from, _, _ := net.SplitHostPort(r.RemoteAddr)
			return fmt.Sprintf("%s: request for %s from %s", server.name, r.Host, from)
		})
		if err := s.servers.serve(ctx, server.address, greeting, certificate); err != nil {
			return err
		}
	}
	// Like OpenShift's router, redirect from port 80.
	if err := s.servers.serve(ctx, nodeApps+":80", http.RedirectHandler("https://"+shopName+"/", http.StatusFound)); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.dir, "api.crt"), s.hosted.CA(), 0o600); err != nil {
		return fmt.Errorf("writing the CA of the hosted API server: %w", err)
	}
	return nil
}

// startResolver starts the upstream resolver, which answers queries for A records with one address, and those in the
// domain invalid with NXDOMAIN.
func (s *site) startResolver(ctx context.Context) error {
	conn, err := new(net.ListenConfig).ListenPacket(ctx, "udp", net.JoinHostPort(resolverIP, "53"))
	if err != nil {
		return fmt.Errorf("starting the upstream resolver: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(resolverIP, "53"))
	if err != nil {
		_ = conn.Close() // the error is that of listening
		return fmt.Errorf("starting the upstream resolver: %w", err)
	}
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, question *dns.Msg) {
		reply := new(dns.Msg).SetReply(question)
		switch q := question.Question[0]; {
		case dns.IsSubDomain("invalid.", q.Name):
			reply.Rcode = dns.RcodeNameError
		case q.Qtype == dns.TypeA:
			reply.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.ParseIP(upstream)}}
		}
		_ = w.WriteMsg(reply) // the client may have closed its socket
	})
	for _, server := range []*dns.Server{{PacketConn: conn, Handler: handler}, {Listener: listener, Handler: handler}} {
		started := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		s.resolvers = append(s.resolvers, server)
		go func() { _ = server.ActivateAndServe() }() // until Shutdown
		<-started
	}
	return nil
}

// publish applies the hosted cluster, with the EndpointSlices of its control plane's Services.
func (s *site) publish(ctx context.Context) error {
	hosted, err := url.Parse(s.hosted.ServerURL())
	if err != nil {
		return fmt.Errorf("reading the hosted API server's URL: %w", err)
	}
	if err := applyFolder(ctx, s.management, "objects/node/management"); err != nil {
		return err
	}
	cluster := lab.HostedCluster{
		Namespace: "clusters", Name: "demo", BaseDomain: "lab.example.com", More: "  infraID: demo-x7k2p",
		Publishing: map[string]string{
			"OAuthServer":  lab.PublishedRoute("oauth.demo.lab.example.com"),
			"Ignition":     lab.PublishedRoute("ignition.demo.lab.example.com"),
			"Konnectivity": lab.PublishedRoute("konnectivity.demo.lab.example.com"),
		},
	}
	err = s.management.ApplyYAML(ctx, []byte(cluster.YAML()+
		endpoints("kube-apiserver", "", hosted.Port(), hostedIP)+"---"+endpoints("oauth-openshift", "", "6443", oauthIP)+"---"+
		endpoints("ignition-server-proxy", "", "443", ignitionIP)+"---"+endpoints("konnectivity-server", "", "8091", konnectivityIP)))
	if err != nil {
		return err
	}
	if err := cluster.PublishKubeconfig(ctx, s.management, s.hosted); err != nil {
		return err
	}
	oauth, err := os.ReadFile(filepath.Join(s.dir, "oauth.crt"))
	if err != nil {
		return fmt.Errorf("reading a certificate: %w", err)
	}
	konnectivity, err := os.ReadFile(filepath.Join(s.dir, "konnectivity.crt"))
	if err != nil {
		return fmt.Errorf("reading a certificate: %w", err)
	}
	// The servers' certificates are self-signed, so each is its own CA.
	return s.management.Apply(ctx, cluster.RootCA(append(s.hosted.CA(), oauth...)), cluster.KonnectivityCA(konnectivity))
}

// stop stops everything that has been started. It may be called after a failed start.
func (s *site) stop() error {
	s.vm.stop()
	s.servers.stop()
	var err error
	for _, server := range s.resolvers {
		err = errors.Join(err, server.Shutdown())
	}
	if s.node != nil {
		err = errors.Join(err, s.node.Stop())
	}
	return errors.Join(err, s.clusters.stop())
}
