package setup

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// saysMore reports whether a ProxyServer has anything that setup would not have written: routes
// of its own, an image. That has to stay.
func (k *Known) saysMore(server *v1alpha1.ProxyServer) bool {
	own := render.OwnProxyServer(k.Infra)
	own.Spec.NetworkConfig.ServerIP = server.Spec.NetworkConfig.ServerIP
	return !equality.Semantic.DeepEqual(own.Spec, server.Spec)
}

// sameAddress gives the ProxyServer in the cluster the Infra's address, which may be another by
// now. Else it is kept.
func (k *Known) sameAddress() error {
	proxy := k.Infra.Spec.InfraComponents.Proxy
	if k.ProxyServer == nil {
		return nil
	}
	if proxy == nil || proxy.ServerIP == "" || same(proxy.ServerIP, k.ProxyServer.Spec.NetworkConfig.ServerIP) {
		k.Kept = append(k.Kept, k.WrittenProxyServer.GetKind())
		return nil
	}
	k.ProxyServer.Spec.NetworkConfig.ServerIP = proxy.ServerIP
	if err := unstructured.SetNestedField(k.WrittenProxyServer.Object, proxy.ServerIP, "spec", "networkConfig", "serverIP"); err != nil {
		return fmt.Errorf("ProxyServer %s/%s, spec.networkConfig: %w", k.ProxyServer.Namespace, k.ProxyServer.Name, err)
	}
	return nil
}

// same reports whether two texts are the same address, with or without a length.
func same(a, b string) bool {
	one, err1 := v1alpha1.ParseAddress(a)
	other, err2 := v1alpha1.ParseAddress(b)
	return err1 == nil && err2 == nil && one == other
}
