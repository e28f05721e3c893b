package manifests_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/test/lab"
)

// root is the path of the repository's root folder.
const root = "../../.."

// registered returns the labels of each metric that the source registers, by the metric's name. It reads the
// source and not a running daemon, because many metrics appear only after a failure.
func registered(t *testing.T) map[string][]string {
	t.Helper()
	s := &source{packages: map[string]*pkg{}, called: map[string][]callSite{}, metrics: map[string][]string{}}
	for _, folder := range []string{"corednsbuild", "coredhcpbuild", "internal", "plugins", "xdsd"} {
		s.parse(t, filepath.Join(root, folder), true)
	}
	for module, folder := range map[string][]string{
		"github.com/coredns/coredns":     {"plugin/metrics/vars"},
		"sigs.k8s.io/controller-runtime": {"pkg/metrics", "pkg/internal/controller/metrics"},
	} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		if err != nil {
			t.Fatalf("finding %s: %v", module, err)
		}
		for _, f := range folder {
			s.parse(t, filepath.Join(strings.TrimSpace(string(out)), f), false)
		}
	}
	s.index()
	for name := range s.called {
		for _, c := range s.called[name] {
			s.constructor(c)
		}
	}
	return s.metrics
}

// source is parsed Go code, in which string expressions are evaluated as far as metrics need it.
type source struct {
	packages map[string]*pkg // by folder
	called   map[string][]callSite
	metrics  map[string][]string
}

// callSite is a function call, and the function that contains it.
type callSite struct {
	in   *pkg
	from *function
	call *ast.CallExpr
}

// index records all calls by the name of the called function.
func (s *source) index() {
	for _, p := range s.packages {
		for _, f := range p.functions {
			ast.Inspect(f.body, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					_, name := names(call.Fun)
					s.called[name] = append(s.called[name], callSite{p, f, call})
				}
				return true
			})
		}
	}
}

type pkg struct {
	name      string
	values    map[string]ast.Expr // constants and variables
	functions []*function
}

// function is a function, or code outside of any function, which has no name.
type function struct {
	name   string
	params *ast.FieldList
	body   ast.Node
}

// scope is the context of an expression: its package, and the known values of parameters.
type scope struct {
	*pkg
	strings map[string]string
	lists   map[string][]string
}

func (s *source) parse(t *testing.T, folder string, deep bool) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != folder && (!deep || entry.Name() == "testdata"):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		p := s.packages[filepath.Dir(path)]
		if p == nil {
			p = &pkg{name: file.Name.Name, values: map[string]ast.Expr{}}
			s.packages[filepath.Dir(path)] = p
		}
		p.add(file)
		return nil
	})
	lab.Must(t, err)
}

func (p *pkg) add(file *ast.File) {
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			p.functions = append(p.functions, &function{name: f.Name.Name, params: f.Type.Params, body: f.Body})
		} else if !ok {
			p.functions = append(p.functions, &function{body: d})
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if i < len(n.Values) {
					p.values[name.Name] = n.Values[i]
				}
			}
		case *ast.AssignStmt: // name := func(...)
			if f, ok := n.Rhs[0].(*ast.FuncLit); ok {
				if name, ok := n.Lhs[0].(*ast.Ident); ok {
					p.functions = append(p.functions, &function{name: name.Name, params: f.Type.Params, body: f.Body})
				}
			}
		}
		return true
	})
}

// constructor records the metric that a call creates, once for each way in which the enclosing function is
// called.
func (s *source) constructor(c callSite) {
	name, labels := metric(c.call)
	if name == nil {
		return
	}
	for _, in := range append(s.calls(c.in, c.from, 0), scope{}) {
		in.pkg = c.in
		if full, ok := in.text(name); ok {
			s.metrics[full], _ = in.list(labels)
		}
	}
}

// metric returns the name and the labels of the metric that a call creates, or nil if the call does not have
// the shape of client_golang's constructors.
func metric(call *ast.CallExpr) (name, labels ast.Expr) {
	_, called := names(call.Fun)
	if !strings.HasPrefix(called, "New") || len(call.Args) == 0 {
		return nil, nil
	}
	if called == "NewDesc" && len(call.Args) == 4 {
		return call.Args[0], call.Args[2]
	}
	options, ok := call.Args[0].(*ast.CompositeLit)
	if !ok {
		return nil, nil
	}
	if _, kind := names(options.Type); !strings.HasSuffix(kind, "Opts") {
		return nil, nil
	}
	fields := map[string]ast.Expr{}
	for _, e := range options.Elts {
		if pair, ok := e.(*ast.KeyValueExpr); ok {
			_, key := names(pair.Key)
			fields[key] = pair.Value
		}
	}
	if fields["Name"] == nil {
		return nil, nil
	}
	if len(call.Args) > 1 && strings.HasSuffix(called, "Vec") {
		labels = call.Args[1]
	}
	return &ast.CallExpr{Fun: ast.NewIdent("BuildFQName"), Args: []ast.Expr{fields["Namespace"], fields["Subsystem"], fields["Name"]}}, labels
}

