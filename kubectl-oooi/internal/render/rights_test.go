package render_test

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/test/lab"
)

// grantedRights returns the permissions of each ServiceAccount in the example as rows of a Markdown table: ServiceAccount,
// namespace, resources and verbs.
func grantedRights(t *testing.T, objects []*unstructured.Unstructured) []string {
	t.Helper()
	type role struct{ kind, namespace, name string }
	rules := map[role][]rbacv1.PolicyRule{}
	for _, r := range all[rbacv1.Role](t, objects, "Role") {
		rules[role{"Role", r.Namespace, r.Name}] = r.Rules
	}
	for _, r := range all[rbacv1.ClusterRole](t, objects, "ClusterRole") {
		rules[role{"ClusterRole", "", r.Name}] = r.Rules
	}
	rows := map[string][]string{}
	grant := func(where string, of role, subjects []rbacv1.Subject) {
		for _, s := range subjects {
			if s.Kind != rbacv1.ServiceAccountKind || rules[of] == nil {
				t.Errorf("%v is bound to %v", of, s)
			}
			for _, rule := range rules[of] {
				key := fmt.Sprintf("| `%s` | %s | %%s | %s |", s.Name, where, strings.Join(rule.Verbs, ", "))
				for _, resource := range rule.Resources {
					rows[key] = append(rows[key], strings.Join(append([]string{"`" + resource + "`"}, rule.ResourceNames...), " "))
				}
			}
		}
		delete(rules, of)
	}
	for _, b := range all[rbacv1.RoleBinding](t, objects, "RoleBinding") {
		grant("`"+b.Namespace+"`", role{b.RoleRef.Kind, b.Namespace, b.RoleRef.Name}, b.Subjects)
	}
	for _, b := range all[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding") {
		grant("all namespaces", role{b.RoleRef.Kind, "", b.RoleRef.Name}, b.Subjects)
	}
	for unbound := range rules {
		t.Errorf("%v has no binding", unbound)
	}
	var table []string
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		slices.Sort(rows[key])
		table = append(table, fmt.Sprintf(key, strings.Join(rows[key], ", ")))
	}
	return table
}

// TestRightsTableIsComplete compares the table in docs/reference/permissions.md with the Roles of the example.
func TestRightsTableIsComplete(t *testing.T) {
	text := lab.ReadFile(t, "docs", "reference", "permissions.md")
	_, rest, _ := strings.Cut(string(text), "\n| ServiceAccount | namespace | resources | verbs |\n|---|---|---|---|\n")
	documented, _, _ := strings.Cut(rest, "\n\n")
	if want := strings.Join(grantedRights(t, example(t)), "\n"); documented != want {
		t.Errorf("docs/reference/permissions.md has\n%s\nsetup grants\n%s", documented, want)
	}
}

// TestDocumentedTestsExist checks that the tests named in the documents exist.
func TestDocumentedTestsExist(t *testing.T) {
	root, err := lab.Root()
	lab.Must(t, err)
	exists := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && strings.HasPrefix(entry.Name(), ".") {
			return cmp.Or(err, fs.SkipDir)
		}
		if entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, found := range declared.FindAllSubmatch(text, -1) {
			exists[string(found[1])] = true
		}
		return err
	})
	lab.Must(t, err)
	for _, name := range []string{
		"reference/floating-address.md", "reference/measurements.md", "reference/security-tests.md",
	} {
		text, err := os.ReadFile(filepath.Join(root, "docs", name))
		lab.Must(t, err)
		named := regexp.MustCompile("`(Test[A-Z]\\w+)`").FindAllSubmatch(text, -1)
		if len(named) == 0 {
			t.Errorf("docs/%s names no test", name)
		}
		for _, found := range named {
			if !exists[string(found[1])] {
				t.Errorf("docs/%s names %s, which does not exist", name, found[1])
			}
		}
	}
}

func TestMachineNetworkConfig(t *testing.T) {
	nad := types.NamespacedName{Namespace: "clusters", Name: "vlan100"}
	for text, want := range map[string]string{
		"bridge=br-vlan100":                 `{"bridge":"br-vlan100","cniVersion":"0.3.1","name":"vlan100","type":"bridge"}`,
		"bridge=br1,vlan=100,mtu=9000":      `{"bridge":"br1","cniVersion":"0.3.1","mtu":9000,"name":"vlan100","type":"bridge","vlan":100}`,
		"macvlan=eth1.100,mtu=1500":         `{"cniVersion":"0.3.1","master":"eth1.100","mode":"bridge","mtu":1500,"name":"vlan100","type":"macvlan"}`,
		"localnet=physnet1,vlan=100":        `{"cniVersion":"0.3.1","name":"clusters-vlan100","netAttachDefName":"clusters/vlan100","physicalNetworkName":"physnet1","topology":"localnet","type":"ovn-k8s-cni-overlay","vlanID":100}`,
		"localnet=physnet1,mtu=1400,vlan=1": `{"cniVersion":"0.3.1","mtu":1400,"name":"clusters-vlan100","netAttachDefName":"clusters/vlan100","physicalNetworkName":"physnet1","topology":"localnet","type":"ovn-k8s-cni-overlay","vlanID":1}`,
	} {
		network, err := render.ParseMachineNetwork(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, err := network.Config(nad)
		if err != nil || got != want {
			t.Errorf("%s: got %s (%v), want %s", text, got, err, want)
		}
		if ipam, err := cni.IPAM(got); ipam != "" || err != nil {
			t.Errorf("%s: the configuration assigns addresses by %q (%v)", text, ipam, err)
		}
	}
}
