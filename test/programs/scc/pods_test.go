package scc

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	securityv1 "github.com/openshift/api/security/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// testNamespace is an example of a namespace.
var testNamespace = Namespace{FirstUser: 1000690000, LastUser: 1000699999, Level: "s0:c26,c15"}

// constraint returns constraints that OpenShift ships.
func constraint(t *testing.T, name string) *securityv1.SecurityContextConstraints {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c := &securityv1.SecurityContextConstraints{}
	if err := yaml.UnmarshalStrict(text, c); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return c
}

// pods returns the pods that setup prints for the example and for a standalone ProxyServer, and the pod of xdsd
// ingress, by workload name.
func pods(t *testing.T, openshift string) map[string]*corev1.PodTemplateSpec {
	t.Helper()
	const example = "manifests/examples/demo/"
	all := printed(t, nil, "-f", example+"infra.yaml", "-f", example+"cluster.yaml", "--openshift="+openshift)
	maps.Copy(all, printed(t, nil, "-f", "test/programs/scc/testdata/edge.yaml", "--openshift="+openshift))
	ingress, err := os.ReadFile(filepath.Join("..", "..", "..", "manifests", "ingress", "controller", "deployment.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(all, podsIn(t, nil, ingress))
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, []string{"demo-dhcp", "demo-dns", "demo-proxy", "edge-proxy", "oooi-control", "oooi-ingress"}) {
		t.Fatalf("pods of %q", got)
	}
	return all
}

// printed returns the pods that setup prints, and adds the constraints that it prints to constraints.
func printed(t *testing.T, constraints map[string]*securityv1.SecurityContextConstraints, flags ...string) map[string]*corev1.PodTemplateSpec {
	t.Helper()
	args := []string{"run"}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race") // the build cache already has the packages with -race
	}
	cmd := exec.CommandContext(t.Context(), "go", slices.Concat(args, []string{"./kubectl-oooi", "setup", "--dry-run=client", "--image", "localhost/oooi:test"}, flags)...)
	cmd.Dir = filepath.Join("..", "..", "..")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.Bytes())
	}
	return podsIn(t, constraints, text)
}

// podsIn returns the pods of the objects in YAML, and adds their SecurityContextConstraints to constraints.
func podsIn(t *testing.T, constraints map[string]*securityv1.SecurityContextConstraints, text []byte) map[string]*corev1.PodTemplateSpec {
	t.Helper()
	all := map[string]*corev1.PodTemplateSpec{}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var head struct {
			Kind     string `json:"kind"`
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Spec map[string]any `json:"spec"`
		}
		if err := yaml.Unmarshal(document, &head); err != nil {
			t.Fatal(err)
		}
		var (
			pod *corev1.PodTemplateSpec
			err error
		)
		switch head.Kind {
		case "StatefulSet":
			set := &appsv1.StatefulSet{}
			err, pod = yaml.UnmarshalStrict(document, set), &set.Spec.Template
		case "SecurityContextConstraints":
			c := &securityv1.SecurityContextConstraints{}
			if err := yaml.UnmarshalStrict(document, c); err != nil {
				t.Fatalf("%s: %v", head.Metadata.Name, err)
			}
			constraints[c.Name] = c
			continue
		case "Deployment":
			deployment := &appsv1.Deployment{}
			err, pod = yaml.UnmarshalStrict(document, deployment), &deployment.Spec.Template
		default:
			if head.Spec["template"] != nil || head.Spec["containers"] != nil {
				t.Errorf("%s %s has pods, which this test does not evaluate", head.Kind, head.Metadata.Name)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s %s: %v", head.Kind, head.Metadata.Name, err)
		}
		all[head.Metadata.Name] = pod
	}
	return all
}

func violations(t *testing.T, c *securityv1.SecurityContextConstraints, pod *corev1.PodTemplateSpec) string {
	t.Helper()
	list, err := Violations(c, testNamespace, pod)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, "; ")
}

