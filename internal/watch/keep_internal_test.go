package watch

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/test/lab"
)

// TestKeptObjects applies events of a watch to a table, one word each: "+a" adds object a, "-a" deletes it, "!a" gives it a
// deletionTimestamp, "list:a,b" is a list of a and b, "404" the end of the resource, and "wait" the end of the retention time.
func TestKeptObjects(t *testing.T) {
	for name, tc := range map[string]struct {
		keep       keepRule
		events     string
		want, kept string // names of the objects in use, and of those among them that are kept
	}{
		"a deleted object, of several":                          {keepOutage, "list:a,b -a", "b", ""},
		"the last object, deleted":                              {keepOutage, "list:a -a", "", ""},
		"all objects, deleted one after the other":              {keepOutage, "list:a,b -a -b", "", ""},
		"an object that a later list lacks":                     {keepOutage, "list:a,b list:b", "b", ""},
		"an empty list after a full one":                        {keepOutage, "list:a,b list:", "a,b", "a,b"},
		"an empty first list":                                   {keepOutage, "list:", "", ""},
		"an object that was being deleted, and an empty list":   {keepOutage, "list:a,b !a list:", "b", "b"},
		"a resource that ends":                                  {keepOutage, "list:a,b 404", "a,b", "a,b"},
		"a resource that ends after its objects":                {keepOutage, "list:a,b -a -b 404", "a,b", "a,b"},
		"a resource that ends long after an object":             {keepOutage, "list:a,b -a wait 404", "b", "b"},
		"a resource that ends after an announced deletion":      {keepOutage, "list:a,b !a -a -b 404", "b", "b"},
		"a resource that never existed":                         {keepOutage, "404", "", ""},
		"an outage until the end of the retention time":         {keepOutage, "list:a,b list: wait", "", ""},
		"a missing resource until the end of the retention":     {keepOutage, "list:a 404 wait", "", ""},
		"objects that appear again one after the other":         {keepOutage, "list:a,b,c 404 list:a +b", "a,b,c", "c"},
		"objects that appear again, and time":                   {keepOutage, "list:a,b,c 404 list:a +b wait", "a,b", ""},
		"an object that appears again and is deleted":           {keepOutage, "list:a,b 404 list:a,b -a", "b", ""},
		"an unannounced deletion":                               {keepUnannounced, "list:a,b -a", "a,b", "a"},
		"an announced deletion":                                 {keepUnannounced, "list:a,b !a -a", "b", ""},
		"an announced deletion during a gap of the watch":       {keepUnannounced, "list:a,b !a list:b", "b", ""},
		"an unannounced deletion during a gap of the watch":     {keepUnannounced, "list:a,b list:b", "a,b", "a"},
		"an unannounced deletion, and the retention time":       {keepUnannounced, "list:a,b -a wait", "b", ""},
		"an unannounced deletion of an object that appears":     {keepUnannounced, "list:a -a +a", "a", ""},
		"the pod's own object, deleted":                         {keepAlways, "list:a -a wait", "a", "a"},
		"the pod's own object, deleted after an announcement":   {keepAlways, "list:a !a -a wait", "a", "a"},
		"the pod's own object, unlisted":                        {keepAlways, "list:a list: wait", "a", "a"},
		"the pod's own object, of a resource that ends":         {keepAlways, "list:a 404 wait", "a", "a"},
		"the pod's own object, after a resource that ended":     {keepAlways, "list:a 404 list:a", "a", ""},
		"credentials, deleted":                                  {keepNothing, "list:a -a", "", ""},
		"credentials, unlisted":                                 {keepNothing, "list:a list:", "", ""},
		"credentials, of a resource that ends":                  {keepNothing, "list:a 404", "", ""},
		"an object that was kept when the process ended":        {keepUnannounced, "restore:a,b(kept) list:a", "a,b", "b"},
		"the same at the end of its retention time":             {keepUnannounced, "restore:a,b(kept) list:a wait", "a", ""},
		"an object that disappeared while no process ran":       {keepUnannounced, "restore:a,b list:a", "a,b", "b"},
		"objects that disappeared while no process ran":         {keepOutage, "restore:a,b list:", "a,b", "a,b"},
		"an object that was deleted while no process ran":       {keepOutage, "restore:a,b list:a", "a", ""},
		"a resource that ended while no process ran":            {keepOutage, "restore:a,b 404", "a,b", "a,b"},
		"the pod's own object, deleted while no process ran":    {keepAlways, "restore:a list: wait", "a", "a"},
		"credentials are not restored":                          {keepNothing, "restore:a", "", ""},
		"an object that is announced while it is kept":          {keepUnannounced, "list:a,b -a +a !a -a", "b", ""},
		"an object with a deletionTimestamp when it was listed": {keepUnannounced, "list:a,b !b list:a,b! list:a", "a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			changed := 0
			table := newTable(resource{}, func(_, _ objects.Object) { changed++ })
			table.keep, table.retention, table.now = tc.keep, DefaultRetention, func() time.Time { return now }
			for event := range strings.FieldsSeq(tc.events) {
				before, calls := inUse(table), changed
				now = now.Add(time.Second)
				applyEvent(t, table, event, &now)
				if before != inUse(table) && calls == changed && !strings.HasPrefix(event, "restore") {
					t.Errorf("after %q, %q became %q without a call", event, before, inUse(table))
				}
			}
			kept := []string{}
			if state := table.keptState(); state != nil {
				kept = state.Names
				if until := state.Until; until.IsZero() != (tc.keep == keepAlways) {
					t.Errorf("objects are kept until %s", until)
				}
			}
			if got, gotKept := inUse(table), strings.ReplaceAll(strings.Join(kept, ","), "ns/", ""); got != tc.want || gotKept != tc.kept {
				t.Errorf("in use are %q, of which %q are kept; want %q and %q", got, gotKept, tc.want, tc.kept)
			}
		})
	}
}

