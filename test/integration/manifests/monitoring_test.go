package manifests_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

const monitoring = root + "/manifests/monitoring"

// rule is an alert.
type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

type ruleFile struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	} `json:"groups"`
}

func alerts(t *testing.T) []rule {
	t.Helper()
	var f ruleFile
	lab.Must(t, yaml.UnmarshalStrict(read(t, monitoring+"/alerts.yaml"), &f))
	var all []rule
	for _, g := range f.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("no alerts")
	}
	return all
}

// TestRuleObject checks that rules.yaml has the rules of alerts.yaml.
func TestRuleObject(t *testing.T) {
	const head = `# alerts.yaml as an object of the Prometheus operator, written by: go test ./test/integration/manifests -update
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: oooi
  namespace: oooi-system
  labels: {app.kubernetes.io/part-of: oooi}
spec:
`
	_, groups, ok := strings.Cut(string(read(t, monitoring+"/alerts.yaml")), "\ngroups:\n")
	if !ok {
		t.Fatal("alerts.yaml lacks groups")
	}
	golden.Check(t, monitoring+"/rules.yaml", head+"  "+strings.TrimRight(strings.ReplaceAll("groups:\n"+groups, "\n", "\n  "), " "))
}

// TestAlertsFire runs the unit tests of the alerts, and checks that every alert has one in which it fires.
func TestAlertsFire(t *testing.T) {
	promtool(t, monitoring, "check", "rules", "alerts.yaml")
	promtool(t, monitoring, "test", "rules", "alerts_test.yaml")
	text := string(read(t, monitoring+"/alerts_test.yaml"))
	for _, r := range alerts(t) {
		if !strings.Contains(text, `{labels: 'ALERTS{alertname="`+r.Alert+`",alertstate="firing",`) {
			t.Errorf("%s: no test in which it fires", r.Alert)
		}
	}
}

var (
	reference = regexp.MustCompile(`\$labels\.(\w+)`)
	grouped   = regexp.MustCompile(`\bby \(([^)]*)\)`)
)

