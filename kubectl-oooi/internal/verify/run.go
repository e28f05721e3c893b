package verify

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/internal/testclient"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// requests limits all requests of a client.
const requests = 45 * time.Second

// A Runner tests one site.
type Runner struct {
	Prober *Prober
	// Facts must have been collected with Reads, and possibly others.
	Facts *site.Facts
	// Infra is "namespace/name".
	Infra string
	// Scenarios are those to run.
	Scenarios []Scenario
	// Upstream is a name that the upstream resolvers resolve; empty to accept any reply of theirs.
	Upstream string
	// VMImage is the containerDisk image of the VM of VMScenario.
	VMImage string
	// Version is the version of the plugin.
	Version string
	// Progress is called with what the Runner does, and not concurrently.
	Progress func(string)
}

// Run runs the scenarios and returns the report. It deletes everything that it creates, even if ctx ends; it then returns an
// error, with a report of the results so far, as it does if it could not delete an object. A client that does not run is no
// error, but the status of its scenarios is output.Broken.
func (r *Runner) Run(ctx context.Context) (report *Report, err error) {
	started, s := time.Now().UTC(), newSubject(r.Facts, r.Infra)
	if s == nil {
		return nil, fmt.Errorf("Infra %s does not exist or cannot be decoded", r.Infra) //nolint:staticcheck // a kind begins with a capital
	}
	if why := s.Unread(Reads()); why != nil {
		return nil, fmt.Errorf("%s; see 'kubectl oooi test --print-rbac' for the required rights", why[0])
	}
	_, image := s.templatePod()
	if image == "" {
		//nolint:staticcheck // a kind begins with a capital
		return nil, fmt.Errorf("Infra %s has no pod of DHCP, DNS or the proxy, whose image the pods of the test run: deploy them on a node with 'kubectl "+
			"oooi setup'; "+
			"without pods, use 'kubectl oooi doctor', and 'kubectl oooi resolve' and 'kubectl oooi routes' for the expected answers", r.Infra)
	}
	if err := s.readAuthorities(ctx, r.Prober.Client); err != nil {
		return nil, fmt.Errorf("reading the CAs of the hosted cluster: %w", err)
	}
	s.upstream = r.Upstream
	if own := strings.TrimSuffix(strings.ToLower(r.Upstream), "."); own != "" &&
		(s.isApp(own) || slices.ContainsFunc(s.names(VLAN), func(n expectation) bool { return n.Name == own })) {
		return nil, fmt.Errorf("%s is a name of the hosted cluster, which DNS does not forward; specify another one with --upstream-name", r.Upstream)
	}
	if s.client, err = randomMAC(); err != nil {
		return nil, err
	}
	s.hostname, s.label = hostname(s.Infra.Name), testclient.Component+"-"+utilrand.String(5)
	report = newReport(s, started)
	report.Version, report.Image = r.Version, image
	w := &work{site: s}
	for i := range r.Scenarios {
		w.add(&r.Scenarios[i])
	}
	if len(w.plans) > 0 {
		r.Progress(fmt.Sprintf("%d requests of %d scenarios", w.requests(), len(w.todo)))
		performed, failed := r.request(ctx, s, w)
		switch {
		case errors.Is(errors.Join(failed, w.err()), errDeleted): // no result is reliable
			return nil, errDeleted
		case !performed:
			return nil, failed
		}
		err = failed
	}
	for i := range r.Scenarios {
		one := &r.Scenarios[i]
		if one.run != nil {
			report.add(r.runScenario(ctx, s, one))
		} else {
			report.add(w.evaluate(one, report))
		}
	}
	report.Duration = metav1.Duration{Duration: time.Since(started).Round(100 * time.Millisecond)}
	if ctx.Err() != nil {
		return report, fmt.Errorf("testing Infra %s: %w", r.Infra, context.Cause(ctx))
	}
	return report, err
}

// request runs the clients, which send the requests. performed is false if they could not be prepared.
func (r *Runner) request(ctx context.Context, s *subject, w *work) (performed bool, err error) {
	if w.leases {
		registered, registering := r.register(ctx, s, new(clientPod).leftover())
		if registering != nil {
			return false, registering
		}
		defer func() { err = errors.Join(err, r.unregister(ctx, s, registered)) }()
	}
	var clients sync.WaitGroup
	for c, p := range w.plans {
		clients.Go(func() { r.perform(ctx, s, c, p) })
	}
	clients.Wait()
	for _, p := range w.plans {
		if !slices.Contains(p.outcomes, nil) { // otherwise, the results have the error
			err = errors.Join(err, p.err)
		}
	}
	return true, err
}