func inUse(table *table) string {
	list, _ := table.list()
	names := []string{}
	for _, o := range list {
		names = append(names, o.GetName())
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// hostedCluster returns an object, with a deletionTimestamp if its name ends with "!".
func hostedCluster(name string) *objects.HostedCluster {
	name, deleted := strings.CutSuffix(name, "!")
	o := &objects.HostedCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	if deleted {
		o.DeletionTimestamp = &metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	}
	return o
}

func applyEvent(t *testing.T, table *table, event string, now *time.Time) {
	t.Helper()
	var err error
	verb, names, _ := strings.Cut(event, ":")
	switch {
	case verb == "list":
		var list []any
		for _, name := range strings.FieldsFunc(names, func(r rune) bool { return r == ',' }) {
			list = append(list, hostedCluster(name))
		}
		err = table.Replace(list, "")
	case verb == "restore":
		var list []objects.Object
		kept := map[string]time.Time{}
		for name := range strings.SplitSeq(names, ",") {
			name, disappeared := strings.CutSuffix(name, "(kept)")
			list = append(list, hostedCluster(name))
			if disappeared {
				kept["ns/"+name] = now.Add(-time.Minute)
			}
		}
		table.restore(list, kept)
	case event == "404":
		table.keepUnserved()
	case event == "wait":
		*now = now.Add(DefaultRetention)
		if table.keep != keepAlways { // otherwise run does not expire
			table.expire()
		}
	case event[0] == '+':
		err = table.Add(hostedCluster(event[1:]))
	case event[0] == '!':
		err = table.Update(hostedCluster(event[1:] + "!"))
	case event[0] == '-':
		o := table.get("ns" + "/" + event[1:])
		if o == nil {
			t.Fatalf("object %s does not exist", event[1:])
		}
		err = table.Delete(o)
	default:
		t.Fatalf("unknown event %s", event)
	}
	lab.Must(t, err)
}

// TestRulesOfResources checks which rule applies to the resources in an open and in a closed scope.
func TestRulesOfResources(t *testing.T) {
	list := Config{Proxies: true, Endpoints: true}.resources()
	rules := map[string]keepRule{}
	for _, r := range list {
		rules[r.kind+" by name"], rules[r.kind+" of a namespace"] = r.ruleFor(objectKey{"clusters", "demo"}), r.ruleFor(objectKey{namespace: "clusters"})
	}
	for what, want := range map[string]keepRule{
		"Infra by name": keepAlways, "ProxyServer by name": keepAlways, "Infra of a namespace": keepOutage, "ProxyServer of a namespace": keepOutage,
		"HostedCluster by name": keepUnannounced, "HostedCluster of a namespace": keepUnannounced,
		"Service of a namespace": keepOutage, "Route of a namespace": keepOutage, "EndpointSlice of a namespace": keepOutage,
	} {
		if got, known := rules[what]; !known || got != want {
			t.Errorf("the rule of %s is %d, want %d", what, got, want)
		}
	}
}