// TestAlertsAreComplete checks each alert's name, labels, annotations and runbook.
func TestAlertsAreComplete(t *testing.T) {
	metrics := known(t)
	runbook := string(read(t, root+"/docs/reference/alerts.md"))
	seen := map[string]bool{}
	for _, r := range alerts(t) {
		if seen[r.Alert] || !strings.HasPrefix(r.Alert, "Oooi") {
			t.Errorf("%s: duplicate name, or no prefix Oooi", r.Alert)
		}
		seen[r.Alert] = true
		if s := r.Labels["severity"]; s != "warning" && s != "critical" {
			t.Errorf("%s: severity %q", r.Alert, s)
		}
		if a := r.Annotations; a["summary"] == "" || len(a["summary"]) > 80 || len(a["description"]) < 80 {
			t.Errorf("%s: summary %q, description %q", r.Alert, a["summary"], a["description"])
		}
		anchor := strings.ToLower(r.Alert)
		if want := "https://github.com/densityops/oooi/blob/main/docs/reference/alerts.md#" + anchor; r.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
		}
		if !strings.Contains(runbook, "\n### "+r.Alert+"\n") {
			t.Errorf("%s: docs/reference/alerts.md has no heading for it", r.Alert)
		}
		checkExpression(t, r.Alert, r.Expr, metrics)
		for _, text := range r.Annotations {
			for _, m := range reference.FindAllStringSubmatch(text, -1) {
				for _, by := range grouped.FindAllStringSubmatch(r.Expr, -1) {
					if !slices.Contains(strings.Split(by[1], ", "), m[1]) {
						t.Errorf("%s: the text uses label %s, which %s removes", r.Alert, m[1], by[0])
					}
				}
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^### (Oooi\w+)$`).FindAllStringSubmatch(runbook, -1) {
		if !seen[m[1]] {
			t.Errorf("docs/reference/alerts.md has a heading for %s, which is not an alert", m[1])
		}
	}
}

// targets are the labels that Prometheus adds to metrics of the pods.
var targets = []string{"namespace", "pod", "container", "job", "instance", "endpoint", "app_kubernetes_io_component", "hostedcluster_densityops_com_infra"}

var (
	quoted   = regexp.MustCompile(`"[^"]*"`)
	selector = regexp.MustCompile(`(\w+)\s*\{([^}]*)\}`)
	matcher  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)
	clause   = regexp.MustCompile(`\b(by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	duration = regexp.MustCompile(`\[[^\]]*\]|\boffset\s+\w+`)
	word     = regexp.MustCompile(`[a-zA-Z_:][\w:]*(\s*\()?`)
)

// checkExpression reports metrics that do not exist, and labels that they do not have. promtool checks the
// syntax.
func checkExpression(t *testing.T, subject, expr string, metrics map[string][]string) {
	t.Helper()
	labelsOf := func(name string) ([]string, bool) {
		if of, ok := metrics[name]; ok {
			return of, true
		}
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, ok := strings.CutSuffix(name, suffix); ok {
				if of, ok := metrics[base]; ok {
					return append([]string{"le"}, of...), true
				}
			}
		}
		return nil, false
	}
	expr = quoted.ReplaceAllString(expr, `""`)
	expr = duration.ReplaceAllString(expr, "")
	for _, s := range selector.FindAllStringSubmatch(expr, -1) {
		of, _ := labelsOf(s[1])
		for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
			if !slices.Contains(of, m[1]) && !slices.Contains(targets, m[1]) {
				t.Errorf("%s: %s has no label %s, but %q", subject, s[1], m[1], of)
			}
		}
	}
	expr = selector.ReplaceAllString(expr, "$1")
	plain := clause.ReplaceAllString(expr, "")
	all, found := slices.Clone(targets), 0
	for _, w := range word.FindAllString(plain, -1) {
		if strings.HasSuffix(w, "(") || slices.Contains([]string{"and", "or", "unless", "bool"}, w) {
			continue
		}
		of, ok := labelsOf(w)
		if !ok {
			t.Errorf("%s: no code registers metric %s", subject, w)
		}
		all = append(all, of...)
		found++
	}
	if found == 0 {
		t.Errorf("%s: no metric in %q", subject, expr)
	}
	for _, c := range clause.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(c[2], ",") {
			if label = strings.TrimSpace(label); label != "" && !slices.Contains(all, label) {
				t.Errorf("%s: %s (%s): no metric in it has label %s", subject, c[1], c[2], label)
			}
		}
	}
}

// TestDashboard checks the layout of the dashboard, and the queries of every panel.
func TestDashboard(t *testing.T) {
	type target struct {
		Expr string `json:"expr"`
	}
	var d struct {
		UID    string `json:"uid"`
		Panels []struct {
			ID          int      `json:"id"`
			Type        string   `json:"type"`
			Title       string   `json:"title"`
			Description string   `json:"description"`
			Targets     []target `json:"targets"`
			GridPos     struct{ H, W, X, Y int }
		} `json:"panels"`
	}
	lab.Must(t, json.Unmarshal(read(t, monitoring+"/dashboard.json"), &d))
	metrics := known(t)
	ids, places := map[int]bool{}, map[[2]int]bool{}
	var rows []string
	var rules []map[string]string
	for _, p := range d.Panels {
		if ids[p.ID] || places[[2]int{p.GridPos.X, p.GridPos.Y}] || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s: id or position is used by another panel", p.Title)
		}
		ids[p.ID], places[[2]int{p.GridPos.X, p.GridPos.Y}] = true, true
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		if len(p.Targets) == 0 || p.Description == "" {
			t.Errorf("%s: no query, or no description", p.Title)
		}
		for _, q := range p.Targets {
			checkExpression(t, p.Title, q.Expr, metrics)
			// Replace variables like Grafana.
			expr := strings.NewReplacer("$__rate_interval", "5m", "$namespace", ".*").Replace(q.Expr)
			rules = append(rules, map[string]string{"record": "dashboard", "expr": expr})
		}
	}
	if want := []string{"DNS", "DHCP", "Proxy", "Egress", "State"}; d.UID != "oooi" || !slices.Equal(rows, want) {
		t.Errorf("dashboard %q with rows %q, want %q", d.UID, rows, want)
	}
	// With one file of rules promtool checks all expressions in one run.
	for i := range rules {
		rules[i]["record"] += strings.Repeat(":x", i+1) // unique names
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	lab.Must(t, err)
	folder := t.TempDir()
	lab.Must(t, os.WriteFile(filepath.Join(folder, "dashboard.yaml"), text, 0o600))
	promtool(t, folder, "check", "rules", "dashboard.yaml")
}

// podMonitor has the fields of a PodMonitor that the test uses.
type podMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port string `json:"port"`
			Path string `json:"path"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

// TestPodMonitors checks that PodMonitors select the port and path of each container with metrics, in the
// pods that setup renders for the example and in control's.
func TestPodMonitors(t *testing.T) {
	var monitors []podMonitor
	for _, text := range documents(read(t, monitoring+"/podmonitor.yaml")) {
		var m podMonitor
		lab.Must(t, yaml.Unmarshal(text, &m))
		monitors = append(monitors, m)
	}
	var rendered []byte
	for _, application := range []string{"shared", "demo/overlay"} {
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), root+"/manifests/examples/"+application)
		lab.Must(t, err)
		text, err := built.AsYaml()
		lab.Must(t, err)
		rendered = append(append(rendered, text...), "---\n"...)
	}
	got := map[string]bool{}
	for _, text := range documents(rendered) {
		var workload struct {
			Spec struct {
				Template corev1.PodTemplateSpec `json:"template"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal(text, &workload); err != nil {
			continue // a kind with another spec
		}
		pod := workload.Spec.Template
		for _, m := range monitors {
			selected, err := metav1.LabelSelectorAsSelector(&m.Spec.Selector)
			lab.Must(t, err)
			if len(pod.Spec.Containers) == 0 || !selected.Matches(labels.Set(pod.Labels)) {
				continue
			}
			for _, e := range m.Spec.Endpoints {
				for _, c := range pod.Spec.Containers {
					for _, port := range c.Ports {
						if port.Name == e.Port {
							got[pod.Labels["app.kubernetes.io/component"]+" "+c.Name+" "+port.Name+e.Path] = true
						}
					}
				}
			}
		}
	}
	want := []string{
		"control control health/metrics", "dhcp coredhcp health/metrics", "dns coredns metrics/metrics",
		"proxy envoy envoy/stats/prometheus", "proxy xdsd health/metrics",
	}
	if scraped := slices.Sorted(maps.Keys(got)); !slices.Equal(scraped, want) {
		t.Errorf("scraped from the pods: %q, want %q", scraped, want)
	}
	jobs := "oooi-(dns|daemons|envoy)" // in alerts and dashboard
	for _, m := range monitors {
		if !regexp.MustCompile("^" + jobs + "$").MatchString(m.Name) {
			t.Errorf("alerts do not match the targets of %s", m.Name)
		}
	}
}

func documents(text []byte) [][]byte { return bytes.Split(text, []byte("\n---\n")) }

// TestDocumentedKustomizations builds the kustomizations of docs/how-to/monitor.md.
func TestDocumentedKustomizations(t *testing.T) {
	folder := t.TempDir() // kustomizations in it use only relative paths
	lab.Must(t, os.CopyFS(folder, os.DirFS(root+"/manifests")))
	page := string(read(t, root+"/docs/how-to/monitor.md"))
	var namespaces []string
	for _, m := range regexp.MustCompile("(?s)\n   ```yaml\n(.*?)\n   ```\n").FindAllStringSubmatch(page, -1) {
		if !strings.Contains(m[1], "kind: Kustomization") {
			continue
		}
		overlay, err := os.MkdirTemp(folder, "overlay") //nolint:usetesting // the overlay refers to directories beside it
		lab.Must(t, err)
		lab.Must(t, os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(m[1]), 0o600))
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), overlay)
		if err != nil {
			t.Fatalf("building\n%s\n%v", m[1], err)
		}
		namespace := "oooi-system"
		for _, r := range built.Resources() {
			if r.GetKind() == "PrometheusRule" {
				namespace = r.GetNamespace()
				checkRules(t, namespace, r.MustYaml())
			}
		}
		namespaces = append(namespaces, namespace)
		var got []string
		for _, r := range built.Resources() {
			got = append(got, r.GetKind()+" "+r.GetNamespace()+"/"+r.GetName())
			if r.GetLabels()["app.kubernetes.io/managed-by"] != "oooi" {
				t.Errorf("%s has no label managed-by", r.CurId())
			}
		}
		slices.Sort(got)
		want := []string{
			"ConfigMap " + namespace + "/oooi-dashboard", "PodMonitor " + namespace + "/oooi-daemons", "PodMonitor " + namespace + "/oooi-dns",
			"PodMonitor " + namespace + "/oooi-envoy", "PrometheusRule " + namespace + "/oooi",
		}
		if !slices.Equal(got, want) {
			t.Errorf("built %q, want %q", got, want)
		}
	}
	if want := []string{"oooi-system", "clusters"}; !slices.Equal(namespaces, want) {
		t.Errorf("docs/how-to/monitor.md has kustomizations for %q, want %q", namespaces, want)
	}
}

// checkRules checks that a PrometheusRule has all alerts. In the namespace of an Infra OooiControlAbsent is
// missing, because control does not run there.
func checkRules(t *testing.T, namespace, object string) {
	t.Helper()
	var built struct {
		Spec ruleFile `json:"spec"`
	}
	lab.Must(t, yaml.Unmarshal([]byte(object), &built))
	var got, want []string
	for _, g := range built.Spec.Groups {
		for _, r := range g.Rules {
			got = append(got, r.Alert)
		}
	}
	for _, r := range alerts(t) {
		if namespace == "oooi-system" || r.Alert != "OooiControlAbsent" {
			want = append(want, r.Alert)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("in namespace %s: alerts %q, want %q", namespace, got, want)
	}
}
