package main

import (
	"errors"
	"net/netip"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/densityops/oooi/test/lab"
)

// A want is an expected DNS answer: the status, and a condition for the data of each record.
type want struct {
	status string
	data   func(rdata string) bool // nil for no records
}

// only expects answers with this address.
func only(address string) want {
	return want{"NOERROR", func(rdata string) bool { return rdata == address }}
}

// inNetwork expects addresses of a network, for cluster IPs, which the API server chooses.
func inNetwork(network string) want {
	prefix := netip.MustParsePrefix(network)
	return want{"NOERROR", func(rdata string) bool {
		a, err := netip.ParseAddr(rdata)
		return err == nil && prefix.Contains(a)
	}}
}

// upstream is the address with which the upstream resolver answers.
const upstream = "203.0.113.99"

var (
	noData    = want{status: "NOERROR"}
	nxDomain  = want{status: "NXDOMAIN"}
	forwarded = only(upstream)
)

// matches reports whether an answer is the expected one.
func (w want) matches(status string, answers []string) bool {
	if status != w.status || w.data == nil {
		return status == w.status && len(answers) == 0
	}
	return len(answers) > 0 && !slices.ContainsFunc(answers, func(line string) bool { return !w.data(rdata(line)) })
}

// rdata returns the data of a record as dig prints it.
func rdata(line string) string { return line[strings.LastIndexByte(line, ' ')+1:] }

// A client is a VM or a pod that queries and connects. Without a resolver configuration, it names the server and the address to
// connect to.
type client struct {
	*show

	prompt  string   // printed before its commands
	through []string // command that runs a command in the client
	source  string   // source address, if the client has several
	server  []string // dig's arguments for the server; empty for the server in the client's resolv.conf
}

// ask queries a name with dig, prints the answer and counts it. It returns the answer section.
func (c client) ask(name, qtype string, w want) []string {
	typed := []string{"dig", name, qtype}
	arguments := slices.Concat(c.server, []string{name, qtype})
	switch {
	case c.source != "":
		typed = []string{"dig", "-b", c.source, name, qtype}
		arguments = slices.Concat([]string{"-b", c.source}, arguments)
	case len(c.server) > 0:
		typed = append([]string{"dig"}, arguments...)
	default:
		typed = typed[:2]
	}
	c.printf("%s %s\n", c.prompt, strings.Join(typed, " "))
	out := c.output(slices.Concat(c.through, []string{"dig"}, arguments, []string{"+noall", "+comments", "+answer", "+tries=1", "+timeout=3"})...)
	var status string
	var answers []string
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		switch _, rest, found := strings.Cut(line, "status: "); {
		case found:
			status, _, _ = strings.Cut(rest, ",")
		case line != "" && !strings.HasPrefix(line, ";"):
			answers = append(answers, strings.Join(strings.Fields(line), " "))
		}
	}
	text := strings.Join(answers, ", ")
	if text == "" {
		text = "(no answer)"
	}
	c.verdict(status+strings.Repeat(" ", max(0, 8-len(status)))+" "+text, w.matches(status, answers))
	return answers
}

// A visit resolves the hostname of a URL and connects to it, with the expected results of both.
type visit struct {
	heading string
	url     string
	trust   string // file with the CA of the server; empty for plain HTTP
	dns     want
	reply   string // expected prefix of a line of the reply
}

// visit queries the hostname of a URL with dig, and connects to the address in the answer with curl.
func (c client) visit(v visit) {
	if v.heading != "" {
		c.printf("\n# %s.\n", v.heading)
	}
	u, err := url.Parse(v.url)
	c.check(err)
	answers := c.ask(u.Hostname(), "A", v.dns)
	if len(answers) == 0 {
		c.Fatalf("%s has no address", u.Hostname())
	}
	c.connect(v, rdata(answers[0]))
}

// connect connects to an address with curl, and prints the reply.
func (c client) connect(v visit, address string) {
	args := c.curlArguments(v, address)
	c.printf("%s curl %s\n", c.prompt, strings.Join(args, " "))
	c.verdict(c.curl(v.reply, args))
}

// curlArguments returns the arguments of curl. A client without a resolver that has the names needs the address.
func (c client) curlArguments(v visit, address string) []string {
	var args []string
	if c.source != "" {
		args = append(args, "--interface", c.source)
	}
	if len(c.server) > 0 {
		u, err := url.Parse(v.url)
		c.check(err)
		port := u.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		args = append(args, "--resolve", u.Hostname()+":"+port+":"+address)
	}
	if v.trust != "" {
		args = append(args, "--cacert", v.trust)
	}
	return append(args, v.url)
}

// curl runs curl in the working directory. It returns the first line of the output with the prefix, or else the first line.
// right reports whether there is such a line and curl succeeded.
func (c client) curl(prefix string, args []string) (reply string, right bool) {
	command := slices.Concat(c.through, []string{"curl", "--silent", "--show-error", "--max-time", "5"}, args)
	cmd := exec.CommandContext(c.ctx, command[0], command[1:]...)
	cmd.Dir = c.dir
	out, err := cmd.CombinedOutput()
	c.check(c.ctx.Err())
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		c.check(err)
	}
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, prefix) {
			return line, err == nil
		}
	}
	reply, _, _ = strings.Cut(string(out), "\n")
	return reply, false
}

// A virtualMachine is a machine whose DHCP client has a log to show.
type virtualMachine struct {
	*lab.Machine
	*show

	client *lab.DHClient
}

// newVM creates a VM on a bridge.
func (s *show) newVM(bridge, mac string) *virtualMachine {
	return &virtualMachine{Machine: lab.NewMachine(s, bridge, mac), show: s}
}

// awaitLine waits until the DHCP client has printed a line with a prefix, and prints the lines about packets before it.
func (m *virtualMachine) awaitLine(prefix string) (line string, packets []string) {
	m.await("the DHCP client to print "+prefix, func() (bool, string) {
		packets = nil
		log := m.client.Log(m)
		for line = range strings.Lines(log) {
			switch line = strings.TrimSpace(line); {
			case strings.HasPrefix(line, prefix):
				return true, ""
			case strings.HasPrefix(line, "DHCP"):
				packets = append(packets, line)
			}
		}
		return false, log
	})
	for _, packet := range packets {
		m.printf("  %s\n", packet)
	}
	return line, packets
}

// boot runs the DHCP client until it has a lease, which must be of an address of a network, and have the DNS server and the host
// name. It returns the address and the DNS server.
func (m *virtualMachine) boot(network, dns, name string) (address, server string) {
	m.printf("vm$ dhclient -v eth0\n")
	m.client = m.StartDHCP(m, "")
	const bound = "bound to "
	line, _ := m.awaitLine(bound)
	address, _, _ = strings.Cut(strings.TrimPrefix(line, bound), " ")
	m.verdict(line, inNetwork(network).data(address))
	m.printf("vm$ grep -e domain-name-servers -e host-name dhclient.leases\n")
	lease := m.client.Lease(m)
	server, hostname := lease["domain_name_servers"], strconv.Quote(lease["host_name"])
	lab.WriteFile(m, "nameserver "+server+"\n", m.Dir, "resolv.conf")
	m.verdict("option domain-name-servers "+server+";", server == dns)
	m.verdict("option host-name "+hostname+";", hostname == strconv.Quote(name))
	return address, server
}
