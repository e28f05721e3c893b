package cmdtest

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// shared are documents for the transcripts of all packages.
//
//go:embed documents
var shared embed.FS

// A Command of a transcript gets the text after its name, and returns its output.
type Command func(argument string) []string

// Transcripts runs the transcripts DIR/*.txt, each on a site that start returns with additional commands. A line is one of:
//
//	file NAME ... [: OLD => NEW ; ...]   replaces the file FILE by documents with these replacements
//	apply, delete, status DOCUMENT       applies or deletes objects, or applies their status
//	patch KIND NAME JSON                 waits for an object and changes it as field manager another-manager
//	get KIND NAME JSONPATH               prints fields of the objects whose names match
//	as USER                              runs the next lines as a user, or as the administrator
//	COMMAND ...                          runs a command line of kubectl oooi
//
// A DOCUMENT is infra for the site's Infra, NAME for NAME.yaml in the directory documents beside this file or in DIR, a path below the
// repository's root without .yaml, or an object in YAML. $NS stands for the site's namespace and $BRIDGE for its bridge. Commands
// run with --namespace, and setup without waiting for components, unless it has --wait.
//
// Standard error comes before standard output, and after "exit CODE" unless that is 0. After " | TEXT", the output consists of the
// lines with TEXT; without it, the output has no lines about single objects. Setup that waits prints no progress. A command that
// fails, compares or is a dry run must change no object, unless setup waits.
func Transcripts(t *testing.T, dir string, start func(*testing.T) (*Site, map[string]Command)) {
	t.Helper()
	golden.Files(t, filepath.Join(dir, "*.txt"), func(t *testing.T, file string) {
		s, commands := start(t)
		r := &transcript{Site: s, dir: dir, infra: s.Infra, admin: s.Kubeconfig}
		all := map[string]Command{"file": r.file, "apply": r.apply, "delete": r.delete, "status": r.status, "patch": r.patch, "get": r.get, "as": r.as}
		maps.Copy(all, commands)
		golden.Transcript(t, file, func(line string) []string { return r.run(all, line) })
	})
}

type transcript struct {
	*Site

	dir, infra, admin string
}

// run returns the output of a line.
func (r *transcript) run(commands map[string]Command, line string) (output []string) {
	line, filter, filtered := strings.Cut(strings.NewReplacer("$NS", r.Namespace, "$BRIDGE", r.Bridge).Replace(line), " | ")
	name, argument, _ := strings.Cut(line, " ")
	if name == "status" && !strings.HasPrefix(argument, "{") {
		name = "" // the command of kubectl oooi
	}
	if command := commands[name]; command != nil {
		output = command(argument)
	} else {
		output = r.command(line, filtered)
	}
	var shown []string
	for _, o := range output {
		if !filtered || strings.HasPrefix(o, "exit ") || strings.Contains(o, filter) {
			shown = append(shown, r.normalized(o))
		}
	}
	return shown
}

var (
	// varying matches texts that differ between sites: the hash in the name of a ConfigMap or network, the IP of a Service, the
	// path of FILE, a host, the name of a pod that cannot be created, a time and an age.
	varying = []struct {
		text *regexp.Regexp
		as   string
	}{
		{regexp.MustCompile(`(-(?:dhcp|dns|proxy)(?:-\d+){0,4})-[0-9a-f]{8}\b`), "$1-HASH"},
		{regexp.MustCompile(`\b10\.96\.\d+\.\d+`), "CLUSTERIP"},
		{regexp.MustCompile(`/\S+/infra\.yaml`), "FILE"},
		{regexp.MustCompile(`(by process \d+ on) \S+`), "$1 HOST"},
		{regexp.MustCompile(`pods "[^"]+"`), `pods "POD"`},
		{regexp.MustCompile(`\b20\d{2}-[0-9T:-]+Z\b`), "TIME"},
		{regexp.MustCompile(` {3}(\d+m)?\d+s( {3}|$)`), "   AGE   "},
	}
	// usual matches lines about one object, and lines that do not depend on the test.
	usual = regexp.MustCompile(`^[A-Z][a-zA-Z]+ [a-z0-9./-]+( (created|configured|unchanged|deleted)( \(server dry run\))?)?$|` +
		`^To resolve these names in pods|^Namespace oooi-system is kept: setup did not create it$`)
)

// normalized returns a line of output as it is on every site.
func (r *transcript) normalized(line string) string {
	for _, v := range varying {
		line = v.text.ReplaceAllString(line, v.as)
	}
	if r.Bridge != "" { // otherwise all sites have this namespace
		line = strings.NewReplacer(r.Namespace, "$NS", r.Bridge, "$BRIDGE").Replace(line)
	}
	return strings.TrimRight(line, " ")
}

