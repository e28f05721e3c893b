package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/kubeconfig"
)

// tokenLifetime is the requested lifetime of a token; the API server may grant less.
const tokenLifetime = 24 * time.Hour

// RenewalTime returns when to renew a token: after two thirds of its lifetime.
func RenewalTime(issued, expires time.Time) time.Time { return issued.Add(expires.Sub(issued) * 2 / 3) }

// readerName is the name of the reader's ServiceAccount, Role and RoleBinding.
func (w *Wanted) readerName() string { return w.Service.Name + "-reader" }

// EnsureReader applies the reader, a ServiceAccount that may read only the apps Service, with its Role and RoleBinding. It
// returns the UID of the ServiceAccount. If an object with that name exists and does not belong to the Infra, it does not change it and returns an error. Every
// error is a *Fault.
func (c *Cluster) EnsureReader(ctx context.Context, w *Wanted) (types.UID, error) {
	name, namespace := w.readerName(), w.Service.Namespace
	account := object(kindServiceAccount, namespace, name, map[string]any{"automountServiceAccountToken": false})
	role := object(kindRole, namespace, name, map[string]any{"rules": []any{map[string]any{
		"apiGroups": []any{""}, "resources": []any{"services"}, "resourceNames": []any{w.Service.Name}, "verbs": []any{"list", "watch"},
	}}})
	binding := object(kindRoleBinding, namespace, name, map[string]any{
		"roleRef":  map[string]any{"apiGroup": rbacv1.GroupName, "kind": "Role", "name": name},
		"subjects": []any{map[string]any{"kind": rbacv1.ServiceAccountKind, "name": name, "namespace": namespace}},
	})
	for _, o := range []*unstructured.Unstructured{account, role, binding} {
		err := c.ensure(ctx, w, o)
		if errors.Is(err, errForeign) {
			return "", &Fault{v1alpha1.AppsIngressServiceForeign, fmt.Sprintf("%v; delete it, or set another spec.appsIngress.service.name", err)}
		}
		if err != nil {
			return "", apiFault(err)
		}
	}
	return account.GetUID(), nil
}

// NewReader requests a token for the reader's ServiceAccount. It returns a kubeconfig with the server and the CA of the admin
// kubeconfig and this token, and when to renew it.
func (c *Cluster) NewReader(ctx context.Context, w *Wanted) (data []byte, renewal time.Time, err error) {
	seconds, now := int64(tokenLifetime/time.Second), time.Now()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	owner := &corev1.ServiceAccount{}
	owner.Namespace, owner.Name = w.Service.Namespace, w.readerName()
	if err := c.client.SubResource("token").Create(ctx, owner, request); err != nil {
		return nil, renewal, apiFault(fmt.Errorf("requesting a token of ServiceAccount %s: %w", client.ObjectKeyFromObject(owner), err))
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["hosted"] = &clientcmdapi.Cluster{Server: c.config.Host, CertificateAuthorityData: c.config.CAData}
	config.AuthInfos["reader"] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	config.Contexts["reader"] = &clientcmdapi.Context{Cluster: "hosted", AuthInfo: "reader", Namespace: w.Service.Namespace}
	config.CurrentContext = "reader"
	if data, err = clientcmd.Write(*config); err != nil {
		return nil, renewal, fmt.Errorf("encoding the reader's kubeconfig: %w", err)
	}
	return data, RenewalTime(now, request.Status.ExpirationTimestamp.Time), nil
}

// Accepts reports whether a kubeconfig of the reader still connects to this cluster and authenticates as the
// reader, whose ServiceAccount has a UID. If the token cannot be reviewed, it reports true.
func (c *Cluster) Accepts(ctx context.Context, account types.UID, data []byte) bool {
	config, err := kubeconfig.Restricted(data)
	if err != nil || config.Host != c.config.Host || !bytes.Equal(config.CAData, c.config.CAData) {
		return false
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: config.BearerToken}}
	if err := c.client.Create(ctx, review); err != nil {
		return true
	}
	return review.Status.Authenticated && review.Status.User.UID == string(account)
}
