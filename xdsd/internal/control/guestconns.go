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

// guestConn is the connection of an Infra to a hosted cluster. It is not safe for concurrent use; a controller
// reconciles an Infra once at a time.
type guestConn struct {
	ref     model.Ref
	uid     string
	cluster *guest.Cluster

	data []byte // kubeconfig of cluster
	dial string

	service      types.NamespacedName // the Service ensured last; zero if unknown
	addressSince time.Time            // when the Service was first seen with an address; zero without one
}

// guestConns are the connections of Infras to the hosted clusters in which the Infras may have objects.
type guestConns struct {
	live    client.Reader // reads Secrets of the management cluster
	connect *guest.Connector

	mu      sync.Mutex
	byInfra map[client.ObjectKey][]*guestConn
}

// get returns the connection of an Infra to its hosted cluster. It connects again if the kubeconfig or the address
// to dial has changed.
func (s *guestConns) get(ctx context.Context, key client.ObjectKey, cluster *model.Cluster) (*guestConn, error) {
	data, err := s.kubeconfig(ctx, cluster.Apps.Hosted)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *guestConn
	for _, g := range s.byInfra[key] {
		if g.ref == cluster.Ref && g.uid == cluster.UID {
			found = g
		}
	}
	if found == nil {
		found = &guestConn{ref: cluster.Ref, uid: cluster.UID}
	}
	if found.cluster != nil && bytes.Equal(found.data, data) && found.dial == cluster.Apps.Hosted.Dial {
		return found, nil
	}
	connected, err := s.connect.Connect(data, cluster.Apps.Hosted.Dial)
	if err != nil {
		return nil, &guest.Fault{Reason: v1alpha1.AppsIngressKubeconfigRejected, Message: fmt.Sprintf("Secret %s: %v", cluster.Apps.Hosted.Secret, err)}
	}
	if found.cluster == nil {
		if s.byInfra == nil {
			s.byInfra = map[client.ObjectKey][]*guestConn{}
		}
		s.byInfra[key] = append(s.byInfra[key], found)
	} else {
		found.cluster.Close()
	}
	found.cluster, found.data, found.dial = connected, data, cluster.Apps.Hosted.Dial
	return found, nil
}

// kubeconfig returns the admin kubeconfig of a hosted cluster.
func (s *guestConns) kubeconfig(ctx context.Context, access *model.HostedAccess) ([]byte, error) {
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

// others returns the connections of an Infra, except that to own, which may be nil.
func (s *guestConns) others(key client.ObjectKey, own *model.Cluster) []*guestConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*guestConn
	for _, g := range s.byInfra[key] {
		if own == nil || g.ref != own.Ref || g.uid != own.UID {
			list = append(list, g)
		}
	}
	return list
}

// drop closes and removes a connection.
func (s *guestConns) drop(key client.ObjectKey, conn *guestConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	conn.cluster.Close()
	kept := s.byInfra[key][:0]
	for _, g := range s.byInfra[key] {
		if g != conn {
			kept = append(kept, g)
		}
	}
	if s.byInfra[key] = kept; len(kept) == 0 {
		delete(s.byInfra, key)
	}
}
