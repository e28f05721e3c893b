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
	return program{
		name: name, what: "MetalLB's " + pkg, module: "metallb", pkg: metallbModule + "/" + pkg,
		prepare: patch(metallbModule, "internal/k8s/webhook.go", [2]string{
			"conversion.NewWebhookHandler(mgr.GetScheme())", "conversion.NewWebhookHandler(mgr.GetScheme(), conversion.NewRegistry())",
		}),
	}
}

// patch returns a function that writes a copy of a module in which texts of a file are replaced, and a copy of go.mod that
// uses it. It returns the arguments of go build for that copy.
func patch(module, file string, replacements ...[2]string) func(context.Context, string) ([]string, error) {
	return func(ctx context.Context, source string) ([]string, error) {
		release, err := ModuleDir(ctx, module)
		if err != nil {
			return nil, err
		}
		dir, err := labDir()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(dir, filepath.Base(source)+"-source")
		if err := os.RemoveAll(dir); err != nil {
			return nil, err
		}
		if err := os.CopyFS(dir, os.DirFS(release)); err != nil {
			return nil, err
		}
		for _, r := range replacements {
			if err := replaceInFile(filepath.Join(dir, file), r[0], r[1]); err != nil {
				return nil, err
			}
		}
		modfile := filepath.Join(dir, "lab.mod")
		for to, from := range map[string]string{modfile: "go.mod", filepath.Join(dir, "lab.sum"): "go.sum"} {
			if err := install(filepath.Join(source, from), to); err != nil {
				return nil, err
			}
		}
		return []string{"-modfile=" + modfile}, goCommand(ctx, nil, "mod", "edit", "-replace="+module+"="+dir, modfile)
	}
}

// replaceInFile replaces all occurrences of a text in a file, at least one.
func replaceInFile(path, old, text string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !bytes.Contains(data, []byte(old)) {
		return fmt.Errorf("%s: %q does not occur", path, old)
	}
	return os.WriteFile(path, bytes.ReplaceAll(data, []byte(old), []byte(text)), 0o600)
}
