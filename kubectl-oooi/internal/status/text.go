package status

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// Columns returns the columns of a table of Infras and standalone ProxyServers, with their namespaces if namespace is set, and with their ages at the
// time now unless that is zero.
func Columns(namespace bool, now time.Time) []output.Column[*Report] {
	state := func(i int) func(*Report) string { return func(r *Report) string { return r.Components[i].state() } }
	address := func(i int) func(*Report) string {
		return func(r *Report) string { return strings.Join(r.Components[i].Addresses, ",") }
	}
	return []output.Column[*Report]{
		{Title: "NAMESPACE", Value: func(r *Report) string { return r.Metadata.Namespace }, Hide: !namespace},
		{Title: "NAME", Value: func(r *Report) string { return r.Metadata.String() }},
		{Title: "HOSTEDCLUSTER", Value: func(r *Report) string { return r.HostedCluster }},
		{Title: "DHCP", Value: state(0)},
		{Title: "DNS", Value: state(1)},
		{Title: "PROXY", Value: state(2)},
		{Title: "APPS", Value: func(r *Report) string { return r.Applications.String() }},
		{Title: "READY", Value: func(r *Report) string { return string(r.Ready.Status) }},
		{Title: "REASON", Value: func(r *Report) string { return r.Ready.Reason }},
		{Title: "AGE", Value: func(r *Report) string { return duration.HumanDuration(now.Sub(r.created)) }, Hide: now.IsZero()},
		{Title: "DHCP-ADDRESS", Value: address(0), Wide: true},
		{Title: "DNS-ADDRESS", Value: address(1), Wide: true},
		{Title: "PROXY-ADDRESS", Value: address(2), Wide: true},
		{Title: "NETWORK", Value: func(r *Report) string { return r.Network }, Wide: true},
		{Title: "CIDR", Value: func(r *Report) string { return strings.Join(r.CIDRs, ",") }, Wide: true},
	}
}

func (c *Component) state() string {
	if !c.Enabled {
		return "Disabled"
	}
	return string(c.Ready)
}

// String returns the addresses, followed by the phase in parentheses unless it is Ready. Without addresses it returns
// the phase. An empty phase is shown as "Unknown". For nil it returns "Disabled".
func (a *Applications) String() string {
	switch {
	case a == nil:
		return "Disabled"
	case len(a.Addresses) == 0:
		return cmp.Or(string(a.Phase), "Unknown")
	case a.Phase == v1alpha1.AppsIngressReady:
		return strings.Join(a.Addresses, ",")
	default:
		return fmt.Sprintf("%s(%s)", strings.Join(a.Addresses, ","), cmp.Or(string(a.Phase), "Unknown"))
	}
}

// Describe writes a report with its details, and the conditions that are not as desired, in the form of kubectl describe.
func Describe(w io.Writer, r *Report) error {
	head := &output.Table{}
	head.Add("Name:", r.Metadata.String())
	head.Add("Namespace:", r.Metadata.Namespace)
	if r.Metadata.Kind == "" {
		head.Add("HostedCluster:", r.HostedCluster)
	}
	head.Add("Network:", strings.Join(append([]string{r.Network}, r.CIDRs...), ", "))
	head.Add("Ready:", fmt.Sprintf("%s, %s: %s", r.Ready.Status, r.Ready.Reason, r.Ready.Message))
	if r.FloatingAddress != nil {
		head.Add("ProxyAddress:", r.FloatingAddress.String())
	}
	if err := head.Write(w); err != nil {
		return err
	}
	for _, section := range []struct {
		title string
		table *output.Table
	}{
		{"Components", r.componentTable()}, {"Proxies", r.proxyTable()}, {"Applications", r.applicationTable()}, {"Conditions", r.conditionTable()},
	} {
		if len(section.table.Rows) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s:\n", section.title); err != nil {
			return fmt.Errorf("printing the report: %w", err)
		}
		section.table.Indent = "  "
		if err := section.table.Write(w); err != nil {
			return err
		}
	}
	return nil
}

