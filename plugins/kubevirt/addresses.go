package kubevirt

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/densityops/oooi/internal/kubeconfig"
	"github.com/densityops/oooi/plugins/internal/vm"
)

// A ReportedInterface is an interface of a running VM with the addresses in the status of its VirtualMachineInstance.
// On a Multus network, the guest reports these addresses.
type ReportedInterface struct {
	vm.Interface

	MAC, Hostname string
	// Addrs are in the order of the status.
	Addrs []netip.Addr
}

// Addresses lists the interfaces that report addresses, sorted by namespace, VM and interface. args are the
// plugin's arguments. It reads the API server, whether or not the plugin runs, and returns an error if args are invalid
// or a request fails.
func Addresses(ctx context.Context, args ...string) ([]ReportedInterface, error) {
	c, err := parse(args)
	if err != nil {
		return nil, err
	}
	config, err := kubeconfig.RESTConfig(c.kubeconfig, c.context)
	if err != nil {
		return nil, fmt.Errorf("kubevirt: %w", err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("kubevirt: creating a client for %s: %w", config.Host, err)
	}
	n, err := listNetworks(ctx, client, c)
	if err != nil {
		return nil, err
	}
	var all []ReportedInterface
	for namespace := range strings.SplitSeq(c.namespaces, ",") {
		list, err := listReported(ctx, client.Resource(instances).Namespace(namespace), c.selector, n)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	slices.SortFunc(all, func(a, b ReportedInterface) int { return cmp.Compare(a.String(), b.String()) })
	return all, nil
}

// listReported lists the interfaces of one namespace, or of all namespaces if client is not namespaced.
func listReported(ctx context.Context, client dynamic.ResourceInterface, selector string, on *networks) (all []ReportedInterface, err error) {
	const page = 500
	options := metav1.ListOptions{LabelSelector: selector, Limit: page}
	for more := true; more; more = options.Continue != "" {
		list, err := client.List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("kubevirt: listing VirtualMachineInstances: %w", err)
		}
		for i := range list.Items {
			reported, err := reportedBy(&list.Items[i], on)
			if err != nil {
				return nil, fmt.Errorf("kubevirt: reading VirtualMachineInstance %s/%s: %w", list.Items[i].GetNamespace(), list.Items[i].GetName(), err)
			}
			all = append(all, reported...)
		}
		options.Continue = list.GetContinue()
	}
	return all, nil
}

// reportedBy returns the interfaces of a VirtualMachineInstance on the network that report addresses.
func reportedBy(u *unstructured.Unstructured, on *networks) ([]ReportedInterface, error) {
	i, raw, err := decode(u)
	if err != nil {
		return nil, fmt.Errorf("unexpected object structure: %w", err)
	}
	if i.Final {
		return nil, nil
	}
	var all []ReportedInterface
	for _, n := range on.on(i, nil) {
		reported := ReportedInterface{Interface: vm.Interface{Namespace: i.Namespace, VM: i.owner(), Name: n.Name}, MAC: n.MAC, Hostname: i.Hostname}
		for _, s := range raw.Status.Interfaces {
			if s.Name != n.Name {
				continue
			}
			for _, text := range append([]string{s.IPAddress}, s.IPAddresses...) {
				text, _, _ = strings.Cut(text, "/")
				addr, err := netip.ParseAddr(text)
				if err == nil && addr.Zone() == "" && addr.IsGlobalUnicast() && !slices.Contains(reported.Addrs, addr) {
					reported.Addrs = append(reported.Addrs, addr)
				}
			}
		}
		if len(reported.Addrs) > 0 {
			all = append(all, reported)
		}
	}
	return all, nil
}
