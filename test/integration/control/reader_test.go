package control_test

import (
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// readerSecret is the Secret that control makes beside the Infra, when it is there.
func (n *tenant) readerSecret() *corev1.Secret {
	n.Helper()
	secret := &corev1.Secret{}
	await(n.T, "the reader's Secret", func() string {
		if err := n.client.Get(n.Context(), n.key("demo-apps-reader"), secret); err != nil {
			return err.Error()
		}
		return ""
	})
	return secret
}

// reader is a client with the credentials in it.
func (n *tenant) reader() kubernetes.Interface {
	n.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(n.readerSecret().Data["kubeconfig"])
	if err != nil {
		n.Fatal(err)
	}
	config.Host = n.hosted.ServerURL() // by its address, which nothing resolves the name to
	config.ServerName = "api.demo.example.com"
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		n.Fatal(err)
	}
	return client
}

// may asks the hosted cluster whether the client may do something there.
func (n *tenant) may(client kubernetes.Interface, verb, group, resource, namespace, name string) bool {
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

// resources is everything that the hosted cluster serves.
func (n *tenant) resources() []resource {
	n.Helper()
	config := rest.CopyConfig(n.hosted.RESTConfig())
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
