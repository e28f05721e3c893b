package setup

import (
	"strings"
	"testing"
)

func TestInvalidNamesAreRefused(t *testing.T) {
	for _, tc := range []struct{ kind, name, want string }{
		{"Infra", "dé–mo", "-, document 1: in Infra dé–mo: metadata.name: a lowercase RFC 1123 label must consist of"},
		{"ProxyServer", "Edge", "-, document 1: in ProxyServer Edge: metadata.name: a lowercase RFC 1123 label must consist of"},
		{"Infra", "demo.lab", "-, document 1: in Infra demo.lab: metadata.name: must not contain dots"},
		{"Infra", "y", "-, document 1: in Infra: metadata.name: expected a string, found a bool; quote the value"},
		{"Infra", "''", "-, document 1: the Infra has no name; set metadata.name"},
	} {
		file := "apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: " + tc.kind + "\nmetadata: {name: " + tc.name + "}\n"
		if _, err := ReadFiles([]string{"-"}, strings.NewReader(file), "default", nil); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s %s: %v, want %s", tc.kind, tc.name, err, tc.want)
		}
	}
}
