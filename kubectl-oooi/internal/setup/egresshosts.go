package setup

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/documents"
)

// EgressHosts is a list of names in a file, which setup adds to spec.egress.hosts of the Infra or ProxyServer. The kind exists only
// in files, not in the cluster.
type EgressHosts struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Hosts []string `json:"hosts"`
	} `json:"spec"`
}

// egressHostsKind is the kind of EgressHosts.
var egressHostsKind = v1alpha1.SchemeGroupVersion.WithKind("EgressHosts")

// addEgressHosts adds the names of a document to those that mergeEgressHosts merges.
func (k *Known) addEgressHosts(u *documents.Object) error {
	list := &EgressHosts{}
	if err := u.Strict(list); err != nil {
		return fmt.Errorf("in EgressHosts %s: %w", u.GetName(), err)
	}
	if u.GroupVersionKind() != egressHostsKind {
		return fmt.Errorf("EgressHosts %s: unsupported version %s; use %s", u.GetName(), u.GetAPIVersion(), egressHostsKind.GroupVersion())
	}
	if len(list.Spec.Hosts) == 0 {
		return fmt.Errorf("EgressHosts %s: spec.hosts must list names", u.GetName())
	}
	k.egressFile = cmp.Or(k.egressFile, u.File)
	for i, host := range list.Spec.Hosts {
		if err := model.CheckEgressHost(host); err != nil {
			return fmt.Errorf("in EgressHosts %s: spec.hosts[%d]: %w", u.GetName(), i, err)
		}
		if !slices.Contains(k.egressHosts, host) {
			k.egressHosts = append(k.egressHosts, host)
		}
	}
	return nil
}

// mergeEgressHosts adds the names of all EgressHosts to an Infra or ProxyServer, as it was written and with defaults, unless it
// already lists them.
func (k *Known) mergeEgressHosts(written *unstructured.Unstructured, in **v1alpha1.Egress) error {
	if len(k.egressHosts) == 0 {
		return nil
	}
	if *in == nil {
		*in = &v1alpha1.Egress{}
	}
	path := []string{"spec", "egress", "hosts"}
	all, _, err := unstructured.NestedStringSlice(written.Object, path...)
	if err != nil {
		return fmt.Errorf("%s %s: %w", written.GetKind(), written.GetName(), err)
	}
	for _, host := range k.egressHosts {
		if !slices.Contains(all, host) {
			all = append(all, host)
			(*in).Hosts = append((*in).Hosts, v1alpha1.EgressHost(host))
		}
	}
	return unstructured.SetNestedStringSlice(written.Object, all, path...)
}

// mergeIntoFiles adds the names of all EgressHosts to the files' Infra or, if the files lack an Infra or only their ProxyServer has
// egress, to the ProxyServer. For an Infra that flags describe, describe adds the names.
func (k *Known) mergeIntoFiles() error {
	switch server := k.ProxyServer; {
	case k.described != nil:
		return nil
	case k.Infra != nil && (k.Infra.Spec.Egress != nil || server == nil || server.Spec.Egress == nil):
		return k.mergeEgressHosts(k.Written, &k.Infra.Spec.Egress)
	case server != nil:
		return k.mergeEgressHosts(k.WrittenProxyServer, &server.Spec.Egress)
	case len(k.egressHosts) > 0:
		return fmt.Errorf("%s: no Infra or ProxyServer to add the names to; specify its file with another -f, or the name of the Infra as "+
			"argument", k.egressFile)
	}
	return nil
}
