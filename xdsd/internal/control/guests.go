package control

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/xdsd/internal/guest"
)

// guestOf is an Infra's way into a hosted cluster. It is used by one call at a time: a
// controller has one for each Infra.
type guestOf struct {
	of      model.Ref
	uid     string
	cluster *guest.Cluster

	data []byte // the kubeconfig that it was made of
	dial string

	service   types.NamespacedName // what was ensured last
	addressed time.Time            // when the Service was first seen with an address
}

// guests are the hosted clusters that Infras have something in.
type guests struct {
	live    client.Reader // of Secrets in the management cluster
	connect *guest.Connector

	mu      sync.Mutex
	byInfra map[client.ObjectKey][]*guestOf
}

// of returns an Infra's way into its hosted cluster, made anew where the kubeconfig has
// changed.
func (s *guests) of(ctx context.Context, key client.ObjectKey, cluster *model.Cluster) (*guestOf, error) {
	data, err := s.kubeconfig(ctx, cluster.Apps.Hosted)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *guestOf
	for _, g := range s.byInfra[key] {
		if g.of == cluster.Ref && g.uid == cluster.UID {
			found = g
		}
	}
	if found == nil {
		found = &guestOf{of: cluster.Ref, uid: cluster.UID}
	}
	if found.cluster != nil && bytes.Equal(found.data, data) && found.dial == cluster.Apps.Hosted.Dial {
		return found, nil
	}
	made, err := s.connect.Connect(data, cluster.Apps.Hosted.Dial)
	if err != nil {
		return nil, &guest.Fault{Reason: v1alpha1.AppsIngressKubeconfigRejected, Message: fmt.Sprintf("Secret %s: %v", cluster.Apps.Hosted.Secret, err)}
	}
	if found.cluster == nil {
		if s.byInfra == nil {
			s.byInfra = map[client.ObjectKey][]*guestOf{}
		}
		s.byInfra[key] = append(s.byInfra[key], found)
	} else {
		found.cluster.Close()
	}
	found.cluster, found.data, found.dial = made, data, cluster.Apps.Hosted.Dial
	return found, nil
}

// kubeconfig reads the administrator's.
func (s *guests) kubeconfig(ctx context.Context, access *model.HostedAccess) ([]byte, error) {
	missing := func(format string, args ...any) error {
		return &guest.Fault{Reason: v1alpha1.AppsIngressKubeconfigMissing, Message: fmt.Sprintf(format, args...)}
	}
	namespace, name, ok := strings.Cut(access.Secret, "/")
	if !ok {
		return nil, missing("the hosted cluster publishes no kubeconfig yet")
	}
	secret := &corev1.Secret{}
	switch err := s.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret); {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil, missing("Secret %s: %v", access.Secret, err)
	case err != nil:
		return nil, fmt.Errorf("reading Secret %s: %w", access.Secret, err)
	}
	data := secret.Data[access.Key]
	if len(data) == 0 {
		return nil, missing("Secret %s has no key %q", access.Secret, access.Key)
	}
	return data, nil
}

// others are the hosted clusters that an Infra has something in, but for one.
func (s *guests) others(key client.ObjectKey, own *model.Cluster) []*guestOf {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*guestOf
	for _, g := range s.byInfra[key] {
		if own == nil || g.of != own.Ref || g.uid != own.UID {
			list = append(list, g)
		}
	}
	return list
}

// drop forgets a way into a hosted cluster.
func (s *guests) drop(key client.ObjectKey, gone *guestOf) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone.cluster.Close()
	kept := s.byInfra[key][:0]
	for _, g := range s.byInfra[key] {
		if g != gone {
			kept = append(kept, g)
		}
	}
	if s.byInfra[key] = kept; len(kept) == 0 {
		delete(s.byInfra, key)
	}
}
