package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
)

// A CommandError is the error of a command that failed in a container.
type CommandError struct {
	// Stderr is the standard error of the command, without trailing spaces.
	Stderr string
	err    error
}

func (e *CommandError) Error() string {
	if e.Stderr == "" {
		return e.err.Error()
	}
	return e.Stderr
}

func (e *CommandError) Unwrap() error { return e.err }

// Exec runs a command in a container of a pod, as kubectl exec does, and returns its standard output. If the command
// fails, the error is a CommandError. Exec does not retry.
func Exec(ctx context.Context, config *rest.Config, pod types.NamespacedName, container string, command []string) ([]byte, error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the API server: %w", err)
	}
	address := clients.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	websocket, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, address.String())
	if err != nil {
		return nil, fmt.Errorf("creating a WebSocket client: %w", err)
	}
	spdy, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, address)
	if err != nil {
		return nil, fmt.Errorf("creating a SPDY client: %w", err)
	}
	// As in kubectl. WebSocket requires permission get, and SPDY create; a user may have only one of them.
	executor, err := remotecommand.NewFallbackExecutor(websocket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	var out, stderr bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &stderr})
	if failed, ok := err.(exec.CodeExitError); ok { //nolint:errorlint // client-go returns the error unwrapped
		return nil, &CommandError{Stderr: strings.TrimSpace(stderr.String()), err: failed}
	}
	if err != nil {
		return nil, fmt.Errorf("running a command in pod %s: %w", pod, err)
	}
	return out.Bytes(), nil
}
