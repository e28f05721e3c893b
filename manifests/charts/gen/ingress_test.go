package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const ingressFolder = "../virtual-ingress"

// TestIngressGenerated checks that the generated files of the chart are up to date.
func TestIngressGenerated(t *testing.T) {
	files, err := ingressChart(manifests)
	if err != nil {
		t.Fatal(err)
	}
	checkGenerated(t, ingressFolder, files)
}

// TestIngressREADME checks that the README has all values.
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
				t.Errorf("the README does not have the value %s", name)
			}
		}
	}
}
