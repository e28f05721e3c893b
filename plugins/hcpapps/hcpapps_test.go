package hcpapps

import (
	"strings"
	"testing"

	"github.com/coredns/coredns/plugin"

	"github.com/densityops/oooi/plugins/internal/viewstest"
	"github.com/densityops/oooi/test/golden"
)

func TestQueries(t *testing.T) {
	viewstest.Transcripts(t, golden.Transcript, func(t *testing.T, block string) plugin.Handler {
		t.Helper()
		h, err := parse(viewstest.Controller(block))
		if err != nil {
			t.Fatal(err)
		}
		viewstest.Start(t, &h.Handler)
		return h
	})
}

func TestSetup(t *testing.T) {
	for _, tc := range []struct{ input, wantErr string }{
		{"hcpapps", ""},
		{"hcpapps {\n source mirrored status\n}", ""},
		{"hcpapps {\n view lab\n answer lab 192.0.2.9\n hostedcluster a/b\n source hosted\n credentials a/secret\n allow 192.0.2.0/24\n}", ""},
		{"hcpapps {\n source hosted\n selector app=router,tier=web\n}", ""},
		{"hcpapps {\n source\n}", "source: want one or more of hosted, mirrored, status"},
		{"hcpapps {\n source guess\n}", `source: "guess": want one or more of hosted, mirrored, status`},
		{"hcpapps {\n source status status\n}", "source: duplicate status"},
		{"hcpapps {\n service noslash\n}", `service: "noslash" is not NAMESPACE/NAME`},
		{"hcpapps {\n selector broken\n}", `selector: "broken" is not KEY=VALUE`},
		{"hcpapps {\n allow 300.1.1.1/8\n}", `allow: "300.1.1.1/8" is not a network`},
		{"hcpapps {\n credentials a/b/c\n}", `credentials: "a/b/c" is not NAMESPACE/NAME`},
		{"hcpapps {\n source hosted\n credentials a/b\n}", "credentials require exactly one hosted cluster"},
		{"hcpapps {\n view lab\n answer lab 192.0.2.9\n hostedcluster a/b\n credentials a/b\n}", "credentials require 'source hosted'"},
		{"hcpapps {\n source hosted\n service a/b\n selector c=d\n}", "service and selector are mutually exclusive"},
		{"hcpapps {\n service a/b\n}", "service and selector require 'source"},
		{"hcpapps {\n view lab\n answer lab 192.0.2.9\n hostedcluster a/b\n source mirrored\n}", "allow is required without an Infra; list the accepted networks with 'allow CIDR'"},
		{"hcpapps {\n nonsense\n}", "unknown property 'nonsense'"},
	} {
		_, err := parse(viewstest.Controller(tc.input))
		switch {
		case tc.wantErr == "" && err != nil:
			t.Errorf("%s: %v", tc.input, err)
		case tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)):
			t.Errorf("%s: error %v, want one with %q", tc.input, err, tc.wantErr)
		}
	}
}
