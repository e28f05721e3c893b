package apps_test

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/lab"
)

// hostname returns an apps name.
func (d *dataPlane) hostname(label string) string {
	return label + ".apps.demo." + d.Namespace + ".example.com"
}

// resolve queries CoreDNS for an apps name from a source address, as lab.Resolve.
func (d *dataPlane) resolve(ctx context.Context, source string, qtype uint16) string {
	return lab.Resolve(ctx, source, dnsServer+":53", d.hostname("console"), qtype)
}

// connect does a TLS handshake with the apps through an address of the proxy, and returns the name of
// the backend or the error.
func (d *dataPlane) connect(ctx context.Context, through string) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, name, err := d.ca.DialTLS(ctx, net.JoinHostPort(through, "443"), d.hostname("console"))
	if err == nil {
		err = conn.Close()
	}
	if err != nil {
		return err.Error()
	}
	return name
}

// differences compares the data plane with these apps addresses: VMs resolve the apps names to them and pods
// to the proxy, and connections of both reach the backend at v4. It returns a description of the differences,
// and calls matched, unless that is nil, with each check that succeeds.
func (d *dataPlane) differences(ctx context.Context, v4, v6 string, matched func(what string)) string {
	var differences []string
	for _, q := range []struct{ what, got, want string }{
		{"A for VMs", d.resolve(ctx, vm, dns.TypeA), v4},
		{"AAAA for VMs", d.resolve(ctx, vm, dns.TypeAAAA), v6},
		{"A for pods", d.resolve(ctx, pod, dns.TypeA), serviceIP},
		{"AAAA for pods", d.resolve(ctx, pod, dns.TypeAAAA), "NOERROR"},
		{"TLS from VMs", d.connect(ctx, proxy), v4},
		{"TLS from pods", d.connect(ctx, serviceIP), v4},
	} {
		if q.got != q.want {
			differences = append(differences, q.what+" is "+q.got)
		} else if matched != nil {
			matched(q.what)
		}
	}
	return strings.Join(differences, ", ")
}

// awaitAddress waits until there are no differences from these apps addresses, and logs the time from since
// until each check succeeded.
func (d *dataPlane) awaitAddress(since time.Time, v4, v6 string) {
	d.Helper()
	took := make(map[string]time.Duration)
	lab.Await(d.T, "names and connections to use "+v4, func() string {
		return d.differences(d.Context(), v4, v6, func(what string) {
			if _, ok := took[what]; !ok {
				took[what] = time.Since(since).Round(time.Millisecond)
			}
		})
	})
	d.Logf("at %s after: %v", v4, took)
}
