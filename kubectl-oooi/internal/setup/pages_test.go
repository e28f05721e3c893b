package setup

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/kubectl-oooi/internal/site"
	"github.com/densityops/oooi/test/lab"
)

// infrasOf returns the Infras in YAML blocks of a page of docs/how-to, without indentation.
func infrasOf(t *testing.T, page string) (texts []string) {
	t.Helper()
	for _, block := range regexp.MustCompile("(?s)( *)```yaml\n( *apiVersion: [^\n]*\n *kind: Infra\n.*?)```").
		FindAllStringSubmatch(string(lab.ReadFile(t, "docs", "how-to", page)), -1) {
		texts = append(texts, strings.TrimPrefix(strings.ReplaceAll("\n"+block[2], "\n"+block[1], "\n"), "\n"))
	}
	return texts
}

// withCluster returns the input for an Infra, with a hosted cluster of the same name and the network of manifests/examples/demo.
func withCluster(t *testing.T, infra string) *Known {
	t.Helper()
	var u unstructured.Unstructured
	lab.Must(t, yaml.Unmarshal([]byte(infra), &u.Object))
	cluster := strings.ReplaceAll(string(lab.ReadFile(t, "manifests", "examples", "demo", "cluster.yaml")), "demo", u.GetName())
	file := filepath.Join(t.TempDir(), "infra.yaml")
	lab.Must(t, os.WriteFile(file, []byte(infra+"\n---\n"+cluster), 0o600))
	known := knownOf(t, file)
	known.Shared, known.ControlPlane = SharedNone, true
	return known
}

// A project is an AppProject of Argo CD.
type project struct {
	Metadata struct{ Name string }
	Spec     struct {
		Destinations             []struct{ Namespace string }
		ClusterResourceWhitelist []metav1.GroupKind
	}
}

// permits reports whether the project permits an object, as Argo CD does.
func (p *project) permits(o *unstructured.Unstructured) bool {
	if o.GetNamespace() == "" {
		gvk := o.GroupVersionKind()
		return slices.Contains(p.Spec.ClusterResourceWhitelist, metav1.GroupKind{Group: gvk.Group, Kind: gvk.Kind})
	}
	return slices.ContainsFunc(p.Spec.Destinations, func(d struct{ Namespace string }) bool {
		ok, err := path.Match(d.Namespace, o.GetNamespace())
		return ok && err == nil
	})
}

// projectsOf returns the AppProjects of docs/how-to/fleets.md by name.
func projectsOf(t *testing.T) map[string]*project {
	t.Helper()
	all := map[string]*project{}
	for _, block := range regexp.MustCompile("(?s)```yaml\n([^`]*kind: AppProject\n.*?)```").FindAllSubmatch(lab.ReadFile(t, "docs", "how-to", "fleets.md"), -1) {
		p := &project{}
		lab.Must(t, yaml.Unmarshal(block[1], p))
		all[p.Metadata.Name] = p
	}
	return all
}

// TestFleetPage renders the Infras of docs/how-to/fleets.md, whose hosted clusters share a VLAN: setup accepts each next to the other,
// they have no object in common, and the AppProjects of the page permit the objects.
func TestFleetPage(t *testing.T) {
	projects := projectsOf(t)
	if len(projects) != 2 {
		t.Fatalf("docs/how-to/fleets.md has %d AppProjects", len(projects))
	}
	texts := infrasOf(t, "fleets.md")
	if len(texts) != 2 {
		t.Fatalf("docs/how-to/fleets.md has %d Infras", len(texts))
	}
	owners := map[string]string{}
	for i, text := range texts {
		known := withCluster(t, text)
		known.live.Add(objectOf(site.Infras, withCluster(t, texts[1-i]).Infra))
		plan, err := Make(known, exampleImages)
		if err != nil {
			t.Fatalf("an Infra of the page next to the other: %v", err)
		}
		for _, o := range plan.Objects {
			id := fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
			if owners[id] != "" {
				t.Errorf("Infras %s and %s both have %s", owners[id], plan.Infra.Name, id)
			}
			owners[id] = plan.Infra.Name
			if !projects["oooi-infras"].permits(o) {
				t.Errorf("the AppProject of the Infras does not permit %s", id)
			}
		}
	}
	checkDefaultNetwork(t, texts[0], projects["oooi-infras"])
	shared := withCluster(t, texts[0])
	shared.Shared = SharedOnly
	for _, o := range makePlan(t, shared).Objects {
		if !projects["oooi-shared"].permits(o) || o.GetNamespace() == "" && projects["oooi-infras"].permits(o) {
			t.Errorf("the AppProjects do not permit %s %s, or both do", o.GetKind(), o.GetName())
		}
	}
	taken := withCluster(t, strings.ReplaceAll(texts[1], "192.168.100.6", "192.168.100.3"))
	taken.live.Add(objectOf(site.Infras, withCluster(t, texts[0]).Infra))
	if _, err := Make(taken, exampleImages); err == nil || !strings.Contains(err.Error(), "192.168.100.3") {
		t.Errorf("an address of the other Infra is accepted: %v", err)
	}
}

