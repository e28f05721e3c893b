package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// startPod starts a pod of the management cluster whose resolver is the Service of our DNS. It returns the command
// that runs a command in the pod, and the cluster IP of the proxy's Service.
func (s *site) startPod(ctx context.Context) (through []string, proxy string, err error) {
	if err := s.imports.Wait(); err != nil {
		return nil, "", err
	}
	api, err := kubernetes.NewForConfig(s.management.RESTConfig())
	if err != nil {
		return nil, "", fmt.Errorf("creating a client: %w", err)
	}
	address := map[string]string{}
	for _, name := range []string{"demo-dns", "demo-proxy"} {
		service, err := api.CoreV1().Services("clusters").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, "", fmt.Errorf("reading our Service: %w", err)
		}
		address[name] = service.Spec.ClusterIP
	}
	certificates := map[string]string{}
	for _, name := range []string{"api.crt", "shop.crt"} {
		certificate, err := os.ReadFile(filepath.Join(s.dir, name))
		if err != nil {
			return nil, "", fmt.Errorf("reading a certificate: %w", err)
		}
		certificates[name] = string(certificate)
	}
	data, err := json.Marshal(certificates)
	if err != nil {
		return nil, "", fmt.Errorf("encoding certificates: %w", err)
	}
	pod, err := objects.ReadFile("objects/node/setup/client.yaml")
	if err != nil {
		return nil, "", fmt.Errorf("reading the pod: %w", err)
	}
	if err := s.management.ApplyYAML(ctx, fmt.Appendf(nil, string(pod), address["demo-dns"], data)); err != nil {
		return nil, "", err
	}
	id, err := awaitPod(ctx, api, "client")
	if err != nil {
		return nil, "", err
	}
	return s.node.ExecLine(id), address["demo-proxy"], nil
}

// awaitPod waits until a pod of the namespace default runs, and returns the ID of its first container.
func awaitPod(ctx context.Context, api kubernetes.Interface, name string) (container string, err error) {
	ctx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	for last := ""; ; {
		pod, err := api.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("waiting for pod %s to run (last %s): %w", name, last, err)
		}
		if pod.Status.Phase == corev1.PodRunning && len(pod.Status.ContainerStatuses) > 0 {
			return pod.Status.ContainerStatuses[0].ContainerID, nil
		}
		last = pod.Status.String()
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("waiting for pod %s to run: %w; its status is %s", name, ctx.Err(), last)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
