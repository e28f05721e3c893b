package verify

import (
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/probe"
)

// TestControlPlaneResponses checks outcomes of requests to control-plane services.
func TestControlPlaneResponses(t *testing.T) {
	const unready = "[+]ping ok\n[-]etcd failed: reason withheld\n[-]etcd-readiness failed: reason withheld\nreadyz check failed\n"
	status := func(code int, body string) *probe.Outcome {
		return &probe.Outcome{HTTP: &probe.Response{Status: code, Body: body}}
	}
	for _, c := range []struct {
		outcome *probe.Outcome
		want    string
	}{
		{status(200, ""), ""}, {status(401, ""), ""}, {status(404, ""), ""},
		{status(500, unready), "GET /readyz: 500 Internal Server Error: etcd failed: reason withheld, etcd-readiness failed: reason withheld"},
		{status(503, "<html>"), "GET /readyz: 503 Service Unavailable"}, {status(502, " no\n endpoint"), "GET /readyz: 502 Bad Gateway: no endpoint"},
		{&probe.Outcome{Error: "GET /readyz: no response within 6s"}, "GET /readyz: no response within 6s"},
		{&probe.Outcome{TLS: &probe.Handshake{}}, "the client cannot send requests over TLS; its image is older than the plugin"},
	} {
		if got := responds("/readyz")(c.outcome); got != c.want {
			t.Errorf("%+v: got %q, want %q", c.outcome, got, c.want)
		}
	}
	if got := responds("")(&probe.Outcome{TLS: &probe.Handshake{}}); got != "" {
		t.Errorf("without a path: %q", got)
	}
}

// TestAppsResponses checks outcomes of requests to an app that every cluster has, and to one that does not exist.
func TestAppsResponses(t *testing.T) {
	s := &subject{label: "test-abcde"}
	const (
		exists, unused = "console-openshift-console.apps.example.com", "test-abcde.apps.example.com"
		page           = "<html>\n<h1>Application is not available</h1>"
		bare           = "GET /: 503 Service Unavailable"
		unreachable    = "the proxy cannot reach the apps address"
	)
	for _, c := range []struct {
		name, problem, note string
		status              int
		body                string
	}{
		{exists, "", "", 200, ""}, {exists, "", "", 302, ""}, {exists, "", "the router responds", 503, page}, {exists, bare, "", 503, "<html>"}, {exists, "GET /: 500", "", 500, ""},
		{unused, "", "", 404, ""}, {unused, "", "", 503, page}, {unused, "", "", 503, "<html>"}, {unused, "GET /: 502", "", 502, ""},
		{exists, unreachable, "", 503, "upstream connect error or disconnect/reset before headers. reset"}, {unused, unreachable, "", 503, "no healthy upstream"},
	} {
		o := &probe.Outcome{HTTP: &probe.Response{Status: c.status, Body: c.body}}
		problem, note := s.answeredByApps(c.name)(o), s.noApp(c.name)(o)
		if !strings.HasPrefix(problem, c.problem) || !strings.HasPrefix(note, c.note) || (problem == "") != (c.problem == "") || (note == "") != (c.note == "") {
			t.Errorf("%s, %d %s: got %q and %q, want %q and %q", c.name, c.status, c.body, problem, note, c.problem, c.note)
		}
	}
}

// TestCertificateComesBeforeTheResponse expects the cause: a server that is another one may respond anything.
func TestCertificateComesBeforeTheResponse(t *testing.T) {
	s := &subject{}
	o := &probe.Outcome{TLS: &probe.Handshake{Connected: true, Chain: [][]byte{{1}}}, Error: "GET /readyz: EOF"}
	r := &Result{}
	r.add(&step{checks: []check{s.verified("api.example.com", "", model.RoleAPI), responds("/readyz")}}, o)
	if got := r.Requests[0].Problem; !strings.Contains(got, "invalid certificate") {
		t.Errorf("got %q", got)
	}
}
