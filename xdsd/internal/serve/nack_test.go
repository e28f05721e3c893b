package serve

import (
	"testing"

	"github.com/densityops/oooi/internal/model"
)

func TestNACKMessageNamesTheOwners(t *testing.T) {
	route := func(host, source string) model.Route {
		return model.Route{Host: host, Owner: model.Ref{Kind: "ProxyServer", Namespace: "clusters", Name: "demo"}, Source: source}
	}
	p := &model.ProxyServer{Listeners: []*model.Listener{
		{Port: 44, Routes: []model.Route{route("a", "spec.backends[0] a"), route("b", "spec.backends[0] a")}},
		{Port: 443, Routes: []model.Route{route("a", "1"), route("b", "2"), route("c", "3"), route("d", "4"), route("e", "5")}},
	}}
	for _, test := range []struct{ name, kind, message, want string }{
		{"listener", "listener", "Error adding/updating listener(s) port-44: in use\n", "listener port-44 of ProxyServer clusters/demo spec.backends[0] a: Error adding/updating listener(s) port-44: in use\n"},
		{"listener with many owners", "listener", "port-443: in use", "listener port-443 of ProxyServer clusters/demo 1, ProxyServer clusters/demo 2, ProxyServer clusters/demo 3, 2 more: port-443: in use"},
		{"deleted listener", "listener", "port-4: in use", "listener: port-4: in use"},
		{"cluster with a listener's name in its own", "cluster", "infra/clusters/port-44/apps: bad", "cluster: infra/clusters/port-44/apps: bad"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := nackMessage(p, test.kind, test.message); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}
