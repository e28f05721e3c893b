package kubevirt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/plugins/internal/vm"
)

// Used is an interface of a running virtual machine with the addresses that its status has. On a network of
// Multus it is the guest that reports them.
type Used struct {
	vm.Interface

	MAC, Hostname string
	// Addrs are in the order of the status.
	Addrs []netip.Addr
}

// Addresses lists the addresses that machines use, by namespace, machine and interface. args are the plugin's; it asks
// the API server, and nothing is kept.
func Addresses(ctx context.Context, args ...string) ([]Used, error) {
	c, err := parse(args)
	if err != nil {
		return nil, err
	}
	config, err := watch.RESTConfig(c.source())
	if err != nil {
		return nil, fmt.Errorf("kubevirt: %w", err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("kubevirt: creating a client for %s: %w", config.Host, err)
	}
	var all []Used
	for namespace := range strings.SplitSeq(c.namespaces, ",") {
		list, err := usedIn(ctx, client.Resource(instances).Namespace(namespace), c)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	slices.SortFunc(all, func(a, b Used) int { return cmp.Compare(a.String(), b.String()) })
	return all, nil
}

// usedIn lists the addresses of one namespace, or of all.
func usedIn(ctx context.Context, client dynamic.ResourceInterface, c config) (all []Used, err error) {
	const page = 500
	options := metav1.ListOptions{LabelSelector: c.selector, Limit: page}
	for more := true; more; more = options.Continue != "" {
		list, err := client.List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("kubevirt: listing VirtualMachineInstances: %w", err)
		}
		for i := range list.Items {
			used, err := usedBy(&list.Items[i], c.network)
			if err != nil {
				return nil, fmt.Errorf("kubevirt: reading VirtualMachineInstance %s/%s: %w", list.Items[i].GetNamespace(), list.Items[i].GetName(), err)
			}
			all = append(all, used...)
		}
		options.Continue = list.GetContinue()
	}
	return all, nil
}

// usedBy returns the interfaces of an instance that have addresses.
func usedBy(u *unstructured.Unstructured, network string) ([]Used, error) {
	i, ok := decoder(network)(u).(*instance)
	var raw struct {
		Status struct {
			Interfaces []struct {
				Name        string   `json:"name"`
				IPAddress   string   `json:"ipAddress"`
				IPAddresses []string `json:"ipAddresses"`
			} `json:"interfaces"`
		} `json:"status"`
	}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &raw)
	if !ok || err != nil {
		return nil, errors.Join(errors.New("it is not as the API has it"), err)
	}
	if i.Final {
		return nil, nil
	}
	var all []Used
	for _, n := range i.Interfaces {
		used := Used{Interface: vm.Interface{Namespace: i.Namespace, VM: i.owner(), Name: n.Name}, MAC: n.MAC, Hostname: i.Hostname}
		for _, s := range raw.Status.Interfaces {
			if s.Name != n.Name {
				continue
			}
			for _, text := range append([]string{s.IPAddress}, s.IPAddresses...) {
				text, _, _ = strings.Cut(text, "/")
				addr, err := netip.ParseAddr(text)
				if err == nil && addr.Zone() == "" && addr.IsGlobalUnicast() && !slices.Contains(used.Addrs, addr) {
					used.Addrs = append(used.Addrs, addr)
				}
			}
		}
		if len(used.Addrs) > 0 {
			all = append(all, used)
		}
	}
	return all, nil
}
