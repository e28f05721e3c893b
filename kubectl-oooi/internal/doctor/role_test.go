package doctor

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// TestRoleMatchesReads compares manifests/doctor with the Reads of the checks.
func TestRoleMatchesReads(t *testing.T) {
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(Role(orderedChecks(t)))
	if err != nil {
		t.Fatal(err)
	}
	const head = "# Exactly the rights that the checks of 'kubectl oooi doctor' use. Generated from the checks by 'make golden'.\n"
	folder := filepath.Join(root, "manifests", "doctor")
	golden.Check(t, filepath.Join(folder, "clusterrole.yaml"), head+string(text))
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	if objects := built.Resources(); len(objects) != 1 || objects[0].GetName() != RoleName || objects[0].GetLabels()["app.kubernetes.io/managed-by"] != "oooi" {
		t.Errorf("kustomize builds %v", objects)
	}
}

// TestRightsOfAnEarlierVersion checks a site that an earlier version set up, whose components may need fewer rights.
func TestRightsOfAnEarlierVersion(t *testing.T) {
	for _, tc := range []struct {
		plugin, deployed string
		want             Severity
	}{
		{"v0.3.0", "v0.2.0", Warn}, {"v0.3.0", "v0.3.0", Fail}, {"v0.2.0", "v0.3.0", Fail}, {"(devel)", "v0.3.0", Fail}, {"", "", Fail},
	} {
		facts, site := siteOf(t, `
apiVersion: v1
kind: ConfigMap
metadata: {name: demo-oooi-inventory, namespace: clusters, labels: {app.kubernetes.io/managed-by: oooi}}
data: {setup.yaml: "version: `+tc.deployed+`"}
`)
		facts.Plugin = tc.plugin
		rights, err := site.rights()
		if err != nil || len(rights) == 0 {
			t.Fatalf("%d rights, error %v", len(rights), err)
		}
		facts.reviews = map[Right]*Review{rights[0]: {Right: rights[0]}}
		all := orderedChecks(t)
		at := slices.IndexFunc(all, func(c Check) bool { return c.Code == "OOOI-ACC-001" })
		findings := all[at].Run(site)
		if len(findings) != 1 || findings[0].Severity != tc.want || strings.Contains(findings[0].Message, "version v0.2.0 deployed it") != (tc.want == Warn) {
			t.Errorf("plugin %q, deployed by %q: want severity %s, got %+v", tc.plugin, tc.deployed, tc.want, findings)
		}
	}
}
