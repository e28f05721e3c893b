package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/probe"
	probing "github.com/densityops/oooi/xdsd/internal/probe"
)

// probeTimeout bounds one probe of a pod.
const probeTimeout = 3 * time.Second

// prober probes pods at their address in the pod network.
type prober struct{ http *http.Client }

func newProber() *prober {
	return &prober{&http.Client{
		Timeout:   probeTimeout,
		Transport: &http.Transport{DisableKeepAlives: true}, // probes are rare; Proxy is unset, because pods are reached directly
	}}
}

// address returns the host and port of a named container port.
func address(pod *corev1.Pod, port string) (string, error) {
	if pod.Status.PodIP == "" {
		return "", fmt.Errorf("is waiting for an IP address")
	}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == port {
				return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(p.ContainerPort))), nil
			}
		}
	}
	return "", fmt.Errorf("lacks a container port named %q", port)
}

// queryDNS queries a pod for the first name of the control plane, and compares its answer with the current model.
// Because the query arrives from the pod network, the response comes from the pod view: the cluster IPs of the
// proxy's Service. While they are unknown, any answer with RCODE NOERROR is accepted.
func queryDNS(ctx context.Context, pod *corev1.Pod, i *model.Infra) error {
	if i.Cluster == nil || len(i.Cluster.Hostnames) == 0 {
		return errors.New("cannot query DNS: no control-plane name is known")
	}
	text, err := address(pod, v1alpha1.PortDNS)
	if err != nil {
		return err
	}
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		return fmt.Errorf("has an invalid IP address: %w", err)
	}
	query := &probe.Query{Server: at.Addr(), Port: at.Port(), Network: "udp", Name: i.Cluster.Hostnames[0].Name, Type: "A", EDNS: true}
	var want []netip.Addr
	if i.Proxy != nil && len(i.Proxy.ClusterIPs) > 0 {
		if i.Proxy.ClusterIPs[0].Is6() {
			query.Type = "AAAA"
		}
		want = slices.DeleteFunc(slices.Clone(i.Proxy.ClusterIPs), func(a netip.Addr) bool { return a.Is6() != (query.Type == "AAAA") })
	}
	reply, err := probing.DNS(ctx, query)
	if err != nil {
		return fmt.Errorf("DNS query for %s: %w", query.Name, err)
	}
	if reply.Rcode != "NOERROR" {
		return fmt.Errorf("DNS query for %s: %s", query.Name, reply.Rcode)
	}
	slices.SortFunc(want, netip.Addr.Compare)
	if len(want) > 0 && !slices.Equal(reply.Addresses, want) {
		return fmt.Errorf("DNS query for %s: the answer is %v, expected %v", query.Name, reply.Addresses, want)
	}
	return nil
}

// connect opens a TCP connection and closes it.
func connect(ctx context.Context, at netip.AddrPort) error {
	conn, err := (&net.Dialer{Timeout: probeTimeout}).DialContext(ctx, "tcp", at.String())
	if err != nil {
		return err
	}
	_ = conn.Close() // nothing was written
	return nil
}
