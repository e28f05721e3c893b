package proxy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// A namespace is a network namespace, like that of a pod or a router.
type namespace struct{ *lab.Namespace }

func newNamespace(t *testing.T) namespace {
	t.Helper()
	return namespace{lab.NewNamespace(t)}
}

// ip runs the command ip in the namespace.
func (n namespace) ip(t *testing.T, format string, args ...any) {
	t.Helper()
	n.Run(t, append([]string{"ip"}, strings.Fields(fmt.Sprintf(format, args...))...)...)
}

// forward enables IP forwarding.
func (n namespace) forward(t *testing.T) {
	t.Helper()
	n.Run(t, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward && echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")
}

// inside returns a configuration with which Envoy starts in the namespace. It uses the files of this process,
// and with them its Unix sockets.
func (n namespace) inside(t *testing.T, config lab.EnvoyConfig) lab.EnvoyConfig {
	t.Helper()
	binary, err := lab.FindEnvoy(t.Context(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	config.Binary = filepath.Join(t.TempDir(), "envoy")
	script := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\"\n", strings.Join(n.CommandLine(binary), " "))
	if err := os.WriteFile(config.Binary, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return config
}
