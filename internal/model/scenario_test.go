package model_test

import (
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// TestScenarios runs the transcripts testdata/scenarios/*.txt. The commands are:
//
//	KIND [NAMESPACE/]NAME CHANGE  create an object, or change it as kubectl patch --type=merge does; the namespace is clusters by default
//	template KIND CHANGE          change every object of a kind when it is created
//	delete KIND [NAMESPACE/]NAME
//	read FOLDER                   read the objects from a directory of testdata
//	options OPTIONS               set the options of the model
//	hosted [@CLUSTER] [unread] [missing] [REASON] ADDRESS...
//	                              the apps Service in a hosted cluster, clusters/demo by default, and the reason why it cannot be read;
//	                              in addresses, ~ is a space, and ADDRESS*N are N addresses
//	last ADDRESS...               the apps addresses of clusters/demo in the previous snapshot
//	base                          what is set so far applies to all cases
//	case NAME                     discard what was set since base
//	show REGEXP                   which lines of a snapshot are printed
//	build                         build a snapshot of all objects
//	update                        build a snapshot of what has changed since the last update of the case
//	restart                       build with what the snapshot file has of the last snapshot
func TestScenarios(t *testing.T) {
	golden.Files(t, "testdata/scenarios/*.txt", func(t *testing.T, file string) {
		s := &scenario{T: t, settings: settings{objects: map[string]string{}, templates: map[string]string{}}}
		golden.Transcript(t, file, s.run)
	})
}

// A scenario is the state of a transcript.
type scenario struct {
	*testing.T
	settings

	base    settings
	shown   *regexp.Regexp
	builder *model.Builder // of the case; nil before its first update
	before  *model.Objects // of the last update
	last    *model.Snapshot
}

// settings are what a case begins with.
type settings struct {
	objects   map[string]string // YAML by kind, namespace and name
	templates map[string]string // changes by kind
	folder    string
	options   model.Options
	hosted    []*objects.AppsService
	lastGood  map[string][]netip.Addr
	services  map[string]string // the result of LastServices of the previous snapshot
}

var apiVersions = map[string]string{
	"HostedCluster": "hypershift.openshift.io/v1beta1", "Infra": "hostedcluster.densityops.com/v1alpha1",
	"ProxyServer": "hostedcluster.densityops.com/v1alpha1",
	"Service":     "v1", "Route": "route.openshift.io/v1", "NetworkAttachmentDefinition": "k8s.cni.cncf.io/v1", "Lease": "coordination.k8s.io/v1",
}

func (s *scenario) run(line string) []string {
	command, argument, _ := strings.Cut(line, " ")
	first, rest, _ := strings.Cut(argument, " ")
	switch command {
	case "template":
		s.templates[first] = rest
	case "delete":
		delete(s.objects, first+" "+qualified(rest))
	case "read":
		s.folder = filepath.Join("testdata", argument)
	case "options":
		s.options = model.Options{}
		lab.Must(s, yaml.UnmarshalStrict([]byte(argument), &s.options))
	case "hosted":
		s.hosted = []*objects.AppsService{hostedService(strings.Fields(argument)...)}
	case "last":
		s.lastGood = map[string][]netip.Addr{"clusters/demo": nil}
		for text := range strings.FieldsSeq(argument) {
			s.lastGood["clusters/demo"] = append(s.lastGood["clusters/demo"], netip.MustParseAddr(text))
		}
	case "base":
		s.base = s.settings
		s.base.objects, s.base.templates = maps.Clone(s.objects), maps.Clone(s.templates)
	case "case":
		s.settings, s.builder = s.base, nil
		s.objects, s.templates = maps.Clone(s.base.objects), maps.Clone(s.base.templates)
	case "show":
		s.shown = regexp.MustCompile(argument)
	case "restart":
		s.lastGood, s.services = s.last.LastGood(), s.last.LastServices()
	case "build":
		return s.print(model.Build(s.input(), s.options))
	case "update":
		return s.print(s.update())
	default:
		s.change(command, qualified(first), rest)
	}
	return nil
}

// qualified returns the name of an object with its namespace.
func qualified(name string) string {
	if !strings.Contains(name, "/") {
		return "clusters/" + name
	}
	return name
}

// change creates or changes an object.
func (s *scenario) change(kind, qualifiedName, change string) {
	s.Helper()
	if apiVersions[kind] == "" {
		s.Fatalf("%s is neither a command nor a kind", kind)
	}
	key := kind + " " + qualifiedName
	object, exists := s.objects[key]
	if !exists {
		namespace, name, _ := strings.Cut(qualifiedName, "/")
		created := fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {namespace: %s, name: %s}}", apiVersions[kind], kind, namespace, name)
		object = lab.Merge(created, s.templates[kind])
	}
	s.objects[key] = lab.Merge(object, change)
}

