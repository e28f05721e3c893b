package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const ingressFolder = "../virtual-ingress"

// TestIngressGenerated fails while the chart is not what its sources say.
func TestIngressGenerated(t *testing.T) {
	files, err := ingressChart(manifests)
	if err != nil {
		t.Fatal(err)
	}
	fresh(t, ingressFolder, files)
}

// TestIngressREADME holds the table of values against values.yaml.
func TestIngressREADME(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(ingressFolder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(ingressFolder, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(data, &values); err != nil {
		t.Fatal(err)
	}
	for key, value := range values {
		names := []string{key}
		if inner, ok := value.(map[string]any); ok && (key == "rbac" || key == "log" || key == "podMonitor") {
			names = nil
			for name := range inner {
				names = append(names, key+"."+name)
			}
		}
		for _, name := range names {
			if !strings.Contains(string(text), "`"+name+"`") {
				t.Errorf("the README says nothing of %s", name)
			}
		}
	}
}
