package proxy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// A namespace is a network namespace beside ours, as a pod or a router has it.
type namespace struct{ *lab.Namespace }

func newNamespace(t *testing.T) namespace {
	t.Helper()
	return namespace{lab.NewNamespace(t)}
}

// ip runs the ip command inside.
func (n namespace) ip(t *testing.T, format string, args ...any) {
	t.Helper()
	n.Run(t, append([]string{"ip"}, strings.Fields(fmt.Sprintf(format, args...))...)...)
}

// forward has it pass on what is not for itself, as a router does.
func (n namespace) forward(t *testing.T) {
	t.Helper()
	n.Run(t, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward && echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")
}

// inside has an Envoy start in the namespace. Files, and with them Unix sockets, it
// shares with us.
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
