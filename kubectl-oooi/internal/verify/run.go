package verify

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

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
	// Config is the REST client configuration for reading logs of pods.
	Config *rest.Config
	// Facts must have been collected with Reads, and possibly others.
	Facts *site.Facts
	// Infra is "namespace/name".
	Infra string
	// Scenarios are the scenarios to run.
	Scenarios []Scenario
	// Address is the VLAN address of the pod on the VLAN. The zero Addr selects a free IPv4 address of the DHCP ranges.
	// AddressFlag is the flag that sets Address, for messages.
	Address     netip.Addr
	AddressFlag string
	// Upstream is a name that the upstream resolvers resolve; empty to accept any reply from them.
	Upstream string
	// Version is the version of the plugin.
	Version string
	// Progress is called with each action of the Runner, and never concurrently.
	Progress func(string)
}

// A test is one run of a Runner.
type test struct {
	*Runner

	site    *subject
	clients *kubernetes.Clientset
	plan    *plan
	created []client.Object // deleted by cleanUp
}

// Run runs the scenarios and returns the report. It deletes all objects that it creates. If ctx is done or an object cannot be deleted,
// Run returns an error, and a report with the results so far. If a client does not run, the status of its scenarios is output.Broken.
func (r *Runner) Run(ctx context.Context) (report *Report, err error) {
	started := time.Now().UTC()
	t, err := r.prepare(ctx)
	if err != nil {
		return nil, err
	}
	if n := len(t.plan.clients[VLAN].list) + len(t.plan.clients[Pod].list); n > 0 {
		r.Progress(fmt.Sprintf("%d requests of %d scenarios", n, len(r.Scenarios)))
		err = t.perform(ctx)
	}
	report = t.newReport(started)
	for i := range r.Scenarios {
		if s := &r.Scenarios[i]; s.Group == GroupDisruption {
			report.add(t.disrupt(ctx, s))
		} else {
			report.add(t.plan.evaluate(s, report.Results))
		}
	}
	report.Duration = metav1.Duration{Duration: time.Since(started).Round(100 * time.Millisecond)}
	if ctx.Err() != nil {
		return report, fmt.Errorf("testing Infra %s: %w", r.Infra, context.Cause(ctx))
	}
	return report, err
}

// prepare reads the site and plans the scenarios' requests.
func (r *Runner) prepare(ctx context.Context) (*test, error) {
	s := newSubject(r.Facts, r.Infra)
	if s == nil {
		return nil, fmt.Errorf("Infra %s does not exist or cannot be decoded", r.Infra) //nolint:staticcheck // a kind begins with a capital
	}
	if why := s.Unread(Reads()); why != nil {
		return nil, fmt.Errorf("%s; see 'kubectl oooi test --print-rbac' for the required permissions", why[0])
	}
	if _, image := s.templatePod(); image == "" {
		//nolint:staticcheck // a kind begins with a capital
		return nil, fmt.Errorf("Infra %s lacks a DHCP, DNS or proxy pod, whose image the test uses: deploy them with 'kubectl oooi setup'; without pods, use "+
			"'kubectl oooi doctor', and 'kubectl oooi resolve' and 'kubectl oooi routes' for the expected responses", r.Infra)
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
	s.client, s.hostname, s.label = randomMAC(), hostname(s.Infra.Name), testclient.Component+"-"+utilrand.String(5)
	return &test{Runner: r, site: s, clients: clients, plan: newPlan(s, r.Scenarios)}, nil
}

// perform runs the clients, which send their requests. It returns an error if an object could not be deleted. The plan has the errors
// of clients.
func (t *test) perform(ctx context.Context) error {
	var running sync.WaitGroup
	for _, c := range both {
		of := t.plan.clients[c]
		if len(of.list) == 0 {
			continue
		}
		job, err := t.start(ctx, c, of.list, "--timeout="+requestTimeout.String())
		if err != nil {
			of.err = err
			continue
		}
		running.Go(func() {
			missing := len(of.list)
			of.err = t.streamOutcomes(ctx, job, func(o *probe.Outcome) (done bool, err error) {
				if o.Step < 0 || o.Step >= len(of.list) {
					return false, fmt.Errorf("the client reports an outcome for unknown step %d", o.Step)
				}
				if of.outcomes[o.Step] == nil {
					missing--
				}
				of.outcomes[o.Step] = o
				return missing == 0, nil
			})
		})
	}
	running.Wait()
	return t.cleanUp(ctx)
}

// evaluate returns the result of a scenario; earlier has the results of previous scenarios.
func (p *plan) evaluate(s *Scenario, earlier []Result) Result {
	r, broken := s.newResult(), ""
	for _, one := range p.steps[s.Name] {
		c := p.clients[one.client]
		switch o := c.outcomes[one.index]; {
		case o != nil:
			r.add(one, o)
		case c.err != nil:
			broken = c.err.Error()
		default:
			broken = "the client has not performed all requests"
		}
	}
	switch {
	case len(p.steps[s.Name]) == 0:
		r.skip(p.whyNot(s))
	case slices.ContainsFunc(earlier, func(r Result) bool { return r.Name == s.Needs && r.Status != output.Passed }):
		r.skip("blocked by " + s.Needs)
	case broken != "":
		r.Status, r.Reason = output.Broken, broken
	case r.Status == output.Failed:
		r.Remedy = s.Remedy
	}
	return r
}

// whyNot returns why a scenario lacks steps.
func (p *plan) whyNot(s *Scenario) string {
	if why := p.why[s.Name]; len(why) > 0 {
		return strings.Join(slices.Compact(why), "; ")
	}
	return "the site has nothing to test"
}

func (s *Scenario) newResult() Result {
	return Result{Name: s.Name, Group: s.Group, Title: s.Title, Status: output.Passed}
}

// add adds a request with its outcome.
func (r *Result) add(s *step, o *probe.Outcome) {
	request := Request{Client: s.client, Label: s.label, Took: metav1.Duration{Duration: o.Took.Round(10 * time.Microsecond)}}
	for _, check := range s.checks {
		if request.Problem = check(o); request.Problem != "" {
			r.Status = output.Failed
			break
		}
	}
	if request.Problem == "" && s.note != nil {
		request.Note = s.note(o)
	}
	r.Requests = append(r.Requests, request)
}

// fail adds a request that failed.
func (r *Result) fail(label, problem string) {
	r.Status = output.Failed
	r.Requests = append(r.Requests, Request{Client: VLAN, Label: label, Problem: problem})
}

// skip marks the scenario as skipped.
func (r *Result) skip(why string) {
	r.Status, r.Reason, r.Requests = output.Skipped, why, nil
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
