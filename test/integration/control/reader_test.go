package control_test

import (
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
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
	lab.Must(n, err)
	config.Host = n.Hosted.ServerURL() // the name in the kubeconfig does not resolve
	config.ServerName = tenant.HostedName
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	lab.Must(n, err)
	return client
}

// rulesIn returns what the client may do in a namespace, or everywhere, except permissions of every user: review their permissions and
// identity, and read trust bundles, which are public.
func rulesIn(n *tenant.Tenant, client kubernetes.Interface, namespace string) []authorizationv1.ResourceRule {
	n.Helper()
	review, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(n.Context(),
		&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}, metav1.CreateOptions{})
	lab.Must(n, err)
	if review.Status.Incomplete {
		n.Fatalf("the rules are incomplete: %s", review.Status.EvaluationError)
	}
	return slices.DeleteFunc(review.Status.ResourceRules, func(r authorizationv1.ResourceRule) bool {
		return slices.Contains([]string{"authorization.k8s.io", "authentication.k8s.io"}, r.APIGroups[0]) || slices.Equal(r.Resources, []string{"clustertrustbundles"})
	})
}
