package guest

import (
	"bytes"
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/kubeconfig"
)

// tokenLifetime is the requested lifetime of a token; the API server may grant less.
const tokenLifetime = 24 * time.Hour

// Reader has the credentials of the reader, a ServiceAccount that may read only the apps Service.
type Reader struct {
	// Kubeconfig is a kubeconfig with the server and the CA of the admin kubeconfig, and a token of the ServiceAccount.
	Kubeconfig []byte
	// Account is the UID of the ServiceAccount. The token is invalid once it is deleted.
	Account types.UID
	// Issued and Expires are when the token was requested and when it expires.
	Issued, Expires time.Time
}

// RenewalTime returns when to renew a token: after two thirds of its lifetime.
func RenewalTime(issued, expires time.Time) time.Time { return issued.Add(expires.Sub(issued) * 2 / 3) }

// readerName is the name of the reader's ServiceAccount, Role and RoleBinding.
func (w *Wanted) readerName() string { return w.Service.Name + "-reader" }

// EnsureReader applies the reader's ServiceAccount, Role and RoleBinding, and returns the UID of the ServiceAccount.
// If a ServiceAccount with that name exists and does not belong to the Infra, it changes nothing and returns an
// error. Every error is a *Fault.
func (c *Cluster) EnsureReader(ctx context.Context, w *Wanted) (types.UID, error) {
	name, namespace := w.readerName(), w.Service.Namespace
	account := &corev1.ServiceAccount{}
	key := types.NamespacedName{Namespace: namespace, Name: name}
	switch err := c.client.Get(ctx, key, account); {
	case client.IgnoreNotFound(err) != nil:
		return "", apiFault(err, "reading ServiceAccount "+key.String())
	case err == nil && account.Annotations[v1alpha1.AnnotationInfra] != w.Infra.String():
		return "", &Fault{v1alpha1.AppsIngressServiceForeign,
			fmt.Sprintf("ServiceAccount %s exists and does not belong to Infra %s: delete it, or set another spec.appsIngress.service.name", key, w.Infra)}
	}
	labels, annotations := w.labels(), w.annotations()
	for _, object := range []struct {
		what  string
		apply func() error
	}{
		{"ServiceAccount", func() error {
			o := corev1ac.ServiceAccount(name, namespace).WithLabels(labels).WithAnnotations(annotations).WithAutomountServiceAccountToken(false)
			return c.client.Apply(ctx, o, client.FieldOwner(fieldManager), client.ForceOwnership)
		}},
		{"Role", func() error {
			o := rbacv1ac.Role(name, namespace).WithLabels(labels).WithAnnotations(annotations).
				WithRules(rbacv1ac.PolicyRule().WithAPIGroups("").WithResources("services").WithResourceNames(w.Service.Name).WithVerbs("list", "watch"))
			return c.client.Apply(ctx, o, client.FieldOwner(fieldManager), client.ForceOwnership)
		}},
		{"RoleBinding", func() error {
			o := rbacv1ac.RoleBinding(name, namespace).WithLabels(labels).WithAnnotations(annotations).
				WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("Role").WithName(name)).
				WithSubjects(rbacv1ac.Subject().WithKind(rbacv1.ServiceAccountKind).WithName(name).WithNamespace(namespace))
			return c.client.Apply(ctx, o, client.FieldOwner(fieldManager), client.ForceOwnership)
		}},
	} {
		if err := object.apply(); err != nil {
			return "", apiFault(err, "applying the reader's "+object.what+" "+key.String())
		}
	}
	if err := c.client.Get(ctx, key, account); err != nil {
		return "", apiFault(err, "reading ServiceAccount "+key.String())
	}
	return account.UID, nil
}

// NewReader requests a token for the reader's ServiceAccount and returns its credentials. account, the UID that
// EnsureReader returned, and now, the time of the request, become Reader.Account and Reader.Issued.
func (c *Cluster) NewReader(ctx context.Context, w *Wanted, account types.UID, now time.Time) (*Reader, error) {
	seconds := int64(tokenLifetime / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	owner := &corev1.ServiceAccount{}
	owner.Namespace, owner.Name = w.Service.Namespace, w.readerName()
	if err := c.client.SubResource("token").Create(ctx, owner, request); err != nil {
		return nil, apiFault(err, "requesting a token of ServiceAccount "+client.ObjectKeyFromObject(owner).String())
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["hosted"] = &clientcmdapi.Cluster{Server: c.config.Host, CertificateAuthorityData: c.config.CAData}
	config.AuthInfos["reader"] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	config.Contexts["reader"] = &clientcmdapi.Context{Cluster: "hosted", AuthInfo: "reader", Namespace: w.Service.Namespace}
	config.CurrentContext = "reader"
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encoding the reader's kubeconfig: %w", err)
	}
	return &Reader{Kubeconfig: data, Account: account, Issued: now, Expires: request.Status.ExpirationTimestamp.Time}, nil
}

// Accepts reports whether a kubeconfig of the reader still connects to this cluster and authenticates as the
// reader. If the token cannot be reviewed, it reports true.
func (c *Cluster) Accepts(ctx context.Context, w *Wanted, data []byte) bool {
	config, err := kubeconfig.Restricted(data)
	if err != nil || config.Host != c.config.Host || !bytes.Equal(config.CAData, c.config.CAData) {
		return false
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: config.BearerToken}}
	if err := c.client.Create(ctx, review); err != nil {
		return true
	}
	user := "system:serviceaccount:" + w.Service.Namespace + ":" + w.readerName()
	return review.Status.Authenticated && review.Status.User.Username == user
}
