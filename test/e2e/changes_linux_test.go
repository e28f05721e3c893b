//go:build e2e

package e2e_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

// A change is a run of setup that fails or is interrupted.
type change struct {
	name string
	run  func(*testing.T)
	// rolledOut are the components that setup rolled out. The containers of all other components must not
	// change.
	rolledOut []string
	// extra changes are only tested at full length.
	extra bool
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

// editedInfra returns the Infra with pairs of texts replaced. It panics if none of them occurs.
func editedInfra(oldnew ...string) string {
	edited := strings.NewReplacer(oldnew...).Replace(infra)
	if edited == infra {
		panic(fmt.Sprintf("none of %q is in the Infra", oldnew))
	}
	return edited
}

// infraWithoutMemory is the Infra with a memory limit with which DNS is killed.
var infraWithoutMemory = editedInfra("serverIP: 198.18.50.6", "serverIP: 198.18.50.6, resources: {limits: {memory: 6Mi}}")

// infraWithBackend returns the Infra and its ProxyServer with a backend.
func infraWithBackend(service string) string {
	return infra + fmt.Sprintf(`---
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: demo, namespace: clusters}
spec:
  infraRef: {name: demo}
  networkConfig: {serverIP: 198.18.50.7, networkAttachmentName: vlan50}
  backends: [{name: second, hostname: second.example.com, port: 6443, targetService: %s, targetPort: 6443, targetNamespace: clusters-demo}]
`, service)
}

// invalidInputs returns runs of setup with files and flags that it rejects.
func invalidInputs(s *site) []change {
	pinned := editedInfra("serverIP: 198.18.50.5", "image: "+oooiImage+", serverIP: 198.18.50.5", "serverIP: 198.18.50.6", "image: "+oooiImage+", serverIP: 198.18.50.6",
		"serverIP: 198.18.50.7", "image: "+oooiImage+", serverIP: 198.18.50.7")
	return []change{
		{name: "no image", run: s.expectFailure(infra, []string{missingImage, nothingApplied}, "--image", missingImage)},
		{name: "no image of DNS", extra: true, run: s.expectFailure(editedInfra("serverIP: 198.18.50.6", "serverIP: 198.18.50.6, image: "+missingImage), []string{missingImage, nothingApplied})},
		{name: "replicas are added, without their image", run: s.expectFailure(editedInfra("dhcp: {serverIP: 198.18.50.5,", "dhcp: {image: "+missingImage+", instances: [{ip: 198.18.50.5}, {ip: 198.18.50.15}],"), []string{missingImage, nothingApplied})},
		{name: "no image of control", extra: true, run: s.expectFailure(pinned, []string{"checking Deployment oooi-system/oooi-control", missingImage, nothingApplied}, "--image", missingImage)},
		{name: "no image of Envoy", run: s.expectFailure(infra, []string{missingImage, nothingApplied}, "--envoy-image", missingImage)},
		{name: "another program", extra: true, run: s.expectFailure(editedInfra("rangeEnd: 198.18.50.159", "rangeEnd: 198.18.50.159, image: "+toolsImage), []string{"coredhcp", nothingApplied})},
		{name: "an address of another host, and a silent resolver", run: func(t *testing.T) {
			hostOnVLAN(t, "198.18.50.211/24")
			s.expectFailure(editedInfra("serverIP: 198.18.50.7", "serverIP: 198.18.50.211", "dnsServers: [192.0.2.99]", "dnsServers: [192.0.2.98]"),
				[]string{"198.18.50.211 is used by another host on the VLAN, with MAC address ", "upstream resolver 192.0.2.98:53 does not answer", nothingApplied})(t)
		}},
		{name: "an unknown flag", extra: true, run: s.expectFailure(infra, []string{"unknown flag: --no-such-flag"}, "--no-such-flag")},
		{name: "a file that is not YAML", extra: true, run: s.expectFailure("][", []string{"infra.yaml"})},
		{name: "an unknown field", extra: true, run: s.expectFailure(editedInfra("dns: {serverIP", "dns: {address"), []string{"address"})},
		{name: "swapped addresses", run: s.expectFailure(editedInfra("serverIP: 198.18.50.6", "serverIP: 198.18.50.7", "serverIP: 198.18.50.7", "serverIP: 198.18.50.6"), []string{"198.18.50.6"})},
		{name: "the gateway's address", extra: true, run: s.expectFailure(editedInfra("serverIP: 198.18.50.6", "serverIP: 198.18.50.1"), []string{"AddressConflict", "198.18.50.1"})},
		{name: "a range with our addresses", extra: true, run: s.expectFailure(editedInfra("rangeStart: 198.18.50.150", "rangeStart: 198.18.50.2"), []string{"AddressConflict"})},
		{name: "addresses outside the VLAN", extra: true, run: s.expectFailure(editedInfra("cidr: 198.18.50.0/24", "cidr: 198.18.51.0/24"), []string{"InvalidAddress"})},
		{name: "DNS that forwards to itself", extra: true, run: s.expectFailure(editedInfra("dnsServers: [192.0.2.99]", "dnsServers: [198.18.50.6]"), []string{"198.18.50.6"})},
		{name: "an unknown hosted cluster", extra: true, run: s.expectFailure(editedInfra("hostedClusterRef: {name: demo}", "hostedClusterRef: {name: nonesuch}"), []string{"nonesuch"})},
		{name: "an unknown network", extra: true, run: s.expectFailure(editedInfra("networkAttachmentDefinition: vlan50", "networkAttachmentDefinition: nonesuch"), []string{"nonesuch"})},
		{name: "another namespace", extra: true, run: s.expectFailure(infra, []string{"namespace"}, "-n", "default")},
		{name: "another Infra with its addresses", extra: true, run: s.expectFailure(editedInfra("metadata: {name: demo,", "metadata: {name: other,"), []string{"198.18.50.5"})},
		{name: "a ProxyServer with its address", extra: true, run: s.expectFailure(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: edge, namespace: clusters}
spec:
  networkConfig: {serverIP: 198.18.50.7/24, networkAttachmentName: vlan50}
  backends: [{name: api, hostname: api.example.com, port: 443, targetService: kube-apiserver, targetPort: 6443, targetNamespace: clusters-demo}]
`, []string{"198.18.50.7"})},
	}
}

// clusterFaults returns runs of setup in clusters in which a change cannot succeed.
func clusterFaults(s *site) []change {
	attachment := func(t *testing.T, config string) {
		t.Helper()
		apply(t, s.cp, "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: vlan50, namespace: clusters}\nspec: {config: '%s'}\n", config)
	}
	const vlan50 = `{"cniVersion": "0.3.1", "name": "vlan50", "type": "bridge", "bridge": "vlan50"}`
	// withObject runs a setup with another image while an object exists.
	withObject := func(t *testing.T, object string, effective func() string, want []string, flags ...string) {
		t.Helper()
		apply(t, s.cp, "%s", object)
		await(t, "the object to take effect", effective)
		s.expectFailure(infra, append(want, nothingApplied), append(flags, "--image", s.otherImage(t))...)(t)
		if err := s.cp.DeleteYAML(t.Context(), []byte(object)); err != nil {
			t.Fatal(err)
		}
		await(t, "the object to be no longer effective", func() string {
			if effective() == "" {
				return "it is still effective"
			}
			return ""
		})
	}
	return []change{
		{name: "a network that cannot be attached", run: func(t *testing.T) {
			attachment(t, `{"cniVersion": "0.3.1", "name": "vlan50", "type": "macvlan", "master": "none"}`)
			s.expectFailure(infra, []string{"NetworkAttachmentDefinition clusters/vlan50 has been changed", "--allow-loss"})(t)
			s.expectFailure(infra, []string{nothingApplied}, "--allow-loss")(t)
			attachment(t, vlan50)
		}},
		{name: "a network that is not JSON", extra: true, run: func(t *testing.T) {
			attachment(t, `{"cniVersion": "0.3.1",`)
			s.expectFailure(infra, []string{"vlan50"})(t)
			attachment(t, vlan50)
		}},
		{name: "an exceeded quota", extra: true, run: func(t *testing.T) {
			withObject(t, "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: small, namespace: clusters}\nspec: {hard: {pods: \"1\"}}\n", func() string {
				q, err := kube(t, s.cp).CoreV1().ResourceQuotas("clusters").Get(t.Context(), "small", metav1.GetOptions{})
				if err != nil || q.Status.Used.Pods().Value() < 3 {
					return fmt.Sprint(err, q)
				}
				return ""
			}, []string{"exceeded quota: small"})
		}},
		{name: "a policy that denies StatefulSets", extra: true, run: func(t *testing.T) {
			withObject(t, policy("apps", "statefulsets"), s.checkDenied(t, "StatefulSet"), []string{"no statefulsets here"})
		}},
		{name: "a policy that denies pods", run: func(t *testing.T) {
			withObject(t, policy("", "pods"), s.checkDenied(t, "Pod"), []string{"no pods here"})
		}},
		{name: "a webhook that does not respond", extra: true, run: func(t *testing.T) {
			withObject(t, webhook, s.checkDenied(t, "Pod"), []string{"unserved.example.com"}, "--timeout", "20s") // setup waits for the webhook
		}},
		{name: "a finalizer on a pod", run: func(t *testing.T) {
			finalize := func(finalizers string) {
				t.Helper()
				patch := fmt.Appendf(nil, `{"metadata": {"finalizers": %s}}`, finalizers)
				if _, err := kube(t, s.cp).CoreV1().Pods("clusters").Patch(t.Context(), "demo-dns-0", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			finalize(`["example.com/audit"]`)
			s.expectFailure(infra, []string{"example.com/audit", nothingApplied}, "--image", s.otherImage(t))(t)
			finalize("null")
		}},
		{name: "a cordoned node", run: func(t *testing.T) {
			s.cordon(t, node.Node, true)
			s.expectFailure(infra, []string{"unschedulable", nothingApplied}, "--image", s.otherImage(t))(t)
			s.cordon(t, node.Node, false)
		}},
		{name: "more memory than any node has", extra: true,
			run: s.expectFailure(editedInfra("serverIP: 198.18.50.6", "serverIP: 198.18.50.6, resources: {requests: {memory: 1Ti}, limits: {memory: 1Ti}}"), []string{"Insufficient memory", "nothing was applied"})},
		{name: "a StatefulSet edited by hand", extra: true, rolledOut: []string{"dns"}, run: func(t *testing.T) {
			patch := []byte(`[{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "` + missingImage + `"}]`)
			if _, err := kube(t, s.cp).AppsV1().StatefulSets("clusters").Patch(t.Context(), "demo-dns", types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			await(t, "a pod without an image", func() string {
				for _, pod := range s.pods(t, "dns") {
					for _, c := range pod.Status.ContainerStatuses {
						if c.State.Waiting != nil && strings.Contains(c.State.Waiting.Reason, "Pull") {
							return ""
						}
					}
				}
				return "no container is waiting for its image"
			})
			s.expectFailure(infra, []string{"use --force-conflicts", nothingApplied})(t)
			cmd := s.setupCommand(t.Context(), t, infra, "--force-conflicts")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", cmd, err, out)
			}
		}},
	}
}

// interruptions returns runs of setup that are interrupted, or during which the API server is killed or
// another setup runs.
func interruptions(s *site, v *serviceMonitor) []change {
	changes := []change{
		{name: "a backend whose Service has no endpoint, or does not exist", run: func(t *testing.T) {
			apply(t, s.cp, "%s", "{apiVersion: v1, kind: Service, metadata: {name: empty, namespace: clusters-demo}, spec: {ports: [{port: 6443}]}}")
			s.setup(t, infraWithBackend("kube-apiserver"))
			s.expectFailure(infraWithBackend("nonesuch"), []string{"second.example.com:6443 led to Service clusters-demo/kube-apiserver before the change, and now Service clusters-demo/nonesuch does not exist"})(t)
			s.expectFailure(infraWithBackend("empty"), []string{"waiting for backend second to have a healthy endpoint, as before the change: ", "everything is rolled back to revision"})(t)
			if routes := s.oooi(t, "routes", "demo", "-n", "clusters"); !strings.Contains(routes, "second.example.com") || strings.Contains(routes, "empty") {
				t.Errorf("the routes after the rollback are:\n%s", routes)
			}
		}},
		{name: "DNS that ends", run: s.expectFailure(infraWithoutMemory, []string{"everything is rolled back to revision"}), rolledOut: []string{"dns"}},
		{name: "Ctrl-C", rolledOut: []string{"dns"}, run: func(t *testing.T) {
			if code, _ := s.runDuringSetup(t, infraWithoutMemory, "StatefulSet clusters/demo-dns configured", signal(t, syscall.SIGINT)); code != 130 {
				t.Errorf("setup exited with code %d, want 130", code)
			}
			v.awaitService(t, "service after Ctrl-C", time.Now())
		}},
		{name: "setup killed", rolledOut: []string{"dns"}, run: func(t *testing.T) {
			s.runDuringSetup(t, infraWithoutMemory, "StatefulSet clusters/demo-dns configured", signal(t, syscall.SIGKILL))
		}},
		{name: "setup killed at random moments", rolledOut: []string{"dns", "proxy", "dhcp"}, run: func(t *testing.T) {
			kills := 3
			if lab.Long() {
				kills = 20
			}
			for range kills {
				after := rand.N(25 * time.Second) // a rollout that fails takes longer
				s.runDuringSetup(t, infraWithoutMemory, "checking images", func(p *os.Process) {
					time.Sleep(after)
					if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
						t.Error(err)
					}
				}, "--image", s.otherImage(t))
				began := time.Now()
				s.setupWithoutFlags(t)
				v.awaitService(t, "service after setup was killed after "+after.String(), time.Now())
				t.Logf("killed after %s; setup of the previous input took %s", after, time.Since(began))
			}
		}},
		{name: "setup killed, then an invalid change", extra: true, rolledOut: []string{"dns"}, run: func(t *testing.T) {
			s.runDuringSetup(t, infraWithoutMemory, "StatefulSet clusters/demo-dns configured", signal(t, syscall.SIGKILL))
			s.expectFailure(infra, []string{"is unfinished; restoring revision", nothingApplied}, "--image", missingImage)(t)
			v.awaitService(t, "service after the refusal", time.Now())
		}},
		{name: "setup killed, and its records deleted", extra: true, rolledOut: []string{"dns"}, run: func(t *testing.T) {
			s.runDuringSetup(t, infraWithoutMemory, "StatefulSet clusters/demo-dns configured", signal(t, syscall.SIGKILL))
			err := kube(t, s.cp).CoreV1().Secrets("oooi-system").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: v1alpha1.LabelInfra + "=demo"})
			if err != nil {
				t.Fatal(err)
			}
		}},
		{name: "two setups at once", extra: true, rolledOut: []string{"dns", "proxy", "dhcp"}, run: func(t *testing.T) {
			var second sync.WaitGroup
			code, _ := s.runDuringSetup(t, infra, "StatefulSet clusters/demo-proxy configured", func(*os.Process) {
				second.Go(func() { s.setupWithoutFlags(t) })
			}, "--image", s.otherImage(t))
			second.Wait()
			if code != 0 {
				t.Errorf("the first setup exited with code %d", code)
			}
		}},
	}
	steps := []struct{ step, message string }{
		{"its check", "checking images, configuration and network"},
		{"control", "Deployment oooi-system/oooi-control configured"},
		{"the proxy", "StatefulSet clusters/demo-proxy configured"},
		{"DNS", "StatefulSet clusters/demo-dns configured"},
		{"DHCP", "StatefulSet clusters/demo-dhcp configured"},
	}
	all := []string{"dns", "proxy", "dhcp"}
	for _, at := range steps {
		changes = append(changes,
			change{name: "setup killed at " + at.step, extra: true, rolledOut: all, run: func(t *testing.T) {
				s.runDuringSetup(t, infra, at.message, func(p *os.Process) {
					if err := p.Kill(); err != nil {
						t.Error(err)
					}
				}, "--image", s.otherImage(t))
			}},
			change{name: "API server killed at " + at.step, extra: at.step != "the proxy", rolledOut: all, run: func(t *testing.T) {
				code, output := s.runDuringSetup(t, infra, at.message, func(*os.Process) {
					if err := s.cp.KillAPIServer(); err != nil {
						t.Error(err)
					}
					time.Sleep(5 * time.Second)
					if err := s.cp.StartAPIServer(t.Context()); err != nil {
						t.Error(err)
					}
				}, "--image", s.otherImage(t))
				if code != 0 || strings.Contains(output, "https://192.0.2.1") {
					t.Errorf("setup exited with code %d", code)
				}
			}},
		)
	}
	return changes
}

// otherImage returns the one of oooiImage and secondImage that DNS does not use now.
func (s *site) otherImage(t *testing.T) string {
	t.Helper()
	set, err := kube(t, s.cp).AppsV1().StatefulSets("clusters").Get(t.Context(), "demo-dns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if set.Spec.Template.Spec.Containers[0].Image == secondImage {
		return oooiImage
	}
	return secondImage
}

// checkDenied returns a function that returns "" once the API server denies objects of a kind in the Infra's
// namespace.
func (s *site) checkDenied(t *testing.T, kind string) func() string {
	t.Helper()
	client := kube(t, s.cp)
	set, err := client.AppsV1().StatefulSets("clusters").Get(t.Context(), "demo-dns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := s.pods(t, "dns")[0]
	return func() string {
		var err error
		if kind == "Pod" {
			_, err = client.CoreV1().Pods("clusters").Update(t.Context(), &pod, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		} else {
			_, err = client.AppsV1().StatefulSets("clusters").Update(t.Context(), set, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		}
		if err != nil && (strings.Contains(err.Error(), " here") || strings.Contains(err.Error(), "unserved.example.com")) {
			return ""
		}
		return fmt.Sprintf("%s: %v", kind, err)
	}
}

// policy returns a ValidatingAdmissionPolicy that denies a resource in the Infra's namespace, and its
// binding.
func policy(group, resource string) string {
	return fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: refuse}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: clusters}}
    resourceRules: [{apiGroups: ["%s"], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [%s]}]
  validations: [{expression: "false", message: "no %[2]s here"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: refuse}
spec: {policyName: refuse, validationActions: [Deny]}
`, group, resource)
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