// calls returns the scopes with which a function is called.
func (s *source) calls(p *pkg, f *function, depth int) []scope {
	var all []scope
	if f.name == "" || f.params == nil || depth > 2 {
		return nil
	}
	for _, c := range s.called[f.name] {
		if by, _ := names(c.call.Fun); c.in != p && by != p.name {
			continue
		}
		for _, in := range append(s.calls(c.in, c.from, depth+1), scope{}) {
			in.pkg = c.in
			all = append(all, in.bind(f.params, c.call.Args))
		}
	}
	return all
}

// bind returns a scope with the values of parameters, as far as they are known.
func (in scope) bind(params *ast.FieldList, args []ast.Expr) scope {
	bound := scope{strings: map[string]string{}, lists: map[string][]string{}}
	i := 0
	for _, field := range params.List {
		for _, name := range field.Names {
			if _, rest := field.Type.(*ast.Ellipsis); rest {
				for _, a := range args[min(i, len(args)):] {
					if text, ok := in.text(a); ok {
						bound.lists[name.Name] = append(bound.lists[name.Name], text)
					}
				}
				if bound.lists[name.Name] == nil {
					bound.lists[name.Name] = []string{}
				}
			} else if i < len(args) {
				if text, ok := in.text(args[i]); ok {
					bound.strings[name.Name] = text
				}
			}
			i++
		}
	}
	return bound
}

// text evaluates a string expression.
func (in scope) text(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case nil:
		return "", true
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.Ident:
		if text, ok := in.strings[e.Name]; ok {
			return text, true
		}
		if v, ok := in.values[e.Name]; ok {
			return in.text(v)
		}
	case *ast.SelectorExpr:
		if pkg, name := names(e); pkg == "plugin" && name == "Namespace" {
			return "coredns", true
		}
	case *ast.CallExpr:
		if _, name := names(e.Fun); name != "BuildFQName" {
			return "", false
		}
		var parts []string
		for _, a := range e.Args {
			text, ok := in.text(a)
			if !ok {
				return "", false
			}
			if text != "" {
				parts = append(parts, text)
			}
		}
		return strings.Join(parts, "_"), len(parts) > 0
	}
	return "", false
}

// list evaluates an expression of a list of strings.
func (in scope) list(e ast.Expr) ([]string, bool) {
	switch e := e.(type) {
	case *ast.Ident:
		if list, ok := in.lists[e.Name]; ok {
			return list, true
		}
		if v, ok := in.values[e.Name]; ok {
			return in.list(v)
		}
	case *ast.CompositeLit:
		var all []string
		for _, element := range e.Elts {
			text, ok := in.text(element)
			if !ok {
				return nil, false
			}
			all = append(all, text)
		}
		return all, true
	case *ast.CallExpr: // append
		all, _ := in.list(e.Args[0])
		for _, a := range e.Args[1:] {
			if more, ok := in.list(a); ok {
				all = append(slices.Clone(all), more...)
			} else if text, ok := in.text(a); ok {
				all = append(slices.Clone(all), text)
			}
		}
		return all, true
	}
	return nil, false
}

// names splits package.Name, or Name without a package.
func names(e ast.Expr) (pkg, name string) {
	switch e := e.(type) {
	case *ast.Ident:
		return "", e.Name
	case *ast.SelectorExpr:
		_, pkg = names(e.X)
		return pkg, e.Sel.Name
	}
	return "", ""
}

// envoys returns the labels of each metric of an Envoy with this project's bootstrap. testdata has Envoy's
// own output; metrics that the current bootstrap excludes are excluded here, too.
func envoys(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("testdata/envoy-metrics.txt")
	lab.Must(t, err)
	rendered, err := os.ReadFile(filepath.Join(root, "xdsd/internal/bootstrap/testdata/sidecar.yaml"))
	lab.Must(t, err)
	var bootstrap struct {
		Stats struct {
			Matcher struct {
				Included struct {
					Patterns []struct{ Prefix, Suffix string } `json:"patterns"`
				} `json:"inclusion_list"`
			} `json:"stats_matcher"`
		} `json:"stats_config"`
	}
	lab.Must(t, yaml.Unmarshal(rendered, &bootstrap))
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
	for line := range strings.Lines(string(text)) {
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

// known returns the labels of each metric that alerts and dashboard may use. They are collected once for all
// tests.
func known(t *testing.T) map[string][]string {
	t.Helper()
	once.Do(func() { metrics = collect(t) })
	return metrics
}

var (
	once    sync.Once
	metrics map[string][]string
)

func collect(t *testing.T) map[string][]string {
	t.Helper()
	all := registered(t)
	for _, expected := range []string{ // one for each way to create a metric, to test the parser itself
		"coredns_oooi_problems", "coredns_hcpviews_requests_total", "coredns_hcpapps_requests_total", "coredns_dns_requests_total",
		"xdsd_problems", "xdsd_ready", "xdsd_ads_nacks_total", "xdsd_ads_ack_seconds", "coredhcp_dhcp4_dropped_total", "coredhcp_dhcp4_in_flight",
		"coredhcp_kubevirt_synced", "coredhcp_leasedb_addresses", "coredhcp_leasedb_store_seconds", "leader_election_master_status",
	} {
		if _, ok := all[expected]; !ok {
			t.Errorf("%s was not found in the source; found %q", expected, slices.Sorted(maps.Keys(all)))
		}
	}
	maps.Copy(all, envoys(t))
	all["up"] = nil // created by Prometheus
	return all
}
