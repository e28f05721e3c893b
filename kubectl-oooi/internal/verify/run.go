package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/internal/testclient"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// requestTimeout limits all requests of a client.
const requestTimeout = 45 * time.Second

// A Runner tests one site.
type Runner struct {
	Client client.Client
	// Config is the connection over which logs of pods, and the problems that they report, are read.
	Config *rest.Config
	// Facts must have been collected with Reads, and possibly others.
	Facts *site.Facts
	// Infra is "namespace/name".
	Infra string
	// Scenarios are those to run.
	Scenarios []Scenario
	// Address is the VLAN address of the pod on the VLAN. The zero Addr selects a free IPv4 address of the DHCP ranges.
	// AddressFlag is the flag that sets it.
	Address     netip.Addr
	AddressFlag string
	// Upstream is a name that the upstream resolvers resolve; empty to accept any reply of theirs.
	Upstream string
	// VMImage is the containerDisk image of the VM of VMScenario.
	VMImage string
	// Version is the version of the plugin.
	Version string
	// Progress is called with what the Runner does, and not concurrently.
	Progress func(string)
}

// A test is a site while a Runner tests it.
type test struct {
	*Runner

	site    *subject
	clients *kubernetes.Clientset
	plans   map[Client]*plan

	lock    sync.Mutex
	created []client.Object // what cleanUp deletes
	job     *batchv1.Job    // of the last client
}

// A plan has the requests of a client. Scenarios share equal ones.
type plan struct {
	steps    []probe.Step
	outcomes []*probe.Outcome
	index    map[string]int // by the encoded step
	err      error
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
		p.steps, p.outcomes = append(p.steps, request), append(p.outcomes, nil)
	}
	return at
}

// Run runs the scenarios and returns the report. It deletes everything that it creates, even if ctx ends; it then returns an
// error, with a report of the results so far, as it does if it could not delete an object. A client that does not run is no
// error, but the status of its scenarios is output.Broken.
func (r *Runner) Run(ctx context.Context) (report *Report, err error) {
	started := time.Now().UTC()
	t, err := r.prepare(ctx)
	if err != nil {
		return nil, err
	}
	requests, leases := t.plan()
	if requests > 0 {
		r.Progress(fmt.Sprintf("%d requests of %d scenarios", requests, len(r.Scenarios)))
		err = t.perform(ctx, leases)
		all := []error{err}
		for _, p := range t.plans {
			all = append(all, p.err)
		}
		if errors.Is(errors.Join(all...), errDeleted) { // no result is reliable
			return nil, errDeleted
		}
	}
	report = t.newReport(started)
	for i := range r.Scenarios {
		if one := &r.Scenarios[i]; one.run != nil {
			report.add(t.runScenario(ctx, one))
		} else {
			report.add(t.evaluate(one, report.Results))
		}
	}
	report.Duration = metav1.Duration{Duration: time.Since(started).Round(100 * time.Millisecond)}
	if ctx.Err() != nil {
		return report, fmt.Errorf("testing Infra %s: %w", r.Infra, context.Cause(ctx))
	}
	return report, err
}

// prepare reads what the scenarios know about the site.
func (r *Runner) prepare(ctx context.Context) (*test, error) {
	s := newSubject(r.Facts, r.Infra)
	if s == nil {
		return nil, fmt.Errorf("Infra %s does not exist or cannot be decoded", r.Infra) //nolint:staticcheck // a kind begins with a capital
	}
	if why := s.Unread(Reads()); why != nil {
		return nil, fmt.Errorf("%s; see 'kubectl oooi test --print-rbac' for the required rights", why[0])
	}
	if _, image := s.templatePod(); image == "" {
		//nolint:staticcheck // a kind begins with a capital
		return nil, fmt.Errorf("Infra %s has no pod of DHCP, DNS or the proxy, whose image the pods of the test run: deploy them on a node with 'kubectl "+
			"oooi setup'; "+
			"without pods, use 'kubectl oooi doctor', and 'kubectl oooi resolve' and 'kubectl oooi routes' for the expected answers", r.Infra)
	}
	if err := s.readAuthorities(ctx, r.Client); err != nil {
		return nil, fmt.Errorf("reading the CAs of the hosted cluster: %w", err)
	}
	s.upstream = r.Upstream
	if own := strings.TrimSuffix(strings.ToLower(r.Upstream), "."); own != "" &&
		(s.isApp(own) || slices.ContainsFunc(s.names(VLAN), func(n expectation) bool { return n.Name == own })) {
		return nil, fmt.Errorf("%s is a name of the hosted cluster, which DNS does not forward; specify another one with --upstream-name", r.Upstream)
	}
	clients, err := site.NewClients(r.Config)
	if err != nil {
		return nil, err
	}
	if s.client, err = randomMAC(); err != nil {
		return nil, err
	}
	s.hostname, s.label = hostname(s.Infra.Name), testclient.Component+"-"+utilrand.String(5)
	return newTest(r, s, clients), nil
}

func newTest(r *Runner, s *subject, clients *kubernetes.Clientset) *test {
	return &test{Runner: r, site: s, clients: clients, plans: map[Client]*plan{VLAN: {index: map[string]int{}}, Pod: {index: map[string]int{}}}}
}