// input returns the objects of the scenario as they are read from manifests.
func (s *scenario) input() *model.Objects {
	s.Helper()
	folder := s.folder
	if folder == "" {
		folder = s.TempDir()
		lab.WriteFile(s, strings.Join(slices.Collect(maps.Values(s.objects)), "\n"), folder, "objects.yaml")
	}
	in, err := watch.ReadManifests(folder, s.options)
	lab.Must(s, err)
	for _, broken := range in.Broken {
		s.Fatal(broken.Error)
	}
	in.AppsServices, in.LastGood, in.LastServices = s.hosted, s.lastGood, s.services
	return in
}

// update builds a snapshot with the Builder of the case. Objects that did not change are not updated.
func (s *scenario) update() *model.Snapshot {
	s.Helper()
	if s.builder == nil {
		s.builder, s.before = model.NewBuilder(s.options, nil), &model.Objects{}
	}
	known := map[string]objects.Object{}
	for _, c := range s.before.Additions() {
		known[c.Kind+" "+c.Namespace+"/"+c.Name] = c.Now
	}
	in := s.input()
	changes := slices.DeleteFunc(changesOf(s.before, in), func(c model.Change) bool {
		return c.Now != nil && reflect.DeepEqual(known[c.Kind+" "+c.Namespace+"/"+c.Name], c.Now)
	})
	s.before = in
	return s.builder.Update(changes)
}

// print checks a snapshot and returns its lines that are shown.
func (s *scenario) print(snapshot *model.Snapshot) (lines []string) {
	s.Helper()
	checkSnapshot(s.T, snapshot)
	s.last = snapshot
	lastGood := snapshot.LastGood()
	for _, c := range snapshot.Clusters {
		if c.Kind == "HostedCluster" && c.UID == "" && c.Apps != nil && !slices.Equal(lastGood[c.Key()], c.Apps.Addresses) {
			s.Errorf("the apps addresses of %s are %v, and %v for the next snapshot", c.Key(), c.Apps.Addresses, lastGood[c.Key()])
		}
	}
	for line := range strings.Lines(render(snapshot)) {
		if line = strings.TrimSuffix(line, "\n"); s.shown == nil || s.shown.MatchString(line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// hostedService returns what was read of the apps Service in a hosted cluster, from the words of the command hosted.
func hostedService(words ...string) *objects.AppsService {
	s := &objects.AppsService{
		ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "demo"}, Read: true,
		Service: &objects.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-ingress", Name: "demo-apps"}},
	}
	for _, word := range words {
		switch {
		case word == "unread":
			s.Read, s.Service = false, nil
		case word == "missing":
			s.Service = nil
		case strings.HasPrefix(word, "@"):
			s.Name = word[1:]
		case unicode.IsUpper(rune(word[0])):
			s.Fault = objects.Fault{Reason: word, Message: "cannot be read"}
		default:
			address, count, many := strings.Cut(strings.ReplaceAll(word, "~", " "), "*")
			s.Service.Status.LoadBalancer.Ingress = append(s.Service.Status.LoadBalancer.Ingress, objects.LoadBalancerIngress{IP: address})
			if n, err := strconv.Atoi(count); many && err == nil {
				for next := netip.MustParseAddr(address).Next(); n > 1; n, next = n-1, next.Next() {
					s.Service.Status.LoadBalancer.Ingress = append(s.Service.Status.LoadBalancer.Ingress, objects.LoadBalancerIngress{IP: next.String()})
				}
			}
		}
	}
	return s
}
