// Command networkpolicies enforces NetworkPolicies for the pods of a node with the controller of kube-network-policies, whose
// own command has no flag for a kubeconfig file. The command runs until it is killed.
//
//	networkpolicies --kubeconfig FILE --node NAME
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
)

func main() {
	kubeconfig, node := flag.String("kubeconfig", "", "kubeconfig file"), flag.String("node", "", "name of the node")
	flag.Parse()
	err := run(context.Background(), *kubeconfig, *node)
	fmt.Fprintln(os.Stderr, "networkpolicies:", err)
	os.Exit(1)
}

// run runs the controller until it ends.
func run(ctx context.Context, kubeconfig, node string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	watches := informers.NewSharedInformerFactory(client, 0)
	controller, err := networkpolicy.NewController(client, watches.Networking().V1().NetworkPolicies(), watches.Core().V1().Namespaces(), watches.Core().V1().Pods(),
		nil, nil, nil, nil, networkpolicy.Config{NodeName: node}) // the interfaces that are nil are those of AdminNetworkPolicies
	if err != nil {
		return err
	}
	watches.Start(ctx.Done())
	return controller.Run(ctx)
}