// checkDefaultNetwork checks that the project needs the destination that docs/how-to/fleets.md adds for networks in namespace default, and
// no other.
func checkDefaultNetwork(t *testing.T, infra string, p *project) {
	t.Helper()
	if !strings.Contains(string(lab.ReadFile(t, "docs", "how-to", "fleets.md")), "`{server: https://kubernetes.default.svc, namespace: default}`") {
		t.Error("docs/how-to/fleets.md lacks the destination for networks in namespace default")
	}
	known := withCluster(t, strings.Replace(infra, ": vlan100", ": default/vlan100", 1))
	for _, o := range known.files {
		if o.GetKind() == "NetworkAttachmentDefinition" {
			o.SetNamespace("default")
		}
	}
	var kinds []string
	for _, o := range makePlan(t, known).Objects {
		if p.permits(o) {
			continue
		}
		kinds = append(kinds, o.GetKind())
		if o.GetNamespace() != "default" {
			t.Errorf("the AppProject does not permit %s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
		}
	}
	if slices.Sort(kinds); !slices.Equal(kinds, []string{"Role", "RoleBinding"}) {
		t.Errorf("objects in namespace default: %s", kinds)
	}
}

// A usage is what the pods of a plan request.
type usage struct{ objects, pods, containers, cpu, memory int }

func usageOf(t *testing.T, known *Known) (u usage) {
	t.Helper()
	plan := makePlan(t, known)
	u.objects = len(plan.Objects)
	for _, o := range plan.Objects {
		var set appsv1.StatefulSet // a Deployment has the same fields
		if o.GetKind() != "StatefulSet" && o.GetKind() != "Deployment" {
			continue
		}
		lab.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &set))
		replicas := int(*set.Spec.Replicas)
		u.pods += replicas
		for _, c := range set.Spec.Template.Spec.Containers {
			u.containers += replicas
			u.cpu += replicas * int(c.Resources.Requests.Cpu().MilliValue())
			u.memory += replicas * int(c.Resources.Requests.Memory().Value()>>20)
		}
	}
	return u
}

// TestCapacityPage compares the sums of docs/reference/capacity.md with what setup renders.
func TestCapacityPage(t *testing.T) {
	page := string(lab.ReadFile(t, "docs", "reference", "capacity.md"))
	expect := func(format string, args ...any) {
		t.Helper()
		if row := fmt.Sprintf(format, args...); !strings.Contains(page, "\n"+row+"\n") {
			t.Errorf("docs/reference/capacity.md lacks the row\n%s", row)
		}
	}
	replicas := func(page string) (plain, apps usage) {
		infra := infrasOf(t, page)[0]
		ingress := "  appsIngress: {enabled: true, metallb: {addressPoolName: vlan100, loadBalancerClass: metallb.io/vlan100}}\n"
		return usageOf(t, withCluster(t, infra)), usageOf(t, withCluster(t, infra+ingress))
	}
	one, oneApps := replicas("set-up-a-vlan.md")
	two, twoApps := replicas("add-replicas.md")
	known := withCluster(t, infrasOf(t, "set-up-a-vlan.md")[0])
	known.Shared = SharedOnly
	shared := usageOf(t, known)

	expect("| one replica | %d | %d | %dm | %dMi |", one.pods, one.containers, one.cpu, one.memory)
	expect("| two replicas | %d | %d | %dm | %dMi |", two.pods, two.containers, two.cpu, two.memory)
	expect("| control, for all Infras | %d | %d | %dm | %dMi |", shared.pods, shared.containers, shared.cpu, shared.memory)
	expect("| rendered by setup | %d | %d | %d |", one.objects, two.objects, shared.objects)
	expect("| the same with apps ingress | %d | %d | %d |", oneApps.objects, twoApps.objects, shared.objects)
	for _, u := range []usage{one, two} {
		total := func(shared, each int) []any { return []any{shared + each, shared + 10*each, shared + 100*each} }
		expect("| pods | %d | %d | %d |", total(shared.pods, u.pods)...)
		expect("| CPU requests | %dm | %dm | %dm |", total(shared.cpu, u.cpu)...)
		expect("| memory requests | %dMi | %dMi | %dMi |", total(shared.memory, u.memory)...)
		expect("| objects that setup renders | %d | %d | %d |", total(shared.objects, u.objects)...)
	}
}
