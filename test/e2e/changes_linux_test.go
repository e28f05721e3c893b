//go:build e2e

package e2e_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// secondImage is another name of oooiImage. missingImage is in no registry.
const (
	secondImage  = "localhost/oooi:e2e-3"
	missingImage = "localhost/none:1"
)

// nothingApplied is printed by a setup that rejects a change.
const nothingApplied = "nothing was applied"

// failingSetup runs setup, which must exit with code 1, and returns its output.
func (s *site) failingSetup(t *testing.T, infra string, flags ...string) string {
	t.Helper()
	r := s.execute(t, 5*time.Minute, append(s.setupArgs(t, infra), flags...)...)
	if r.Code != 1 {
		t.Errorf("setup exited with code %d, want 1", r.Code)
	}
	return r.Stdout + r.Stderr
}

// setupWithoutFlags runs setup without image flags, which must succeed and change only what has failed.
func (s *site) setupWithoutFlags(t *testing.T, flags ...string) {
	t.Helper()
	if r := s.execute(t, 5*time.Minute, append(s.setupArgs(t, infra), flags...)...); r.Code != 0 {
		t.Errorf("setup with flags %q: exit code %d", flags, r.Code)
	}
}

// runDuringSetup runs setup, and calls do once setup has printed a text. It returns setup's exit code and
// output.
func (s *site) runDuringSetup(t *testing.T, infra, text string, do func(*os.Process), flags ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.binary, slices.Concat([]string{"--kubeconfig", s.cp.Kubeconfig()}, s.setupArgs(t, infra), flags)...)
	stderr, err := cmd.StderrPipe()
	lab.Must(t, err)
	lab.Must(t, cmd.Start())
	var output strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		fmt.Fprintln(&output, lines.Text())
		if do != nil && strings.Contains(lines.Text(), text) {
			do(cmd.Process)
			do = nil
		}
	}
	err = cmd.Wait()
	t.Logf("%s\n%s%v", cmd, &output, err)
	if do != nil {
		t.Errorf("setup did not print %q", text)
	}
	return cmd.ProcessState.ExitCode(), output.String()
}

// expectFailure returns a function that runs setup, and checks that it fails and prints texts.
func (s *site) expectFailure(infra string, want []string, flags ...string) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		output := s.failingSetup(t, infra, flags...)
		for _, text := range want {
			if !strings.Contains(output, text) {
				t.Errorf("setup does not print %q", text)
			}
		}
	}
}

// infraWithBackend returns the Infra and its ProxyServer with a backend.
func infraWithBackend(service string) string {
	return infra + demo.ProxyServer("spec: {networkConfig: {serverIP: 198.18.50.7, networkAttachmentName: vlan50}, "+
		"backends: [{name: second, hostname: second.example.com, port: 6443, targetService: "+service+", targetPort: 6443, targetNamespace: clusters-demo}]}")
}

// changes returns runs of setup that cannot succeed or are interrupted, with what only a node shows: images, networks, scheduling,
// and daemons that end. After each, setup without flags must restore everything. The tests of kubectl-oooi/internal/setup have the
// other refusals.
func (s *site) changes(v *serviceMonitor) []event {
	list := slices.Concat(s.refusals(), s.interruptions(v))
	for i, e := range list {
		list[i].run = func(t *testing.T) {
			e.run(t)
			s.setupWithoutFlags(t)
		}
	}
	return list
}

