package kubevirt

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// infraIDLabel is on every VirtualMachineInstance of a hosted cluster.
const infraIDLabel = "hypershift.openshift.io/infra-id"

// config is what the plugin's arguments say. Two equal ones mean the same machines.
type config struct {
	// network is the network attachment definition, "namespace/name".
	network string
	// namespaces narrow what is seen, separated by commas; empty for all.
	namespaces string
	// selector narrows by labels; empty for all.
	selector            string
	kubeconfig, context string
	// snapshot keeps what is known across a restart; empty for none.
	snapshot string
}

const argumentsWanted = "network, namespace, infra-id, selector, kubeconfig, context, snapshot"

// parse reads the arguments. CoreDHCP has split them at white space, which a selector may
// hold: what follows one and is no argument of ours belongs to it.
func parse(args []string) (config, error) {
	values := map[string]string{}
	var last string
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		known := ok && slices.Contains(strings.Split(argumentsWanted, ", "), key)
		switch {
		case !known && last == "selector":
			values[last] += " " + arg
			continue
		case !known:
			return config{}, fmt.Errorf("kubevirt: %q is none of the arguments %s", arg, argumentsWanted)
		}
		if _, twice := values[key]; twice {
			return config{}, fmt.Errorf("kubevirt: %s is there twice", key)
		}
		if value == "" && key != "selector" {
			return config{}, fmt.Errorf("kubevirt: %s is empty", key)
		}
		values[key], last = value, key
	}
	return newConfig(values)
}

func newConfig(values map[string]string) (config, error) {
	c := config{
		network: values["network"], namespaces: values["namespace"], selector: strings.TrimSpace(values["selector"]),
		kubeconfig: values["kubeconfig"], context: values["context"], snapshot: values["snapshot"],
	}
	namespace, name, _ := strings.Cut(c.network, "/")
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return config{}, fmt.Errorf("kubevirt: network=%s: want the namespace/name of a network attachment definition", c.network)
	}
	if c.context != "" && c.kubeconfig == "" {
		return config{}, errors.New("kubevirt: context is of a kubeconfig: name that, too")
	}
	list := strings.Split(c.namespaces, ",")
	slices.Sort(list)
	if len(list) > 1 && list[0] == "" || len(slices.Compact(slices.Clone(list))) != len(list) {
		return config{}, fmt.Errorf("kubevirt: namespace=%s: one is empty or there twice", c.namespaces)
	}
	c.namespaces = strings.Join(list, ",")
	if id, ok := values["infra-id"]; ok {
		if _, both := values["selector"]; both {
			return config{}, errors.New("kubevirt: infra-id and selector: give one of the two")
		}
		c.selector = infraIDLabel + "=" + id
	}
	if _, err := labels.Parse(c.selector); err != nil {
		return config{}, fmt.Errorf("kubevirt: selector %q: %w", c.selector, err)
	}
	return c, nil
}

// String names what is followed.
func (c config) String() string {
	words := []string{"network " + c.network}
	if c.namespaces != "" {
		words = append(words, "namespaces "+c.namespaces)
	}
	if c.selector != "" {
		words = append(words, "labels "+c.selector)
	}
	return strings.Join(words, ", ")
}
