package views

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// recordsPoll is the interval at which the file of the property records is checked for changes.
const recordsPoll = 500 * time.Millisecond

// ParseRecords reads records in the format of zone files (RFC 1035, section 5). Names are absolute, unless the file has
// $ORIGIN. It returns an error for a type that is not supported, and for a name with several TTLs of one type.
func ParseRecords(r io.Reader, path string) ([]v1alpha1.DNSRecord, error) {
	parser := dns.NewZoneParser(r, ".", path)
	parser.SetDefaultTTL(defaultTTL)
	var list []v1alpha1.DNSRecord
	index := map[string]int{}
	for rr, ok := parser.Next(); ok; rr, ok = parser.Next() {
		h := rr.Header()
		value, err := recordValue(rr)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, h.Name, err)
		}
		record := v1alpha1.DNSRecord{
			Name: strings.ToLower(strings.TrimSuffix(h.Name, ".")), Type: v1alpha1.DNSRecordType(dns.TypeToString[h.Rrtype]),
			TTL: new(int32(min(h.Ttl, maxRecordTTL))),
		}
		key := record.Name + " " + string(record.Type)
		at, known := index[key]
		if !known {
			at = len(list)
			index[key], list = at, append(list, record)
		}
		if *list[at].TTL != *record.TTL {
			return nil, fmt.Errorf("%s: %s: the records of type %s have different TTLs", path, h.Name, record.Type)
		}
		list[at].Values = append(list[at].Values, value)
	}
	if err := parser.Err(); err != nil {
		return nil, fmt.Errorf("parsing records: %w", err)
	}
	return list, nil
}

// maxRecordTTL is the maximum TTL of records, as in the API.
const maxRecordTTL = 86400

// recordValue returns the value of a record in the format of the API.
func recordValue(rr dns.RR) (string, error) {
	switch rr := rr.(type) {
	case *dns.A:
		return rr.A.String(), nil
	case *dns.AAAA:
		return rr.AAAA.String(), nil
	case *dns.CNAME:
		return rr.Target, nil
	case *dns.PTR:
		return rr.Ptr, nil
	case *dns.SRV:
		return fmt.Sprintf("%d %d %d %s", rr.Priority, rr.Weight, rr.Port, rr.Target), nil
	case *dns.TXT:
		return unescape(strings.Join(rr.Txt, "")), nil
	default:
		return "", fmt.Errorf("records of type %s are not supported", dns.TypeToString[rr.Header().Rrtype])
	}
}

// unescape returns a text without the escapes of the presentation format (RFC 1035, section 5.1).
func unescape(s string) string {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			out = append(out, s[i])
			continue
		}
		if i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 10, 8); err == nil {
				out, i = append(out, byte(n)), i+3
				continue
			}
		}
		i++
		out = append(out, s[i])
	}
	return string(out)
}

// readRecords reads the file of the property records, if there is one. It also returns which version of the file that is.
func (cfg *Config) readRecords() ([]v1alpha1.DNSRecord, os.FileInfo, error) {
	if cfg.Records == "" {
		return nil, nil, nil
	}
	file, err := os.Open(cfg.Records)
	if err != nil {
		return nil, nil, fmt.Errorf("records: %w", err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("records: %w", err)
	}
	list, err := ParseRecords(file, cfg.Records)
	return list, info, err
}

// followRecords reads the file of the property records again whenever it changes from the version that was read before, until ctx
// is done. If it is invalid, the previous records stay in use.
func (s *Source) followRecords(ctx context.Context, before os.FileInfo) {
	failed := ""
	wait.UntilWithContext(ctx, func(context.Context) {
		now, err := os.Stat(s.config.Records)
		if err == nil && os.SameFile(before, now) && before.ModTime().Equal(now.ModTime()) && before.Size() == now.Size() {
			return
		}
		var list []v1alpha1.DNSRecord
		if err == nil {
			before = now
			list, _, err = s.config.readRecords()
		}
		if err != nil {
			if failed != err.Error() {
				s.log.Error("cannot read the records; keeping the previous ones", "file", s.config.Records, "err", err)
			}
			failed = err.Error()
			return
		}
		failed = ""
		s.log.Info("read the records again", "file", s.config.Records, "records", len(list))
		s.setRecords(list)
		s.update()
	}, recordsPoll)
}

// setRecords replaces the records of the file, and logs those that cannot be served.
func (s *Source) setRecords(list []v1alpha1.DNSRecord) {
	set, faults := model.NewRecordSet(model.Ref{Kind: "File", Name: s.config.Records}, "records", list)
	if len(faults) > 0 {
		s.log.Error("some records cannot be served", "file", s.config.Records, "err", errors.New(strings.Join(faults, "; ")))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = set
}

// readsOwnLeases reports whether the names of VMs are configured in the Corefile, because no Infra is read.
func (cfg *Config) readsOwnLeases() bool {
	scope := cfg.Source.Scope
	return len(cfg.Source.Leases) > 0 && len(scope.Infras) == 0 && len(scope.HostedClusters) > 0
}

// hasRecords reports whether the Corefile defines records for a view.
func (cfg *Config) hasRecords(view string) bool {
	return cfg.Records != "" || view != Pod && cfg.readsOwnLeases()
}

// ownRecords returns the records that the Corefile defines for a view.
func (b *tableBuilder) ownRecords(view string) []*model.RecordSet {
	var sets []*model.RecordSet
	if b.records != nil {
		sets = append(sets, b.records)
	}
	if view == Pod || !b.cfg.readsOwnLeases() {
		return sets
	}
	domain := ""
	for _, c := range b.snapshot.Clusters {
		if len(c.Domains) > 0 {
			domain = c.Domains[0]
			break
		}
	}
	var cidrs []netip.Prefix
	for _, v := range b.cfg.Views {
		if v.Name == view {
			cidrs = append(cidrs, v.CIDRs...)
		}
	}
	for _, infra := range slices.Compact(slices.Clone(b.cfg.Source.Leases)) {
		if set := b.snapshot.VMNames(infra, domain, cidrs); set != nil {
			sets = append(sets, set)
		}
	}
	return sets
}