// work is what the clients have to do for scenarios.
type work struct {
	site   *subject
	plans  map[Client]*plan
	todo   map[string][]task
	why    map[string]string // why scenarios do not apply
	leases bool
}

// A plan has the requests of a client. Scenarios share equal ones.
type plan struct {
	steps    []probe.Step
	index    map[string]int
	outcomes []*probe.Outcome
	err      error
}

// A task is a step of a scenario, with its client and the index of its request.
type task struct {
	step
	client Client
	index  int
}

// add adds the requests of a scenario; a disruptive one has none.
func (w *work) add(s *Scenario) {
	if s.run != nil {
		return
	}
	if w.plans == nil {
		w.plans, w.todo, w.why = map[Client]*plan{}, map[string][]task{}, map[string]string{}
	}
	var why []string
	for _, c := range s.Clients {
		if reason := s.notApplicable(w.site, c); reason != "" {
			why = append(why, reason)
			continue
		}
		p := w.plans[c]
		if p == nil {
			p = &plan{index: map[string]int{}}
			w.plans[c] = p
		}
		for _, one := range s.steps(w.site, c) {
			w.leases = w.leases || one.request.DHCP != nil
			w.todo[s.Name] = append(w.todo[s.Name], task{one, c, p.add(one.request)})
		}
	}
	if len(why) == len(s.Clients) {
		w.why[s.Name] = strings.Join(slices.Compact(why), "; ")
	}
}

// add adds a request, unless the plan has an equal one, and returns its index.
func (p *plan) add(request probe.Step) int {
	text, err := json.Marshal(request)
	if err != nil {
		panic(err) // the type has no field that cannot be encoded
	}
	at, known := p.index[string(text)]
	if !known {
		at = len(p.steps)
		p.index[string(text)] = at
		p.steps = append(p.steps, request)
	}
	return at
}

// err returns the errors of the clients.
func (w *work) err() error {
	var err error
	for _, p := range w.plans {
		err = errors.Join(err, p.err)
	}
	return err
}

func (w *work) requests() int {
	n := 0
	for _, p := range w.plans {
		n += len(p.steps)
	}
	return n
}

// perform runs the pod of a client.
func (r *Runner) perform(ctx context.Context, s *subject, c Client, p *plan) {
	p.outcomes = make([]*probe.Outcome, len(p.steps))
	steps, err := json.Marshal(p.steps)
	if err != nil {
		p.err = err
		return
	}
	arguments := []string{"--timeout=" + requests.String(), "--steps=" + string(steps)}
	if c == VLAN {
		arguments = append(arguments, "--device="+render.ProbeDevice)
	}
	data, err := r.Prober.run(ctx, s, &clientPod{onVLAN: c == VLAN, arguments: arguments})
	p.err = err // there may be results, whose objects could not be deleted
	for line := range bytes.Lines(data) {
		o := &probe.Outcome{}
		if err := json.Unmarshal(line, o); err != nil || o.Step < 0 || o.Step >= len(p.steps) {
			p.err = fmt.Errorf("decoding the output of the client: %w: %.200s", err, line)
			return
		}
		p.outcomes[o.Step] = o
	}
}

