//go:build e2e

package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// secondImage is another name of our image, noImage one that no registry has.
const (
	secondImage = "localhost/oooi:e2e-3"
	noImage     = "localhost/none:1"
)

// nothing is what setup says when it refuses a change.
const nothing = "nothing was applied"

// A change is one that does not succeed, or not at once.
type change struct {
	name string
	make func(*testing.T)
	// tried are the components that setup tried; the containers of others stay.
	tried []string
	// extra: only in make test-long.
	extra bool
}

// refused runs a setup that is to fail and to print some texts.
func (s *site) refused(infra string, says []string, flags ...string) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		said := s.fails(t, infra, flags...)
		for _, want := range says {
			if !strings.Contains(said, want) {
				t.Errorf("setup does not say %q", want)
			}
		}
	}
}

// with is the Infra with some texts replaced by others.
func with(oldnew ...string) string {
	edited := strings.NewReplacer(oldnew...).Replace(infra)
	if edited == infra {
		panic(fmt.Sprintf("the Infra has none of %q", oldnew))
	}
	return edited
}

// starved is the Infra with DNS that ends for want of memory.
var starved = with("serverIP: 198.18.50.6", "serverIP: 198.18.50.6, resources: {limits: {memory: 8Mi}}")

// wrongInput are files and flags that setup refuses.
func wrongInput(s *site) []change {
	pinned := with("serverIP: 198.18.50.5", "image: "+oooiImage+", serverIP: 198.18.50.5", "serverIP: 198.18.50.6", "image: "+oooiImage+", serverIP: 198.18.50.6",
		"serverIP: 198.18.50.7", "image: "+oooiImage+", serverIP: 198.18.50.7")
	return []change{
		{name: "no image", make: s.refused(infra, []string{noImage, nothing}, "--image", noImage)},
		{name: "no image of DNS", extra: true, make: s.refused(with("serverIP: 198.18.50.6", "serverIP: 198.18.50.6, image: "+noImage), []string{noImage, nothing})},
		{name: "no image of control", extra: true, make: s.refused(pinned, []string{"checking Deployment oooi-system/oooi-control", noImage, nothing}, "--image", noImage)},
		{name: "no image of Envoy", make: s.refused(infra, []string{noImage, nothing}, "--envoy-image", noImage)},
		{name: "another program", extra: true, make: s.refused(with("rangeEnd: 198.18.50.159", "rangeEnd: 198.18.50.159, image: "+toolsImage), []string{"coredhcp", nothing})},
		{name: "an unknown flag", extra: true, make: s.refused(infra, []string{"unknown flag: --no-such-flag"}, "--no-such-flag")},
		{name: "a file that is not YAML", extra: true, make: s.refused("][", []string{"infra.yaml"})},
		{name: "an unknown field", extra: true, make: s.refused(with("dns: {serverIP", "dns: {address"), []string{"address"})},
		{name: "swapped addresses", make: s.refused(with("serverIP: 198.18.50.6", "serverIP: 198.18.50.7", "serverIP: 198.18.50.7", "serverIP: 198.18.50.6"), []string{"198.18.50.6"})},
		{name: "the gateway's address", extra: true, make: s.refused(with("serverIP: 198.18.50.6", "serverIP: 198.18.50.1"), []string{"AddressConflict", "198.18.50.1"})},
		{name: "a range with our addresses", extra: true, make: s.refused(with("rangeStart: 198.18.50.150", "rangeStart: 198.18.50.2"), []string{"AddressConflict"})},
		{name: "addresses outside the VLAN", extra: true, make: s.refused(with("cidr: 198.18.50.0/24", "cidr: 198.18.51.0/24"), []string{"InvalidAddress"})},
		{name: "DNS that forwards to itself", extra: true, make: s.refused(with("dnsServers: [192.0.2.99]", "dnsServers: [198.18.50.6]"), []string{"198.18.50.6"})},
		{name: "an unknown hosted cluster", extra: true, make: s.refused(with("hostedClusterRef: {name: demo}", "hostedClusterRef: {name: nonesuch}"), []string{"nonesuch"})},
		{name: "an unknown network", extra: true, make: s.refused(with("networkAttachmentDefinition: vlan50", "networkAttachmentDefinition: nonesuch"), []string{"nonesuch"})},
		{name: "another namespace", extra: true, make: s.refused(infra, []string{"namespace"}, "-n", "default")},
		{name: "another Infra with its addresses", extra: true, make: s.refused(with("metadata: {name: demo,", "metadata: {name: other,"), []string{"198.18.50.5"})},
		{name: "a ProxyServer with its address", extra: true, make: s.refused(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: edge, namespace: clusters}
spec:
  networkConfig: {serverIP: 198.18.50.7/24, networkAttachmentName: vlan50}
  backends: [{name: api, hostname: api.example.com, port: 443, targetService: kube-apiserver, targetPort: 6443, targetNamespace: clusters-demo}]
`, []string{"198.18.50.7"})},
	}
}

// wrongCluster are states of the cluster in which a change cannot work.
func wrongCluster(s *site) []change {
	attachment := func(t *testing.T, config string) {
		t.Helper()
		apply(t, s.cp, "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: vlan50, namespace: clusters}\nspec: {config: '%s'}\n", config)
	}
	const vlan50 = `{"cniVersion": "0.3.1", "name": "vlan50", "type": "bridge", "bridge": "vlan50"}`
	// during runs a setup of another image while there is an object.
	during := func(t *testing.T, object string, effective func() string, says []string, flags ...string) {
		t.Helper()
		apply(t, s.cp, "%s", object)
		await(t, "the object to take effect", effective)
		s.refused(infra, append(says, nothing), append(flags, "--image", s.otherImage(t))...)(t)
		if err := s.cp.DeleteYAML(t.Context(), []byte(object)); err != nil {
			t.Fatal(err)
		}
		await(t, "the object to have no effect any more", func() string {
			if effective() == "" {
				return "it still has"
			}
			return ""
		})
	}
	return []change{
		{name: "a network that cannot be attached", make: func(t *testing.T) {
			attachment(t, `{"cniVersion": "0.3.1", "name": "vlan50", "type": "macvlan", "master": "none"}`)
			s.refused(infra, []string{nothing})(t)
			attachment(t, vlan50)
		}},
		{name: "a network that is not JSON", extra: true, make: func(t *testing.T) {
			attachment(t, `{"cniVersion": "0.3.1",`)
			s.refused(infra, []string{"vlan50"})(t)
			attachment(t, vlan50)
		}},
		{name: "an exceeded quota", extra: true, make: func(t *testing.T) {
			during(t, "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: small, namespace: clusters}\nspec: {hard: {pods: \"1\"}}\n", func() string {
				q, err := kube(t, s.cp).CoreV1().ResourceQuotas("clusters").Get(t.Context(), "small", metav1.GetOptions{})
				if err != nil || q.Status.Used.Pods().Value() < 3 {
					return fmt.Sprint(err, q)
				}
				return ""
			}, []string{"ResourceQuota clusters/small"})
		}},
		{name: "a policy that refuses StatefulSets", extra: true, make: func(t *testing.T) {
			during(t, policy("apps", "statefulsets"), s.admitted(t, "StatefulSet"), []string{"no statefulsets here"})
		}},
		{name: "a policy that refuses pods", make: func(t *testing.T) {
			during(t, policy("", "pods"), s.admitted(t, "Pod"), []string{"no pods here"})
		}},
		{name: "a webhook that does not answer", extra: true, make: func(t *testing.T) {
			during(t, webhook, s.admitted(t, "Pod"), []string{"nobody.example.com"}, "--timeout", "20s") // setup waits for the webhook
		}},
		{name: "a cordoned node", make: func(t *testing.T) {
			cordon := func(is bool) {
				t.Helper()
				patch := fmt.Appendf(nil, `{"spec": {"unschedulable": %t}}`, is)
				if _, err := kube(t, s.cp).CoreV1().Nodes().Patch(t.Context(), node.Name(), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			cordon(true)
			s.refused(infra, []string{"unschedulable", nothing}, "--image", s.otherImage(t))(t)
			cordon(false)
		}},
		{name: "more memory than any node has", extra: true, tried: []string{"dns"},
			make: s.refused(with("serverIP: 198.18.50.6", "serverIP: 198.18.50.6, resources: {requests: {memory: 1Ti}, limits: {memory: 1Ti}}"), []string{"Insufficient memory", "dns is rolled back"})},
		{name: "a StatefulSet edited by hand", extra: true, tried: []string{"dns"}, make: func(t *testing.T) {
			patch := []byte(`[{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "` + noImage + `"}]`)
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
				return "there is none"
			})
			s.refused(infra, []string{"use --force-conflicts", nothing})(t)
			cmd := s.setupCommand(t.Context(), t, infra, "--force-conflicts")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", cmd, err, out)
			}
		}},
	}
}

// interrupted are rollouts that end before their time, or during which something else happens.
func interrupted(s *site, v *visit) []change {
	changes := []change{
		{name: "DNS that ends", make: s.refused(starved, []string{"dns is rolled back"}), tried: []string{"dns"}},
		{name: "Ctrl-C", tried: []string{"dns"}, make: func(t *testing.T) {
			if code, _ := s.during(t, starved, "StatefulSet clusters/demo-dns configured", signal(t, syscall.SIGINT)); code != 130 {
				t.Errorf("setup ended with %d, want 130", code)
			}
			v.awaitService(t, "service after Ctrl-C", time.Now())
		}},
		{name: "setup killed", tried: []string{"dns"}, make: func(t *testing.T) {
			s.during(t, starved, "StatefulSet clusters/demo-dns configured", signal(t, syscall.SIGKILL))
		}},
		{name: "setup killed, and then told what cannot work", extra: true, tried: []string{"dns"}, make: func(t *testing.T) {
			s.during(t, starved, "StatefulSet clusters/demo-dns configured", signal(t, syscall.SIGKILL))
			s.refused(infra, []string{nothing, "dns, which an earlier setup left unfinished, was rolled back"}, "--image", noImage)(t)
			v.awaitService(t, "service after the refusal", time.Now())
		}},
		{name: "setup killed, of a version that notes nothing", extra: true, tried: []string{"dns"}, make: func(t *testing.T) {
			s.during(t, starved, "StatefulSet clusters/demo-dns configured", signal(t, syscall.SIGKILL))
			_, err := kube(t, s.cp).CoreV1().ConfigMaps("clusters").Patch(t.Context(), "demo-oooi-inventory", types.MergePatchType,
				[]byte(`{"data": {"rollout.yaml": null}}`), metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
		}},
		{name: "two setups at once", extra: true, tried: []string{"dns", "proxy", "dhcp"}, make: func(t *testing.T) {
			var second sync.WaitGroup
			code, _ := s.during(t, infra, "StatefulSet clusters/demo-proxy configured", func(*os.Process) {
				second.Go(func() { s.plain(t) })
			}, "--image", s.otherImage(t))
			second.Wait()
			if code != 0 {
				t.Errorf("the first setup ended with %d", code)
			}
		}},
	}
	at := []struct{ step, says string }{
		{"its check", "checking images, configuration and network"},
		{"control", "Deployment oooi-system/oooi-control configured"},
		{"the proxy", "StatefulSet clusters/demo-proxy configured"},
		{"DNS", "StatefulSet clusters/demo-dns configured"},
		{"DHCP", "StatefulSet clusters/demo-dhcp configured"},
	}
	all := []string{"dns", "proxy", "dhcp"}
	for _, at := range at {
		changes = append(changes,
			change{name: "setup killed at " + at.step, extra: true, tried: all, make: func(t *testing.T) {
				s.during(t, infra, at.says, func(p *os.Process) {
					if err := p.Kill(); err != nil {
						t.Error(err)
					}
				}, "--image", s.otherImage(t))
			}},
			change{name: "API server killed at " + at.step, extra: at.step != "the proxy", tried: all, make: func(t *testing.T) {
				code, said := s.during(t, infra, at.says, func(*os.Process) {
					if err := s.cp.KillAPIServer(); err != nil {
						t.Error(err)
					}
					time.Sleep(5 * time.Second)
					if err := s.cp.StartAPIServer(t.Context()); err != nil {
						t.Error(err)
					}
				}, "--image", s.otherImage(t))
				if code != 0 || strings.Contains(said, "https://192.0.2.1") {
					t.Errorf("setup ended with %d", code)
				}
			}},
		)
	}
	return changes
}

// otherImage is the name of our image that DNS does not have now.
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

// admitted tells while the API server still admits a kind in the Infra's namespace.
func (s *site) admitted(t *testing.T, kind string) func() string {
	t.Helper()
	client := kube(t, s.cp)
	set, err := client.AppsV1().StatefulSets("clusters").Get(t.Context(), "demo-dns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := s.pods(t, "dns")[0]
	return func() (admitted string) {
		var err error
		if kind == "Pod" {
			_, err = client.CoreV1().Pods("clusters").Update(t.Context(), &pod, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		} else {
			_, err = client.AppsV1().StatefulSets("clusters").Update(t.Context(), set, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		}
		if err != nil && (strings.Contains(err.Error(), " here") || strings.Contains(err.Error(), "nobody.example.com")) {
			return ""
		}
		return fmt.Sprintf("%s: %v", kind, err)
	}
}

// policy refuses a resource in the Infra's namespace, and its binding comes with it.
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

// webhook is one for pods that nobody serves.
const webhook = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: nobody}
webhooks:
- name: nobody.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: 2
  clientConfig: {url: "https://192.0.2.1:1/"}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: clusters}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}]
`