// command runs a command line of kubectl oooi.
func (r *transcript) command(line string, whole bool) (output []string) {
	words := strings.Fields(line)
	wait := slices.Contains(words, "--wait")
	if words[0] == "setup" && !wait && !strings.Contains(line, "--dry-run") {
		words = append(words, "--wait=false")
	}
	if !slices.Contains(words, "-n") && !slices.Contains(words, "-A") {
		words = append(words, "-n", r.Namespace)
	}
	before := r.Everything()
	out, stderr, code := r.Run(words...)
	if !wait && (code != 0 || words[0] == "diff" || strings.Contains(line, "--dry-run")) {
		r.Unchanged(before)
	}
	if code != 0 {
		output = append(output, fmt.Sprint("exit ", code))
	}
	for o := range strings.Lines(stderr + out) {
		o = strings.TrimSuffix(o, "\n")
		if progress := wait && strings.HasPrefix(o, "waiting for "); o != "" && !progress && (whole || !usual.MatchString(o)) {
			output = append(output, o)
		}
	}
	return output
}

// documents returns the text of documents.
func (r *transcript) documents(names string) string {
	r.Helper()
	if strings.HasPrefix(names, "{") {
		return names
	}
	var all []string
	for name := range strings.FieldsSeq(names) {
		text := r.infra
		if name != "infra" {
			data, err := shared.ReadFile("documents/" + name + ".yaml")
			if err != nil {
				root, err1 := lab.Root()
				file := filepath.Join(r.dir, name+".yaml")
				if strings.Contains(name, "/") {
					file = filepath.Join(root, name+".yaml")
				}
				data, err = os.ReadFile(file)
				r.Must(errors.Join(err, err1))
			}
			text = strings.NewReplacer("$NS", r.Namespace, "$BRIDGE", r.Bridge).Replace(string(data))
		}
		all = append(all, text)
	}
	return strings.Join(all, "\n---\n")
}

func (r *transcript) file(argument string) []string {
	r.Infra = r.replaced(argument)
	return nil
}

// replaced returns the text of documents after replacements.
func (r *transcript) replaced(argument string) string {
	r.Helper()
	names, changes, _ := strings.Cut(argument, " : ")
	text := r.documents(names)
	for change := range strings.SplitSeq(changes, " ; ") {
		from, to, replaces := strings.Cut(strings.ReplaceAll(change, `\n`, "\n"), " =>")
		if change != "" && (!replaces || !strings.Contains(text, from)) {
			r.Fatalf("cannot replace %q in\n%s", change, text)
		}
		text = strings.ReplaceAll(text, from, strings.TrimPrefix(to, " "))
	}
	return text
}

func (r *transcript) apply(argument string) []string {
	r.Apply(r.replaced(argument))
	return nil
}

func (r *transcript) delete(argument string) []string {
	r.Must(r.ControlPlane.DeleteYAML(r.Context(), []byte(r.replaced(argument))))
	return nil
}

func (r *transcript) status(argument string) []string {
	r.Must(r.ControlPlane.ApplyStatusYAML(r.Context(), []byte(argument)))
	return nil
}

func (r *transcript) as(user string) []string {
	if r.Kubeconfig = r.admin; user != "" {
		r.As(user)
	}
	return nil
}

// kind returns a kind by its name.
func (r *transcript) kind(name string) schema.GroupVersionKind {
	r.Helper()
	kinds := slices.Concat(inventory.Kinds, []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Namespace"), corev1.SchemeGroupVersion.WithKind("Pod"), appsv1.SchemeGroupVersion.WithKind("Deployment"),
		{Group: "operator.openshift.io", Version: "v1", Kind: "DNS"},
		v1alpha1.SchemeGroupVersion.WithKind("Infra"), v1alpha1.SchemeGroupVersion.WithKind("ProxyServer"),
	})
	at := slices.IndexFunc(kinds, func(k schema.GroupVersionKind) bool { return k.Kind == name })
	if at < 0 {
		r.Fatalf("unknown kind %s", name)
	}
	return kinds[at]
}

// split returns the namespace, by default the site's, and the name in a NAME or NAMESPACE/NAME.
func (r *transcript) split(text string) (namespace, name string) {
	if namespace, name, qualified := strings.Cut(text, "/"); qualified {
		return namespace, name
	}
	return r.Namespace, text
}

func (r *transcript) patch(argument string) []string {
	r.Helper()
	words := strings.SplitN(argument, " ", 3)
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(r.kind(words[0]))
	namespace, name := r.split(words[1])
	key := client.ObjectKey{Namespace: namespace, Name: name}
	lab.Await(r, words[0]+" "+words[1], func() string {
		if err := r.Client.Get(r.Context(), key, u); err != nil {
			return err.Error()
		}
		return ""
	})
	r.Must(r.Client.Patch(r.Context(), u, client.RawPatch(types.MergePatchType, []byte(words[2])), client.FieldOwner("another-manager")))
	return nil
}

func (r *transcript) get(argument string) (output []string) {
	r.Helper()
	words := strings.SplitN(argument, " ", 3)
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(r.kind(words[0]))
	namespace, pattern := r.split(words[1])
	r.Must(r.Client.List(r.Context(), list, client.InNamespace(namespace)))
	fields := jsonpath.New(argument).AllowMissingKeys(true)
	r.Must(fields.Parse(words[2]))
	for i := range list.Items {
		u := &list.Items[i]
		if matches, err := path.Match(pattern, u.GetName()); err != nil || !matches {
			r.Must(err)
			continue
		}
		var text bytes.Buffer
		r.Must(fields.Execute(&text, u.Object))
		output = append(output, strings.Split(u.GetName()+": "+text.String(), "\n")...)
	}
	return output
}