// podSecurityViolations returns the violations of the Pod Security level restricted by a pod.
func podSecurityViolations(t *testing.T, pod *corev1.PodTemplateSpec) string {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, version := range []api.Version{api.LatestVersion(), api.MajorMinorVersion(1, 30)} { // the oldest supported version
		result := policy.AggregateCheckResults(evaluator.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: version}, &pod.ObjectMeta, &pod.Spec))
		if !result.Allowed {
			reasons = append(reasons, version.String()+": "+result.ForbiddenDetail())
		}
	}
	return strings.Join(reasons, "; ")
}

// TestOpenShiftAdmitsPods checks that each pod is admitted by the constraints that it requires, and that
// these reject every change that needs more. With the constraints widened by exactly that, the change must be
// admitted, so that it is rejected for no other reason.
func TestOpenShiftAdmitsPods(t *testing.T) {
	for name, pod := range pods(t, "true") {
		required := pod.Annotations[securityv1.RequiredSCCAnnotation]
		if required != "restricted-v2" {
			t.Errorf("%s requires %q, want restricted-v2", name, required)
			continue
		}
		c := constraint(t, required)
		if reasons := violations(t, c, pod); reasons != "" {
			t.Errorf("%s: %s", name, reasons)
		}
		if reasons := podSecurityViolations(t, pod); reasons != "" {
			t.Errorf("%s: Pod Security: %s", name, reasons)
		}
		for _, change := range changes() {
			t.Run(name+"/"+change.name, func(t *testing.T) {
				changed, wide := pod.DeepCopy(), c.DeepCopy()
				change.pod(changed)
				if reasons := violations(t, c, changed); !strings.HasPrefix(reasons, change.refused) || (reasons == "") != (change.refused == "") {
					t.Errorf("violations of restricted-v2: %q, want %q", reasons, change.refused)
				}
				if change.widen != nil {
					change.widen(wide)
					if reasons := violations(t, wide, changed); reasons != "" {
						t.Errorf("violations of the wider constraints: %q", reasons)
					}
				}
				if reasons := podSecurityViolations(t, changed); (reasons != "") != change.insecure {
					t.Errorf("violations of Pod Security: %q", reasons)
				}
			})
		}
	}
}

// TestPodSecurityAdmitsPods checks the pods for Kubernetes without OpenShift. There they set a user ID, which
// restricted-v2 rejects; that is why setup has --openshift.
func TestPodSecurityAdmitsPods(t *testing.T) {
	c := constraint(t, "restricted-v2")
	for name, pod := range pods(t, "false") {
		if reasons := podSecurityViolations(t, pod); reasons != "" {
			t.Errorf("%s: %s", name, reasons)
		}
		reasons := violations(t, c, pod)
		if want := name != "oooi-control" && name != "oooi-ingress"; strings.Contains(reasons, "65532 is not in 1000690000-1000699999") != want {
			t.Errorf("%s: violations of restricted-v2: %q", name, reasons)
		}
	}
}

// TestContainersAreConfined checks what neither OpenShift nor Pod Security requires: no container can write
// to its image, and only containers that use the API server have a token, which is valid for an hour. The API
// server would extend a token with 3607 seconds, the value of automatically mounted ones, to a year.
func TestContainersAreConfined(t *testing.T) {
	var withToken []string
	for name, pod := range pods(t, "true") {
		if pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken {
			t.Errorf("%s: automountServiceAccountToken is not false", name)
		}
		tokens := map[string]bool{}
		for _, v := range pod.Spec.Volumes {
			if v.Projected == nil {
				continue
			}
			for _, s := range v.Projected.Sources {
				if s.ServiceAccountToken == nil {
					continue
				}
				tokens[v.Name] = true
				if seconds := s.ServiceAccountToken.ExpirationSeconds; seconds == nil || *seconds != 3600 {
					t.Errorf("%s: token with expirationSeconds %v", name, seconds)
				}
			}
		}
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if !is(c.SecurityContext.ReadOnlyRootFilesystem, true) {
				t.Errorf("%s: container %s can write to its image", name, c.Name)
			}
			for _, m := range c.VolumeMounts {
				if tokens[m.Name] {
					withToken = append(withToken, c.Name)
				}
			}
		}
	}
	slices.Sort(withToken)
	if want := []string{"control", "coredhcp", "coredns", "ingress", "xdsd", "xdsd"}; !slices.Equal(withToken, want) {
		t.Errorf("containers with a token: %q, want %q", withToken, want)
	}
}
