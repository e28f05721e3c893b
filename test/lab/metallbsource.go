package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// metallbProgram returns a main package of MetalLB. The release requires an older controller-runtime than the
// product; with the product's, one call needs one more argument. That call is patched, because compiling a
// second client-go and controller-runtime takes minutes. It registers a webhook, which the lab disables.
func metallbProgram(name, pkg string) program {
	return program{name: name, what: "MetalLB's " + pkg, module: "metallb", pkg: metallbModule + "/" + pkg, prepare: patchMetalLB}
}

// patchMetalLB writes a patched copy of MetalLB's source, and a copy of go.mod that uses it. It returns the
// arguments of go build for that copy.
func patchMetalLB(ctx context.Context, source string) ([]string, error) {
	const (
		file    = "internal/k8s/webhook.go"
		call    = "conversion.NewWebhookHandler(mgr.GetScheme())"
		patched = "conversion.NewWebhookHandler(mgr.GetScheme(), conversion.NewRegistry())"
	)
	release, err := ModuleDir(ctx, metallbModule)
	if err != nil {
		return nil, err
	}
	dir, err := labDir()
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, "metallb-source")
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.CopyFS(dir, os.DirFS(release)); err != nil {
		return nil, err
	}
	if err := replaceInFile(filepath.Join(dir, file), call, patched); err != nil {
		return nil, err
	}
	modfile := filepath.Join(dir, "lab.mod")
	for to, from := range map[string]string{modfile: "go.mod", filepath.Join(dir, "lab.sum"): "go.sum"} {
		if err := install(filepath.Join(source, from), to); err != nil {
			return nil, err
		}
	}
	return []string{"-modfile=" + modfile}, goCommand(ctx, nil, "mod", "edit", "-replace="+metallbModule+"="+dir, modfile)
}

// replaceInFile replaces the only occurrence of a text in a file.
func replaceInFile(path, old, text string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if n := bytes.Count(data, []byte(old)); n != 1 {
		return fmt.Errorf("%s: %q occurs %d times, want 1", path, old, n)
	}
	return os.WriteFile(path, bytes.Replace(data, []byte(old), []byte(text), 1), 0o600)
}
