package kubevirt

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/densityops/oooi/internal/objects"
)

// config contains the plugin's arguments. Equal configs select the same VMs.
type config struct {
	// network is the NetworkAttachmentDefinition, "namespace/name".
	network string
	// namespaces restricts the namespaces, separated by commas; empty for all.
	namespaces string
	// selector restricts the VirtualMachineInstances by labels; empty for all.
	selector            string
	kubeconfig, context string
	// snapshot is the path of the snapshot file; empty for none.
	snapshot string
	// testClients is the Infra, "namespace/name", whose registered test clients are served; empty for none.
	testClients string
	// hosts are the arguments host, separated by spaces. They are valid.
	hosts string
	// withoutVMs is set if only hosts and test clients are served.
	withoutVMs bool
}

const argumentNames = "network, namespace, infra-id, selector, kubeconfig, context, snapshot, test-clients, host, vms"

// parse parses the arguments. CoreDHCP splits them at white space, which a selector may contain: words after
// selector= that are not known arguments are part of the selector.
func parse(args []string) (config, error) {
	values := map[string]string{}
	var last string
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		known := ok && slices.Contains(strings.Split(argumentNames, ", "), key)
		switch {
		case !known && last == "selector":
			values[last] += " " + arg
			continue
		case !known:
			return config{}, fmt.Errorf("kubevirt: unknown argument %q; expected one of %s", arg, argumentNames)
		}
		if before := values[key]; key == "host" && value != "" && before != "" {
			value = before + " " + value
		} else if _, twice := values[key]; twice {
			return config{}, fmt.Errorf("kubevirt: duplicate argument %s; remove one", key)
		}
		if value == "" && key != "selector" {
			return config{}, fmt.Errorf("kubevirt: %s is empty; set a value or remove it", key)
		}
		values[key], last = value, key
	}
	return newConfig(values)
}

func newConfig(values map[string]string) (config, error) {
	c := config{
		network: values["network"], namespaces: values["namespace"], selector: strings.TrimSpace(values["selector"]),
		kubeconfig: values["kubeconfig"], context: values["context"], snapshot: values["snapshot"],
		testClients: values["test-clients"], hosts: values["host"],
	}
	namespace, name, _ := strings.Cut(c.network, "/")
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return config{}, fmt.Errorf("kubevirt: network=%s: must be the namespace/name of a NetworkAttachmentDefinition", c.network)
	}
	if of, infra, _ := strings.Cut(c.testClients, "/"); c.testClients != "" && (of == "" || infra == "" || strings.Contains(infra, "/")) {
		return config{}, fmt.Errorf("kubevirt: test-clients=%s: must be the namespace/name of an Infra", c.testClients)
	}
	if _, err := parseHosts(c.hosts); err != nil {
		return config{}, err
	}
	switch vms := values["vms"]; vms {
	case "", "true":
	case "false":
		c.withoutVMs = true
	default:
		return config{}, fmt.Errorf("kubevirt: vms=%s: must be true or false", vms)
	}
	if c.context != "" && c.kubeconfig == "" {
		return config{}, errors.New("kubevirt: context requires kubeconfig")
	}
	list := strings.Split(c.namespaces, ",")
	slices.Sort(list)
	if len(list) > 1 && list[0] == "" || len(slices.Compact(slices.Clone(list))) != len(list) {
		return config{}, fmt.Errorf("kubevirt: namespace=%s: empty or duplicate namespace; remove it", c.namespaces)
	}
	c.namespaces = strings.Join(list, ",")
	if id, ok := values["infra-id"]; ok {
		if _, both := values["selector"]; both {
			return config{}, errors.New("kubevirt: infra-id and selector are mutually exclusive; remove one")
		}
		c.selector = objects.LabelInfraID + "=" + id
	}
	if _, err := labels.Parse(c.selector); err != nil {
		return config{}, fmt.Errorf("kubevirt: selector %q: %w", c.selector, err)
	}
	return c, nil
}

// String describes the scope of VMs. It is stored in the snapshot file.
func (c config) String() string {
	words := []string{"network " + c.network}
	if c.withoutVMs {
		words = append(words, "without VMs")
	}
	if c.namespaces != "" {
		words = append(words, "namespaces "+c.namespaces)
	}
	if c.selector != "" {
		words = append(words, "labels "+c.selector)
	}
	return strings.Join(words, ", ")
}