// plan adds the requests of all scenarios to the plans. It returns their number, and whether some of them lease an address.
func (t *test) plan() (requests int, leases bool) {
	for i := range t.Scenarios {
		t.requests(&t.Scenarios[i], func(c Client, s *step) { t.plans[c].add(s.request) })
	}
	for _, p := range t.plans {
		requests += len(p.steps)
		leases = leases || slices.ContainsFunc(p.steps, func(s probe.Step) bool { return s.DHCP != nil })
	}
	return requests, leases
}

// requests calls visit with the requests of a scenario. It returns why the scenario does not apply to any client; empty if it does.
func (t *test) requests(s *Scenario, visit func(Client, *step)) (why string) {
	if s.run != nil {
		return ""
	}
	var reasons []string
	for _, c := range s.Clients {
		steps, reason := s.steps(t.site, c)
		if reason != "" {
			reasons = append(reasons, reason)
			continue
		}
		for i := range steps {
			visit(c, &steps[i])
		}
	}
	if len(reasons) < len(s.Clients) {
		return ""
	}
	return strings.Join(slices.Compact(reasons), "; ")
}

// perform runs the clients, which perform their plans. It returns why the DHCP client could not be registered, why nothing was
// performed, or why an object could not be deleted.
func (t *test) perform(ctx context.Context, leases bool) (err error) {
	defer func() { err = errors.Join(err, t.cleanUp(ctx)) }()
	if leases {
		if err := t.register(ctx, podDeadline+podLeftover); err != nil {
			for _, p := range t.plans {
				p.err = err
			}
			return err
		}
	}
	var clients sync.WaitGroup
	for c, p := range t.plans {
		if len(p.steps) == 0 {
			continue
		}
		clients.Go(func() {
			missing := len(p.steps)
			p.err = t.runClient(ctx, c, p.steps, podDeadline, func(o *probe.Outcome) (done bool) {
				if p.outcomes[o.Step] == nil {
					missing--
				}
				p.outcomes[o.Step] = o
				return missing == 0
			}, "--timeout="+requestTimeout.String())
		})
	}
	clients.Wait()
	return nil
}

// evaluate returns the result of a scenario; earlier has those of the scenarios before.
func (t *test) evaluate(s *Scenario, earlier []Result) Result {
	r := Result{Name: s.Name, Group: s.Group, Title: s.Title, Status: output.Passed}
	broken := ""
	why := t.requests(s, func(c Client, one *step) {
		p := t.plans[c]
		o := p.outcomes[p.add(one.request)]
		switch {
		case o != nil:
			r.add(s, c, one, o)
		case p.err != nil:
			broken = p.err.Error()
		default:
			broken = "the client has not performed all requests"
		}
	})
	blocked := slices.ContainsFunc(earlier, func(r Result) bool { return r.Name == s.Needs && r.Status != output.Passed })
	switch {
	case why != "":
		r.skip(why)
	case blocked:
		r.skip("blocked by " + s.Needs)
	case broken != "":
		r.Status, r.Reason, r.Remedy = output.Broken, broken, ""
	case len(r.Requests) == 0:
		r.skip("the site has nothing to test")
	}
	return r
}

// add adds a request with its outcome.
func (r *Result) add(s *Scenario, c Client, one *step, o *probe.Outcome) {
	request := Request{Client: c, Label: one.label, Took: metav1.Duration{Duration: o.Took.Round(10 * time.Microsecond)}, Problem: one.check(o)}
	switch {
	case request.Problem != "":
		r.Status, r.Remedy = output.Failed, s.Remedy
	case one.note != nil:
		request.Note = one.note(o)
	}
	r.Requests = append(r.Requests, request)
}

// fail adds a request that failed.
func (r *Result) fail(label, problem string) {
	r.Status = output.Failed
	r.Requests = append(r.Requests, Request{Client: VLAN, Label: label, Problem: problem})
}

// skip makes the result that of a scenario that was skipped.
func (r *Result) skip(why string) {
	r.Status, r.Reason, r.Remedy, r.Requests = output.Skipped, why, "", nil
}

// runScenario runs a scenario that is more than requests.
func (t *test) runScenario(ctx context.Context, s *Scenario) Result {
	r := Result{Name: s.Name, Group: s.Group, Title: s.Title, Status: output.Passed}
	if err := s.run(ctx, t, &r); err != nil {
		if errors.Is(err, errDeleted) {
			err = errDeleted // the other errors are its consequences
		}
		r.Status, r.Reason = output.Broken, err.Error()
	}
	if r.Status == output.Failed {
		r.Remedy = s.Remedy
	}
	return r
}

// newReport returns a report without results.
func (t *test) newReport(started time.Time) *Report {
	_, image := t.site.templatePod()
	r := &Report{
		TypeMeta: metav1.TypeMeta{APIVersion: output.APIVersion, Kind: "SiteTest"},
		Metadata: output.Metadata{Name: t.site.Infra.Name, Namespace: t.site.Infra.Namespace}, Version: t.Version, Image: image,
		Started: metav1.NewTime(started), Results: []Result{}, Summary: map[output.Result]int{},
	}
	if t.site.Cluster != nil {
		r.HostedCluster = t.site.Cluster.Key()
	}
	return r
}
