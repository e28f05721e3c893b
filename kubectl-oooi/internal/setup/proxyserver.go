package setup

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// hasCustomSpec reports whether a ProxyServer has fields that setup does not render, such as backends or an image.
// Setup keeps these.
func (k *Known) hasCustomSpec(server *v1alpha1.ProxyServer) bool {
	own := render.OwnProxyServer(k.Infra)
	own.Spec.NetworkConfig.ServerIP = server.Spec.NetworkConfig.ServerIP
	return !equality.Semantic.DeepEqual(own.Spec, server.Spec)
}

// updateServerIP sets the address of a ProxyServer from the cluster to the Infra's if they differ. Otherwise it marks
// the ProxyServer as kept.
func (k *Known) updateServerIP() error {
	proxy := k.Infra.Spec.InfraComponents.Proxy
	if k.ProxyServer == nil {
		return nil
	}
	if proxy == nil || proxy.ServerIP == "" || sameAddress(proxy.ServerIP, k.ProxyServer.Spec.NetworkConfig.ServerIP) {
		k.Kept = append(k.Kept, k.WrittenProxyServer.GetKind())
		return nil
	}
	k.ProxyServer.Spec.NetworkConfig.ServerIP = proxy.ServerIP
	if err := unstructured.SetNestedField(k.WrittenProxyServer.Object, proxy.ServerIP, "spec", "networkConfig", "serverIP"); err != nil {
		return fmt.Errorf("ProxyServer %s/%s, spec.networkConfig: %w", k.ProxyServer.Namespace, k.ProxyServer.Name, err)
	}
	return nil
}

// sameAddress reports whether two texts are the same address, with or without a prefix length.
func sameAddress(a, b string) bool {
	one, err1 := v1alpha1.ParseAddress(a)
	other, err2 := v1alpha1.ParseAddress(b)
	return err1 == nil && err2 == nil && one == other
}