// String returns the addresses, their holder with the times of its Lease, and the number of moves.
func (f *FloatingAddress) String() string {
	addresses := strings.Join(f.Addresses, ", ")
	if f.Holder == "" {
		return addresses + ", not held by any pod"
	}
	text := addresses + ", held by " + f.Holder
	if f.Since != nil {
		text += " since " + f.Since.UTC().Format(time.RFC3339)
	}
	if f.Renewed != nil {
		text += ", last renewed " + f.Renewed.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("%s; moved %d times", text, f.Moves)
}

// componentTable returns a table with a row for each pod, and for each component without pods.
func (r *Report) componentTable() *output.Table {
	t := &output.Table{Titles: []string{"NAME", "READY", "ADDRESS", "POD", "NODE", "POD-READY", "REASON"}}
	for i := range r.Components {
		c := &r.Components[i]
		if !c.Enabled && r.Metadata.Kind != "" {
			continue // a standalone proxy lacks other components
		}
		cells := []string{c.Name, c.state(), strings.Join(c.Addresses, ",")}
		for _, p := range c.Pods {
			t.Add(append(cells[:3:3], p.Name, p.Node, title(p.Ready), p.Reason)...)
		}
		if len(c.Pods) == 0 {
			t.Add(append(cells, "", "", "", "")...)
		}
	}
	return t
}

// proxyTable returns a table with a row for each replica, and for each ProxyServer without replicas in its status.
func (r *Report) proxyTable() *output.Table {
	t := &output.Table{Titles: []string{"PROXYSERVER", "REPLICA", "GENERATION", "CONFIGURATION", "LISTENERS"}}
	for _, p := range r.ProxyServers {
		for i := range p.Replicas {
			replica := &p.Replicas[i]
			generation := fmt.Sprintf("%d of %d", replica.ObservedGeneration, p.Generation)
			t.Add(p.Name, replica.Pod, generation, configuration(replica), listeners(replica))
		}
		if len(p.Replicas) == 0 {
			t.Add(p.Name, "", "", "", "")
		}
	}
	return t
}

func configuration(r *v1alpha1.ReplicaStatus) string {
	switch {
	case r.NACK != "":
		return fmt.Sprintf("%s rejected: %s", r.Version, r.NACK)
	case r.Version == "":
		return "not sent"
	case r.Version != r.Acknowledged:
		return r.Version + " not acknowledged"
	default:
		return r.Version + " acknowledged"
	}
}

func listeners(r *v1alpha1.ReplicaStatus) string {
	var ready, parts []string
	for _, l := range r.Listeners {
		if port := strconv.Itoa(int(l.Port)); l.Ready {
			ready = append(ready, port)
		} else {
			parts = append(parts, strings.TrimSuffix(port+" not ready: "+l.Reason, ": "))
		}
	}
	if len(ready) > 0 {
		parts = append([]string{strings.Join(ready, ",") + " ready"}, parts...)
	}
	return strings.Join(parts, "; ")
}

func (r *Report) applicationTable() *output.Table {
	t := &output.Table{}
	a := r.Applications
	if a == nil {
		return t
	}
	t.Add("Phase:", cmp.Or(string(a.Phase), "Unknown"))
	t.Add("Addresses:", strings.Join(a.Addresses, ", "))
	t.Add("Service:", a.Service)
	switch {
	case a.Reason != "":
		t.Add("Reason:", fmt.Sprintf("%s: %s", a.Reason, a.Message))
	case a.Message != "":
		t.Add("Warning:", a.Message)
	}
	if a.LastSync != nil {
		t.Add("Last read:", a.LastSync.UTC().Format("2006-01-02T15:04:05Z"))
	}
	return t
}

// healthy reports whether a condition is as desired: it is true, belongs to a disabled component, or reports that there is no mismatch.
func healthy(c metav1.Condition) bool {
	if c.Type == v1alpha1.ConditionAppsDomainMismatch {
		return c.Status == metav1.ConditionFalse
	}
	return c.Status == metav1.ConditionTrue || c.Type == v1alpha1.ConditionAppsIngressReady && c.Reason == "Disabled"
}

// conditionTable returns a table of the conditions that are not as desired.
func (r *Report) conditionTable() *output.Table {
	t := &output.Table{Titles: []string{"TYPE", "STATUS", "REASON", "MESSAGE"}}
	for _, c := range r.Conditions {
		if c.Type != v1alpha1.ConditionReady && !healthy(c) { // Ready is in the head
			t.Add(c.Type, string(c.Status), c.Reason, c.Message)
		}
	}
	for _, p := range r.ProxyServers {
		if r.Metadata.Kind != "" {
			break // the conditions belong to the ProxyServer
		}
		for _, c := range p.Conditions {
			if !healthy(c) {
				t.Add("proxyserver/"+p.Name+" "+c.Type, string(c.Status), c.Reason, c.Message)
			}
		}
	}
	return t
}

func title(b bool) string {
	if b {
		return "True"
	}
	return "False"
}
