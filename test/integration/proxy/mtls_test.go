package proxy_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

func TestCentralXdsdServesEachEnvoyItsOwnAndNobodyElse(t *testing.T) {
	c := newCentral(t)
	for _, n := range c.tenants {
		n.reaches(t, "one")
		listeners, err := n.envoy.Listeners(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"metrics", fmt.Sprint("port-", n.port)}
		if names := slices.Sorted(maps.Keys(listeners)); !slices.Equal(names, want) {
			t.Errorf("the Envoy of %s has the listeners %q, want %q", n.name, names, want)
		}
	}
	one, two := c.tenants[0], c.tenants[1]
	other := lab.NewCA(t)
	good, key := c.ca.Issue(t, one.uri())
	foreign, foreignKey := other.Issue(t, one.uri())
	expired, expiredKey := c.ca.IssueExpired(t, one.uri())
	nobody, nobodyKey := c.ca.Issue(t, "envoy")
	for _, test := range []struct {
		name                 string
		cert, key, authority []byte
		of                   *tenant
		flags                []string
		why                  string
	}{
		{"who asks for another's configuration", good, key, c.ca.PEM(), two, nil, "but the certificate is of clusters/" + one.name},
		{"a certificate that names no proxy", nobody, nobodyKey, c.ca.PEM(), one, nil, "has 0 URIs"},
		{"a certificate of another authority", foreign, foreignKey, c.ca.PEM(), one, nil, "certificate signed by unknown authority"},
		{"a certificate that has expired", expired, expiredKey, c.ca.PEM(), one, nil, "certificate has expired"},
		{"Envoy does not believe xdsd's authority", good, key, other.PEM(), one, nil, "CERTIFICATE_VERIFY_FAILED"},
		{"Envoy wants xdsd to have another name", good, key, c.ca.PEM(), one, []string{"--tls-name", "other"}, "CERTIFICATE_VERIFY_FAILED"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSecret(t)
			s.put(t, test.cert, test.key, test.authority)
			c.refuses(t, test.of, s, test.why, test.flags...)
		})
	}
	t.Run("xdsd's certificate has expired", func(t *testing.T) {
		cert, key := c.ca.IssueExpired(t, "xdsd")
		c.secret.put(t, cert, key, c.ca.PEM())
		c.refuses(t, one, one.secret, "CERTIFICATE_VERIFY_FAILED")
	})
	// Whoever was connected before has seen nothing of all this.
	one.update(t, one.object("one", "two"))
	one.reaches(t, "two")
}

func TestRotationOfAllCertificatesDropsNothing(t *testing.T) {
	c := newCentral(t)
	var streams []*stream
	for _, n := range c.tenants {
		streams = append(streams, n.tick(t, n.port, hello{sni: "one." + n.domain}, n.backend))
	}
	goOn := func() {
		t.Helper()
		for _, st := range streams {
			st.more(t, 100)
		}
	}
	goOn()
	before := c.connected(t)

	// Everything anew, authorities too, and nobody believes the old one any more.
	old := newSecret(t)
	old.write(t, c.ca, c.tenants[0].uri())
	next := lab.NewCA(t)
	c.secret.write(t, next, "xdsd")
	for _, n := range c.tenants {
		n.secret.write(t, next, n.uri())
	}
	goOn()
	for _, n := range c.tenants {
		n.update(t, n.object("one", "two"))
		n.reaches(t, "two")
	}
	if after := c.connected(t); !maps.Equal(before, after) {
		t.Errorf("the Envoys were connected since %v, and are now since %v", before, after)
	}
	goOn()

	// New connections are by the new certificates, on both sides.
	c.xdsd.Kill(t)
	goOn()
	c.xdsd.Start(t)
	c.current(t)
	for _, n := range c.tenants {
		n.update(t, n.object("one", "two", "three"))
		n.reaches(t, "three")
	}
	c.refuses(t, c.tenants[0], old, "CERTIFICATE_VERIFY_FAILED") // as Envoy believes the old authority
	stale := newSecret(t)
	cert, key := c.ca.Issue(t, c.tenants[0].uri())
	stale.put(t, cert, key, next.PEM())
	c.refuses(t, c.tenants[0], stale, "certificate signed by unknown authority") // nor does xdsd
	for _, st := range streams {
		st.end(t)
	}
}
