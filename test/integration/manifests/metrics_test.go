package manifests_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	_ "github.com/coredns/coredns/plugin/metrics/vars" // registers the metrics of CoreDNS
	"github.com/prometheus/client_golang/prometheus"
	_ "sigs.k8s.io/controller-runtime/pkg/controller" // registers the metrics of controllers
	runtimemetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	_ "github.com/densityops/oooi/plugins/hcpapps"
	_ "github.com/densityops/oooi/plugins/hcpviews"
	"github.com/densityops/oooi/plugins/kubevirt"
	"github.com/densityops/oooi/plugins/leasedb"
	"github.com/densityops/oooi/test/lab"
)

// root is the path of the repository's root folder.
const root = "../../.."

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	lab.Must(t, err)
	return text
}

// description matches the text of a prometheus.Desc, from which name and labels cannot be read otherwise.
var description = regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{([^}]*)\}\}$`)

// registered returns the labels of each metric of the daemons, by the metric's name. Metrics of packages that tests cannot import are
// read from the source; not from a running daemon, because many metrics appear only after a failure.
func registered(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, c := range []any{prometheus.DefaultRegisterer, runtimemetrics.Registry, kubevirt.Collector(), leasedb.Collector()} {
		collector, ok := c.(interface {
			Describe(ch chan<- *prometheus.Desc)
		})
		if !ok {
			t.Fatalf("%T does not describe its metrics", c)
		}
		descriptions := make(chan *prometheus.Desc)
		go func() { collector.Describe(descriptions); close(descriptions) }()
		for d := range descriptions {
			parts := description.FindStringSubmatch(d.String())
			if parts == nil {
				t.Fatalf("unknown format of a description: %s", d)
			}
			all[parts[1]] = strings.FieldsFunc(parts[2], func(r rune) bool { return r == ',' })
		}
	}
	for _, folder := range []string{"coredhcpbuild", "xdsd"} {
		lab.Must(t, filepath.WalkDir(filepath.Join(root, folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && len(call.Args) > 0 {
					if name, labels := metric(call); name != "" {
						all[name] = labels
					}
				}
				return true
			})
			return nil
		}))
	}
	return all
}

// metricName matches the names of metrics in the source, which has them in full.
var metricName = regexp.MustCompile(`^(coredhcp|xdsd)_\w+$`)

// metric returns the name and the labels of the metric that a call creates, or "" if it creates none. The call has the name, the help
// and the labels as arguments, or an Opts with Name and the labels.
func metric(call *ast.CallExpr) (name string, labels []string) {
	first, rest := call.Args[0], call.Args[1:]
	if options, ok := first.(*ast.CompositeLit); ok {
		for _, e := range options.Elts {
			if pair, ok := e.(*ast.KeyValueExpr); ok {
				if key, ok := pair.Key.(*ast.Ident); ok && key.Name == "Name" {
					first = pair.Value
				}
			}
		}
	} else if len(rest) > 0 {
		rest = rest[1:]
	}
	if names := literals(first); len(names) == 1 && metricName.MatchString(names[0]) {
		return names[0], literals(rest...)
	}
	return "", nil
}

// literals returns the strings in string literals, and in literals of lists of strings.
func literals(list ...ast.Expr) (all []string) {
	for _, e := range list {
		switch e := e.(type) {
		case *ast.BasicLit:
			if text, err := strconv.Unquote(e.Value); err == nil {
				all = append(all, text)
			}
		case *ast.CompositeLit:
			all = append(all, literals(e.Elts...)...)
		}
	}
	return all
}

// envoys returns the labels of each metric of an Envoy with this project's bootstrap. testdata has Envoy's
// own output; metrics that the current bootstrap excludes are excluded here, too.
func envoys(t *testing.T) map[string][]string {
	t.Helper()
	var bootstrap struct {
		Stats struct {
			Matcher struct {
				Included struct {
					Patterns []struct{ Prefix, Suffix string } `json:"patterns"`
				} `json:"inclusion_list"`
			} `json:"stats_matcher"`
		} `json:"stats_config"`
	}
	lab.Must(t, yaml.Unmarshal(read(t, root+"/xdsd/internal/bootstrap/testdata/sidecar.yaml"), &bootstrap))
	var prefixes, suffixes []string
	for _, p := range bootstrap.Stats.Matcher.Included.Patterns {
		if p.Prefix != "" {
			prefixes = append(prefixes, strings.ReplaceAll(p.Prefix, ".", "_"))
		} else {
			suffixes = append(suffixes, strings.ReplaceAll(p.Suffix, ".", "_"))
		}
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "xdsd/internal/message/stats.go"), nil, 0)
	lab.Must(t, err)
	ast.Inspect(file, func(n ast.Node) bool { // the stats of clusters and of some clusters
		if literal, ok := n.(*ast.BasicLit); ok {
			value, _ := strconv.Unquote(literal.Value)
			suffixes = append(suffixes, "_"+strings.ReplaceAll(value, ".", "_"))
		}
		return true
	})
	all := map[string][]string{}
	for line := range strings.Lines(string(read(t, "testdata/envoy-metrics.txt"))) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		name := strings.TrimPrefix(fields[0], "envoy_")
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) ||
			slices.ContainsFunc(suffixes, func(p string) bool { return strings.HasSuffix(name, p) }) {
			all[fields[0]] = fields[1:]
		}
	}
	return all
}

// known returns the labels of each metric that alerts and dashboard may use.
func known(t *testing.T) map[string][]string {
	t.Helper()
	all := registered(t)
	maps.Copy(all, envoys(t))
	all["up"] = nil // created by Prometheus
	return all
}

// TestMetricsReference checks that docs/reference/metrics.md has a row for each metric, with its labels.
func TestMetricsReference(t *testing.T) {
	page := string(read(t, root+"/docs/reference/metrics.md"))
	rows := map[string][]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (?:counter|gauge|histogram) \\| ([^|]*)\\|").FindAllStringSubmatch(page, -1) {
		rows[m[1]] = []string{}
		for _, label := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(m[2], -1) {
			rows[m[1]] = append(rows[m[1]], label[1])
		}
	}
	metrics := known(t)
	for name, labels := range metrics {
		own := slices.ContainsFunc([]string{"oooi_", "coredns_oooi_", "coredns_hcp", "coredns_vlan_", "coredhcp_", "xdsd_", "envoy_"}, func(p string) bool { return strings.HasPrefix(name, p) })
		if documented, ok := rows[name]; own && (!ok || !slices.Equal(slices.Sorted(slices.Values(labels)), slices.Sorted(slices.Values(documented)))) {
			t.Errorf("docs/reference/metrics.md has no row for %s with labels %q", name, labels)
		}
	}
	for name := range rows {
		if _, ok := metrics[name]; !ok {
			t.Errorf("docs/reference/metrics.md has a row for %s, which no code registers", name)
		}
	}
}
