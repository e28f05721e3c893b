package model

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestIsolationRejectsReferences(t *testing.T) {
	var refs []AttachmentRef
	for _, network := range []string{"vlan", "vms/vlan", "infras/vlan", "default/vlan", "openshift-cnv/vlan"} {
		refs = append(refs, NewAttachmentRef(Ref{Kind: "NodePool", Namespace: "infras", Name: "workers"}, "vms", network))
	}
	const isolated = `{"namespaceIsolation": true`
	for _, tc := range []struct {
		name, config string
		want         []string
	}{
		{"default", `{"type": "multus"}`, nil},
		{"invalid", isolated, nil},
		{"isolated", isolated + `}`, []string{"infras/vlan", "openshift-cnv/vlan"}},
		{"no global namespace", isolated + `, "globalNamespaces": ""}`, []string{"infras/vlan", "openshift-cnv/vlan"}},
		{"another global namespace", isolated + `, "globalNamespaces": "infras"}`, []string{"default/vlan", "openshift-cnv/vlan"}},
		{"several global namespaces", isolated + `, "globalNamespaces": "default, infras"}`, []string{"openshift-cnv/vlan"}},
		{"OpenShift", OpenShiftIsolation.String(), []string{"infras/vlan"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, r := range ParseIsolation(tc.config).Rejected(refs) {
				got = append(got, r.Attachment)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("rejected networks (-want +got):\n%s", diff)
			}
		})
	}
}
