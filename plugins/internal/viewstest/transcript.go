package viewstest

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/dnstest"
	"github.com/coredns/coredns/plugin/test"

	"github.com/miekg/dns"
)

// Transcripts runs the transcripts testdata/*.txt with run, which is golden.Transcript. A line "PLUGIN [ZONE ...] { PROPERTY; ... }" is
// a block of a Corefile, which start parses and starts; it handles the queries in the lines after it, "CLIENT NAME
// TYPE". The output is the reply, without the rcode NOERROR and with 1 as the serial of SOA records.
func Transcripts(t *testing.T, run func(tb testing.TB, file string, run func(line string) []string), start func(t *testing.T, block string) plugin.Handler) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			var h plugin.Handler
			run(t, file, func(line string) []string {
				if strings.HasSuffix(line, "}") {
					h = start(t, Block(line))
					return nil
				}
				words := strings.Fields(line)
				return ask(t, h, words[0], words[1], dns.StringToType[words[2]])
			})
		})
	}
}

// Block returns the block of a Corefile in a line "PLUGIN [ZONE ...] { PROPERTY; ... }".
func Block(line string) string {
	return strings.NewReplacer("{ ", "{\n", " }", "\n}", "; ", "\n").Replace(line)
}

// ask returns the reply to a query, one record a line.
func ask(t *testing.T, h plugin.Handler, client, name string, qtype uint16) (lines []string) {
	t.Helper()
	rec := dnstest.NewRecorder(&test.ResponseWriter{RemoteIP: client})
	if _, err := h.ServeDNS(t.Context(), rec, new(dns.Msg).SetQuestion(name, qtype)); err != nil || rec.Msg == nil {
		t.Fatalf("%s queries %s: no reply: %v", client, name, err)
	}
	m := rec.Msg
	clearSerial(m)
	if authoritative := m.Rcode != Passed && m.Rcode != dns.RcodeRefused; m.Authoritative != authoritative {
		t.Errorf("%s queries %s: AA is %t, want %t", client, name, m.Authoritative, authoritative)
	}
	switch m.Rcode {
	case Passed:
		lines = append(lines, "passed on")
	case dns.RcodeSuccess:
	default:
		lines = append(lines, dns.RcodeToString[m.Rcode])
	}
	for _, section := range []struct {
		name string
		rrs  []dns.RR
	}{{"", m.Answer}, {"authority: ", m.Ns}, {"additional: ", m.Extra}} {
		for _, rr := range section.rrs {
			lines = append(lines, section.name+strings.ReplaceAll(rr.String(), "\t", " "))
		}
	}
	return lines
}