// refusals returns changes that setup refuses, because its check of the change fails.
func (s *site) refusals() []event {
	return []event{
		{name: "no image", run: s.expectFailure(infra, []string{missingImage, nothingApplied}, "--image", missingImage)},
		{name: "no image of Envoy", extra: true, run: s.expectFailure(infra, []string{missingImage, nothingApplied}, "--envoy-image", missingImage)},
		{name: "another program", extra: true, run: s.expectFailure(editedInfra("dhcp: {image: "+toolsImage+"}"), []string{"coredhcp", nothingApplied})},
		{name: "an address of another host, and a silent resolver", run: func(t *testing.T) {
			hostOnVLAN(t, "198.18.50.211/24")
			s.expectFailure(lab.Merge(infra, "spec: {networkConfig: {dnsServers: [192.0.2.98]}, infraComponents: {proxy: {serverIP: 198.18.50.211}}}"),
				[]string{"198.18.50.211 is used by another host on the VLAN, with MAC address ", "upstream resolver 192.0.2.98:53 does not answer", nothingApplied})(t)
		}},
		{name: "a network that cannot be attached", run: func(t *testing.T) {
			before := s.attach(t, `{"cniVersion": "0.3.1", "name": "vlan50", "type": "macvlan", "master": "none"}`)
			s.expectFailure(infra, []string{"NetworkAttachmentDefinition clusters/vlan50 has been changed", "--allow-loss"})(t)
			s.expectFailure(infra, []string{nothingApplied}, "--allow-loss")(t)
			s.attach(t, before)
		}},
		{name: "a webhook that does not respond", extra: true, run: func(t *testing.T) {
			s.cp.MustApply(t, webhook)
			pod := s.pods(t, v1alpha1.ComponentDNS)[0]
			denied := func() bool {
				_, err := s.cp.Kube(t).CoreV1().Pods("clusters").Update(t.Context(), &pod, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
				return err != nil && strings.Contains(err.Error(), "unserved.example.com")
			}
			lab.Poll(t, "the webhook to take effect", denied)
			s.expectFailure(infra, []string{"unserved.example.com", nothingApplied}, "--timeout", "20s", "--image", s.otherImage(t))(t) // setup waits for the webhook
			lab.Must(t, s.cp.DeleteYAML(t.Context(), []byte(webhook)))
			lab.Poll(t, "the webhook to have no effect", func() bool { return !denied() })
		}},
		{name: "a cordoned node", run: func(t *testing.T) {
			s.cordon(t, node.Node, true)
			s.expectFailure(infra, []string{"unschedulable", nothingApplied}, "--image", s.otherImage(t))(t)
			s.cordon(t, node.Node, false)
		}},
		{name: "more memory than any node has", extra: true,
			run: s.expectFailure(editedInfra("dns: {resources: {requests: {memory: 1Ti}, limits: {memory: 1Ti}}}"), []string{"Insufficient memory", nothingApplied})},
	}
}

// interruptions returns changes that setup rolls back, and runs of setup that are killed, or during which the API server is.
func (s *site) interruptions(v *serviceMonitor) []event {
	// With this memory limit DNS passes the check, and is killed.
	infraWithoutMemory := editedInfra("dns: {resources: {limits: {memory: 6Mi}}}")
	events := []event{
		{name: "a backend whose Service has no endpoint, or does not exist", run: func(t *testing.T) {
			s.cp.MustApply(t, lab.Service("clusters-demo", "empty", 6443))
			s.setup(t, infraWithBackend("kube-apiserver"))
			s.expectFailure(infraWithBackend("nonesuch"), []string{"the change moves second.example.com:6443 from Service clusters-demo/kube-apiserver: Service clusters-demo/nonesuch does not exist"})(t)
			s.expectFailure(infraWithBackend("empty"), []string{"waiting for backend second to have a healthy endpoint, as before the change: ", "rolled back to revision"})(t)
			if routes := s.oooi(t, "routes", "demo", "-n", "clusters"); !strings.Contains(routes, "second.example.com") || strings.Contains(routes, "empty") {
				t.Errorf("the routes after the rollback are:\n%s", routes)
			}
		}},
		{name: "DNS that ends", disturbs: []string{"dns"}, run: s.expectFailure(infraWithoutMemory, []string{"rolled back to revision"})},
	}
	for range lab.Length(2, 20) {
		after := rand.N(25 * time.Second) // a rollout that fails takes longer
		events = append(events, event{name: "setup killed after " + after.Round(time.Millisecond).String(), disturbs: daemons, closesConnections: true, run: func(t *testing.T) {
			s.runDuringSetup(t, infraWithoutMemory, "checking images", func(p *os.Process) {
				time.Sleep(after)
				if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
					t.Error(err)
				}
			}, "--image", s.otherImage(t))
		}})
	}
	for _, at := range []struct{ step, message string }{
		{"its check", "checking images, configuration and network"},
		{"control", "Deployment oooi-system/oooi-control configured"},
		{"the proxy", "StatefulSet clusters/demo-proxy configured"},
		{"DNS", "StatefulSet clusters/demo-dns configured"},
		{"DHCP", "StatefulSet clusters/demo-dhcp configured"},
	} {
		events = append(events, event{name: "API server killed at " + at.step, extra: at.step != "the proxy", disturbs: daemons, closesConnections: true, run: func(t *testing.T) {
			code, output := s.runDuringSetup(t, infra, at.message, func(*os.Process) {
				lab.Report(t, s.cp.KillAPIServer())
				time.Sleep(5 * time.Second)
				lab.Report(t, s.cp.StartAPIServer(t.Context()))
			}, "--image", s.otherImage(t))
			if code != 0 || strings.Contains(output, "https://192.0.2.1") {
				t.Errorf("setup exited with code %d", code)
			}
			v.awaitService(t, "service of the new image", time.Now())
		}})
	}
	return events
}

// attach changes the configuration of the VMs' network in the Infra's namespace, and returns the previous one.
func (s *site) attach(t *testing.T, config string) (previous string) {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("k8s.cni.cncf.io/v1")
	u.SetKind("NetworkAttachmentDefinition")
	lab.Must(t, s.cp.Client(t).Get(t.Context(), client.ObjectKey{Namespace: "clusters", Name: vlan}, u))
	previous, _, _ = unstructured.NestedString(u.Object, "spec", "config")
	s.cp.MustApply(t, lab.Merge(lab.BridgeNetwork("clusters", vlan, vlan), fmt.Sprintf("spec: {config: %q}", config)))
	return previous
}

// otherImage returns the one of oooiImage and secondImage that DNS does not use now.
func (s *site) otherImage(t *testing.T) string {
	t.Helper()
	set, err := s.cp.Kube(t).AppsV1().StatefulSets("clusters").Get(t.Context(), "demo-dns", metav1.GetOptions{})
	lab.Must(t, err)
	if set.Spec.Template.Spec.Containers[0].Image == secondImage {
		return oooiImage
	}
	return secondImage
}

// webhook is a webhook for pods without a server.
const webhook = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: unserved}
webhooks:
- name: unserved.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: 2
  clientConfig: {url: "https://192.0.2.1:1/"}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: clusters}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}]
`
