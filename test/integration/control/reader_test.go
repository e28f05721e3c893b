package control_test

import (
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/densityops/oooi/test/integration/internal/tenant"
	"github.com/densityops/oooi/test/lab"
)

// readerSecret waits for the Secret that control creates beside the Infra, and returns it.
func readerSecret(n *tenant.Tenant) *corev1.Secret {
	n.Helper()
	secret := &corev1.Secret{}
	lab.Await(n.T, "the reader's Secret", func() string {
		if err := n.Client.Get(n.Context(), n.Key("demo-apps-reader"), secret); err != nil {
			return err.Error()
		}
		return ""
	})
	return secret
}

// readerClient returns a client of the hosted cluster with the credentials of the reader's Secret.
func readerClient(n *tenant.Tenant) kubernetes.Interface {
	n.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(readerSecret(n).Data["kubeconfig"])
	if err != nil {
		n.Fatal(err)
	}
	config.Host = n.Hosted.ServerURL() // the name in the kubeconfig does not resolve
	config.ServerName = tenant.HostedName
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		n.Fatal(err)
	}
	return client
}

// allowed reports whether the hosted cluster authorizes the client for a request.
func allowed(n *tenant.Tenant, client kubernetes.Interface, verb, group, resource, namespace, name string) bool {
	n.Helper()
	resource, sub, _ := strings.Cut(resource, "/")
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Subresource: sub, Namespace: namespace, Name: name},
	}}
	if err := client.AuthorizationV1().RESTClient().Post().Resource("selfsubjectaccessreviews").Body(review).Do(n.Context()).Into(review); err != nil {
		n.Fatal(err)
	}
	return review.Status.Allowed
}

type resource struct{ group, name string }

// servedResources returns all resources and subresources that the hosted cluster serves.
func servedResources(n *tenant.Tenant) []resource {
	n.Helper()
	config := rest.CopyConfig(n.Hosted.RESTConfig())
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		n.Fatal(err)
	}
	_, lists, err := disco.ServerGroupsAndResources()
	if err != nil {
		n.Fatal(err)
	}
	var all []resource
	for _, list := range lists {
		group, _, found := strings.Cut(list.GroupVersion, "/")
		if !found {
			group = ""
		}
		for _, r := range list.APIResources {
			all = append(all, resource{group, r.Name})
		}
	}
	return all
}
