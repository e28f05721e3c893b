package control

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/xdsd/internal/guest"
)

// hostedID identifies a hosted cluster. With the UID, a cluster is not taken for a deleted one with the same name.
type hostedID struct {
	model.Ref

	uid string
}

func idOf(c *model.Cluster) hostedID { return hostedID{c.Ref, c.UID} }

// hostedCluster is a client of a hosted cluster with an admin kubeconfig.
type hostedCluster struct {
	*guest.Cluster

	data []byte // the kubeconfig
	dial string
}

// hostedClusters have one client for each hosted cluster. They are safe for concurrent use.
type hostedClusters struct {
	live client.Reader // reads Secrets of the management cluster

	mu  sync.Mutex
	all map[hostedID]*hostedCluster
}

func newHostedClusters(live client.Reader) *hostedClusters {
	return &hostedClusters{live: live, all: map[hostedID]*hostedCluster{}}
}

// get returns the client of a hosted cluster. It connects again if the kubeconfig or the address to dial has changed.
func (s *hostedClusters) get(ctx context.Context, id hostedID, access *model.HostedAccess) (*hostedCluster, error) {
	data, err := s.kubeconfig(ctx, access)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.all[id]
	if h != nil && bytes.Equal(h.data, data) && h.dial == access.Dial {
		return h, nil
	}
	connected, err := guest.Connect(data, access.Dial)
	if err != nil {
		return nil, &guest.Fault{Reason: v1alpha1.AppsIngressKubeconfigRejected, Message: fmt.Sprintf("Secret %s: %v", access.Secret, err)}
	}
	if h != nil {
		h.Close()
	}
	s.all[id] = &hostedCluster{connected, data, access.Dial}
	return s.all[id], nil
}

// kubeconfig returns the admin kubeconfig of a hosted cluster.
func (s *hostedClusters) kubeconfig(ctx context.Context, access *model.HostedAccess) ([]byte, error) {
	missing := func(format string, args ...any) error {
		return &guest.Fault{Reason: v1alpha1.AppsIngressKubeconfigMissing, Message: fmt.Sprintf(format, args...)}
	}
	namespace, name, ok := strings.Cut(access.Secret, "/")
	if !ok {
		return nil, missing("HyperShift has not published the kubeconfig of the hosted cluster yet")
	}
	secret := &corev1.Secret{}
	switch err := s.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret); {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil, missing("reading Secret %s: %v", access.Secret, err)
	case err != nil:
		return nil, fmt.Errorf("reading Secret %s: %w", access.Secret, err)
	}
	data := secret.Data[access.Key]
	if len(data) == 0 {
		return nil, missing("Secret %s has no key %q", access.Secret, access.Key)
	}
	return data, nil
}

// drop closes the client of a hosted cluster that no Infra uses. A later get connects again.
func (s *hostedClusters) drop(id hostedID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.all[id]; h != nil {
		h.Close()
		delete(s.all, id)
	}
}