// evaluate returns the result of a scenario. The report has those of the earlier ones.
func (w *work) evaluate(s *Scenario, report *Report) Result {
	r := Result{Name: s.Name, Group: s.Group, Title: s.Title, Status: output.Passed}
	if why := w.why[s.Name]; why != "" {
		r.Status, r.Reason = output.Skipped, why
		return r
	}
	if at := slices.IndexFunc(report.Results, func(r Result) bool { return r.Name == s.Needs }); at >= 0 && report.Results[at].Status != output.Passed {
		r.Status, r.Reason = output.Skipped, "blocked by "+s.Needs
		return r
	}
	for _, t := range w.todo[s.Name] {
		p := w.plans[t.client]
		o := p.outcomes[t.index]
		switch {
		case o == nil && p.err != nil:
			r.Status, r.Reason = output.Broken, p.err.Error()
			return r
		case o == nil:
			r.Status, r.Reason = output.Broken, "the client has not performed all requests"
			return r
		}
		one := Request{Client: t.client, Label: t.label, Took: metav1.Duration{Duration: o.Took.Round(10 * time.Microsecond)}, Problem: t.check(o)}
		switch {
		case one.Problem != "":
			r.Status, r.Remedy = output.Failed, s.Remedy
		case t.note != nil:
			one.Note = t.note(o)
		}
		r.Requests = append(r.Requests, one)
	}
	if len(r.Requests) == 0 {
		r.Status, r.Reason = output.Skipped, "the site has nothing to test"
	}
	return r
}

// randomMAC returns a locally administered unicast address.
func randomMAC() (string, error) {
	mac := make(net.HardwareAddr, 6)
	if _, err := rand.Read(mac); err != nil {
		return "", fmt.Errorf("choosing a MAC address: %w", err)
	}
	mac[0] = mac[0]&^1 | 2
	return mac.String(), nil
}

// hostname returns the name of the DHCP client: a valid label with the name of the Infra.
func hostname(infra string) string { return clientPrefix(infra) + utilrand.String(5) }

// clientPrefix returns what the names of an Infra's DHCP clients begin with.
func clientPrefix(infra string) string {
	const longest = 45
	infra, _, _ = strings.Cut(infra, ".")
	return infra[:min(len(infra), longest)] + "-" + testclient.Component + "-"
}

// register registers the DHCP client for a time.
func (r *Runner) register(ctx context.Context, s *subject, age time.Duration) (*coordinationv1.Lease, error) {
	mac, err := net.ParseMAC(s.client)
	if err != nil {
		return nil, err
	}
	o := testclient.Object(s.Infra.Namespace, s.Infra.Name, s.hostname, mac, age)
	o.OwnerReferences = []metav1.OwnerReference{s.ownerReference()}
	if err := r.Prober.Client.Create(ctx, o); err != nil {
		return nil, fmt.Errorf("registering the DHCP client: %w", err)
	}
	return o, nil
}

// unregister deletes the registration of the DHCP client and its lease, even if ctx has ended. It does not wait for DHCP, which
// releases an address only a minute after its VM was deleted.
func (r *Runner) unregister(ctx context.Context, s *subject, registered *coordinationv1.Lease) error {
	if err := r.Prober.discard(ctx, registered); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeCleanup)
	defer cancel()
	list, _, err := r.leasesOf(ctx, s.Infra.Namespace, s.hostname)
	for _, o := range list {
		err = errors.Join(err, r.Prober.remove(ctx, o))
	}
	return err
}

// leasesOf returns the Leases of addresses that a VM or test client has or had, and whether one of them is still bound.
func (r *Runner) leasesOf(ctx context.Context, namespace, name string) (list []*coordinationv1.Lease, pending bool, err error) {
	all := &coordinationv1.LeaseList{}
	if err := r.Prober.Client.List(ctx, all, client.InNamespace(namespace), client.HasLabels{leases.PoolLabel}); err != nil {
		return nil, false, fmt.Errorf("listing the Leases of addresses: %w", err)
	}
	for i := range all.Items {
		l, err := leases.Read(&all.Items[i], time.Now())
		if err != nil || l == nil {
			continue
		}
		if _, vm, _ := strings.Cut(l.VM, "/"); vm != testclient.VM(name) && vm != name { // DHCP may also know the VM of a test client
			continue
		}
		list = append(list, &all.Items[i])
		pending = pending || l.State == "bound"
	}
	return list, pending, nil
}

// newReport returns a report without results.
func newReport(s *subject, started time.Time) *Report {
	r := &Report{
		TypeMeta: metav1.TypeMeta{APIVersion: output.APIVersion, Kind: "SiteTest"},
		Metadata: output.Metadata{Name: s.Infra.Name, Namespace: s.Infra.Namespace},
		Started:  metav1.NewTime(started), Results: []Result{}, Summary: map[output.Result]int{},
	}
	if s.Cluster != nil {
		r.HostedCluster = s.Cluster.Key()
	}
	return r
}
