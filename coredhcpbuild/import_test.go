package main

import (
	"strings"
	"testing"
)

func TestImportErrors(t *testing.T) {
	const head = "server4:\n  listen: \"%net1\"\n  plugins:\n"
	for _, tc := range []struct{ name, text, want string }{
		{"no kubevirt", head + "  - leasedb: store=bolt", "server4: import requires both plugins, kubevirt and leasedb"},
		{"no leasedb", head + "  - kubevirt: network=a/b", "server4: import requires both plugins"},
		{"invalid arguments", head + "  - kubevirt: network=b\n  - leasedb: store=bolt", "kubevirt: network=b: want"},
		{"no API server", head + "  - kubevirt: network=a/b kubeconfig=/nowhere\n  - leasedb: store=bolt", "/nowhere"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := run(t.Context(), "import", "--config", write(t, tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want %q in it", err, tc.want)
			}
		})
	}
	if _, err := run(t.Context(), "import", "everything"); err == nil {
		t.Error("arguments are accepted")
	}
}
