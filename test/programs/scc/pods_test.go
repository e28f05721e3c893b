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

// allotted is what a namespace may look like.
var allotted = Namespace{FirstUser: 1000690000, LastUser: 1000699999, Level: "s0:c26,c15"}

// constraint is one that OpenShift comes with.
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

// pods are those that setup prints for the example, and for a proxy alone, and that of the virtual
// ingress, by name.
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

// printed are the pods that setup prints. The constraints that it makes are added to those given.
func printed(t *testing.T, constraints map[string]*securityv1.SecurityContextConstraints, flags ...string) map[string]*corev1.PodTemplateSpec {
	t.Helper()
	args := []string{"run"}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race") // as the other tests have compiled it already
	}
	cmd := exec.CommandContext(t.Context(), "go", slices.Concat(args, []string{"./kubectl-oooi", "setup", "--dry-run=client"}, flags)...)
	cmd.Dir = filepath.Join("..", "..", "..")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.Bytes())
	}
	return podsIn(t, constraints, text)
}

// podsIn are the pods of objects in YAML, whose constraints are added to those given.
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
				t.Errorf("%s %s has pods, which are not looked at", head.Kind, head.Metadata.Name)
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

func refusals(t *testing.T, c *securityv1.SecurityContextConstraints, pod *corev1.PodTemplateSpec) string {
	t.Helper()
	list, err := Refusals(c, allotted, pod)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, "; ")
}

// insecure is what Pod Security has against a pod in a namespace that enforces restricted.
func insecure(t *testing.T, pod *corev1.PodTemplateSpec) string {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, version := range []api.Version{api.LatestVersion(), api.MajorMinorVersion(1, 30)} { // the oldest that we support
		result := policy.AggregateCheckResults(evaluator.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: version}, &pod.ObjectMeta, &pod.Spec))
		if !result.Allowed {
			reasons = append(reasons, version.String()+": "+result.ForbiddenDetail())
		}
	}
	return strings.Join(reasons, "; ")
}

// TestOpenShiftAdmitsOurPods has each pod be admitted by the constraint that it asks for by name,
// and by no wider one: every change that needs more is refused by it. The same change is admitted
// where the constraint is widened by what it needs, so that nothing else refuses it.
func TestOpenShiftAdmitsOurPods(t *testing.T) {
	for name, pod := range pods(t, "true") {
		required := pod.Annotations[securityv1.RequiredSCCAnnotation]
		if required != "restricted-v2" {
			t.Errorf("%s asks for %q", name, required)
			continue
		}
		c := constraint(t, required)
		if why := refusals(t, c, pod); why != "" {
			t.Errorf("%s: %s", name, why)
		}
		if why := insecure(t, pod); why != "" {
			t.Errorf("%s: Pod Security: %s", name, why)
		}
		for _, change := range changes() {
			t.Run(name+"/"+change.name, func(t *testing.T) {
				changed, wide := pod.DeepCopy(), c.DeepCopy()
				change.pod(changed)
				if why := refusals(t, c, changed); !strings.HasPrefix(why, change.refused) || (why == "") != (change.refused == "") {
					t.Errorf("restricted-v2 says %q, want %q", why, change.refused)
				}
				if change.widen != nil {
					change.widen(wide)
					if why := refusals(t, wide, changed); why != "" {
						t.Errorf("a wider one says %q", why)
					}
				}
				if why := insecure(t, changed); (why != "") != change.insecure {
					t.Errorf("Pod Security says %q", why)
				}
			})
		}
	}
}

// TestPodSecurityAdmitsOurPods is about Kubernetes that is not OpenShift. There our pods name their
// user, which restricted-v2 would refuse: hence --openshift.
func TestPodSecurityAdmitsOurPods(t *testing.T) {
	c := constraint(t, "restricted-v2")
	for name, pod := range pods(t, "false") {
		if why := insecure(t, pod); why != "" {
			t.Errorf("%s: %s", name, why)
		}
		why := refusals(t, c, pod)
		if want := name != "oooi-control" && name != "oooi-ingress"; strings.Contains(why, "65532 is not in 1000690000-1000699999") != want {
			t.Errorf("%s: restricted-v2 says %q", name, why)
		}
	}
}

// TestOurContainersAreConfined is about what neither asks for: no container can write to its image,
// and a token, for an hour, is in those that ask the API server alone. The 3607 seconds of the
// API server's own tokens would be a year.
func TestOurContainersAreConfined(t *testing.T) {
	var holders []string
	for name, pod := range pods(t, "true") {
		if pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken {
			t.Errorf("%s: a token is mounted by itself", name)
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
					t.Errorf("%s: a token for %v seconds", name, seconds)
				}
			}
		}
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if !is(c.SecurityContext.ReadOnlyRootFilesystem, true) {
				t.Errorf("%s: %s may write to its image", name, c.Name)
			}
			for _, m := range c.VolumeMounts {
				if tokens[m.Name] {
					holders = append(holders, c.Name)
				}
			}
		}
	}
	slices.Sort(holders)
	if want := []string{"control", "coredhcp", "coredns", "ingress", "xdsd", "xdsd"}; !slices.Equal(holders, want) {
		t.Errorf("a token is in %q, want %q", holders, want)
	}
}
