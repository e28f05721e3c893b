package verify

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// A Report has the results of all scenarios of one site. It contains no credentials.
type Report struct {
	metav1.TypeMeta `json:",inline"`

	Metadata output.Metadata `json:"metadata"`
	// HostedCluster is "namespace/name"; empty if there is none.
	HostedCluster string          `json:"hostedCluster,omitempty"`
	Started       metav1.Time     `json:"started"`
	Duration      metav1.Duration `json:"duration"`
	// Version is the version of the plugin, and Image the image of the clients.
	Version string   `json:"version"`
	Image   string   `json:"image"`
	Results []Result `json:"results"`
	// Summary is the number of results by status.
	Summary map[output.Result]int `json:"summary"`
}

// A Result is the result of one scenario.
type Result struct {
	Name  string `json:"name"`
	Group string `json:"group"`
	Title string `json:"title"`
	// Status is pass, fail, skip, or error if the scenario could not run.
	Status output.Result `json:"status"`
	// Reason is why the scenario was skipped or could not run.
	Reason   string    `json:"reason,omitempty"`
	Remedy   string    `json:"remedy,omitempty"`
	Requests []Request `json:"requests,omitempty"`
}

// A Request is one request of a scenario.
type Request struct {
	Client Client `json:"client"`
	Label  string `json:"request"`
	// Took is how long the request took.
	Took metav1.Duration `json:"took"`
	// Problem is how the outcome differs from the expected one; empty if the request passed.
	Problem string `json:"problem,omitempty"`
	// Note is a remark about an expected outcome.
	Note string `json:"note,omitempty"`
}

func (r *Report) add(result Result) {
	r.Results = append(r.Results, result)
	r.Summary[result.Status]++
}

// Failed reports whether a scenario failed or could not run.
func (r *Report) Failed() bool { return r.Summary[output.Failed]+r.Summary[output.Broken] > 0 }

// A Failure describes why a scenario did not pass.
type Failure struct {
	Message  string
	Evidence []string
	// Remedy is what to do, as an imperative; empty for a scenario that could not run.
	Remedy string
}

// Failure returns why a scenario failed or could not run; nil for another result.
func (r *Result) Failure() *Failure {
	switch r.Status {
	case output.Failed:
		f := &Failure{Message: "not met: " + r.Title, Remedy: r.Remedy}
		for _, request := range r.Requests {
			if request.Problem != "" {
				f.Evidence = append(f.Evidence, fmt.Sprintf("from %s: %s: %s", request.Client, request.Label, request.Problem))
			}
		}
		return f
	case output.Broken:
		return &Failure{Message: "could not be tested: " + r.Title, Evidence: []string{r.Reason}}
	default:
		return nil
	}
}

// reportFile returns the name of the report of Infra "namespace/name" in a bundle.
func reportFile(infra string) string { return "test-" + strings.ReplaceAll(infra, "/", "_") + ".json" }

// Save adds the report to the facts, which a bundle stores. It must not be called concurrently for the same facts.
func (r *Report) Save(facts *site.Facts) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	facts.Added[reportFile(r.Metadata.Namespace+"/"+r.Metadata.Name)] = data
	return nil
}

// Saved returns the report of the Infra "namespace/name" that Save has added to facts; nil if there is none.
func Saved(facts *site.Facts, infra string) (*Report, error) {
	data, ok := facts.Added[reportFile(infra)]
	if !ok {
		return nil, nil //nolint:nilnil // no report, no error
	}
	r := &Report{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("decoding the report %s: %w", reportFile(infra), err)
	}
	return r, nil
}

// latency returns the slowest request.
func (r *Result) latency() time.Duration {
	var slowest time.Duration
	for _, one := range r.Requests {
		slowest = max(slowest, one.Took.Duration)
	}
	return slowest
}

// Show writes a report as text, with all requests if whole is set, otherwise with failed requests.
func (r *Report) Show(w io.Writer, whole bool) error {
	var b strings.Builder
	for i := range r.Results {
		one := &r.Results[i]
		fmt.Fprintf(&b, "%-5s  %-22s  %s", one.Status, one.Name, one.Title)
		switch {
		case one.Reason != "":
			fmt.Fprintf(&b, ": %s", output.Escaped(one.Reason))
		case len(one.Requests) == 1:
			fmt.Fprintf(&b, " (%s)", one.latency())
		default:
			fmt.Fprintf(&b, " (%d requests, at most %s)", len(one.Requests), one.latency())
		}
		b.WriteString("\n")
		for _, request := range one.Requests {
			switch {
			case request.Problem != "":
				fmt.Fprintf(&b, "       from %s: %s: %s\n", request.Client, output.Escaped(request.Label), output.Escaped(request.Problem))
			case whole || one.Group == GroupDisruption || request.Note != "":
				fmt.Fprintf(&b, "       from %s: %s: %s", request.Client, output.Escaped(request.Label), request.Took.Duration)
				if request.Note != "" {
					b.WriteString(", " + request.Note)
				}
				b.WriteString("\n")
			}
		}
		if one.Remedy != "" {
			fmt.Fprintf(&b, "       -> %s\n", one.Remedy)
		}
	}
	fmt.Fprintf(&b, "Infra %s/%s: %s, in %s\n", r.Metadata.Namespace, r.Metadata.Name, r.summarize(), r.Duration.Duration)
	if r.Failed() {
		fmt.Fprintf(&b, "Run 'kubectl oooi doctor %s -n %s' to find the cause.\n", r.Metadata.Name, r.Metadata.Namespace)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("printing the report: %w", err)
	}
	return nil
}

func (r *Report) summarize() string {
	parts := []string{fmt.Sprintf("%d passed", r.Summary[output.Passed])}
	for _, s := range []struct {
		status output.Result
		text   string
	}{{output.Failed, "failed"}, {output.Broken, "not run"}, {output.Skipped, "skipped"}} {
		if n := r.Summary[s.status]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s.text))
		}
	}
	return strings.Join(parts, ", ")
}

// Elements of a JUnit report.
type (
	junitSuite struct {
		XMLName   xml.Name    `xml:"testsuite"`
		Name      string      `xml:"name,attr"`
		Tests     int         `xml:"tests,attr"`
		Failures  int         `xml:"failures,attr"`
		Errors    int         `xml:"errors,attr"`
		Skipped   int         `xml:"skipped,attr"`
		Time      string      `xml:"time,attr"`
		Timestamp string      `xml:"timestamp,attr"`
		Cases     []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name  string `xml:"name,attr"`
		Class string `xml:"classname,attr"`
		Time  string `xml:"time,attr"`
		Cause *junitCause
	}
	// junitCause is an element failure, error or skipped; absent for a scenario that passed.
	junitCause struct {
		XMLName xml.Name
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

var junitElements = map[output.Result]string{output.Failed: "failure", output.Broken: "error", output.Skipped: "skipped"}

// JUnit writes a report in the XML format of JUnit, with a test case for each scenario.
func (r *Report) JUnit(w io.Writer) error {
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
	suite := junitSuite{
		Name: "oooi " + r.Metadata.Namespace + "/" + r.Metadata.Name, Tests: len(r.Results), Failures: r.Summary[output.Failed],
		Errors: r.Summary[output.Broken], Skipped: r.Summary[output.Skipped], Time: seconds(r.Duration.Duration), Timestamp: r.Started.UTC().Format(time.RFC3339),
	}
	for i := range r.Results {
		one := &r.Results[i]
		c := junitCase{Name: one.Name, Class: "oooi." + one.Group, Time: seconds(one.latency())}
		if element := junitElements[one.Status]; element != "" {
			c.Cause = &junitCause{XMLName: xml.Name{Local: element}, Message: one.Reason}
		}
		if one.Status == output.Failed {
			c.Cause.Message, c.Cause.Text = one.Title, strings.Join(append(one.Failure().Evidence, one.Remedy), "\n")
		}
		suite.Cases = append(suite.Cases, c)
	}
	data, err := xml.MarshalIndent(suite, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, data)
	}
	if err != nil {
		return fmt.Errorf("printing the report: %w", err)
	}
	return nil
}
