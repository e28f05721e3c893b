package envoy

import (
	"context"
	"encoding/json"
	"net/url"

	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// Stats are counters and gauges of one Envoy.
type Stats struct {
	Header `json:",inline"`

	Stats []Stat `json:"stats"`
	// Filter is the regular expression for the names that Read selects; empty for all.
	Filter string `json:"-"`
}

// A Stat is a counter or gauge, or a text readout.
type Stat struct {
	Name string `json:"name"`
	// Value is an integer, or the text of a text readout.
	Value value `json:"value"`
}

// value is a number or a string of JSON.
type value struct{ json.RawMessage }

// Int64 returns the number, and an error if it is not an integer.
func (v value) Int64() (int64, error) { return json.Number(v.RawMessage).Int64() }

// String returns the number, or the text without quotation marks.
func (v value) String() string {
	var text string
	if json.Unmarshal(v.RawMessage, &text) == nil {
		return text
	}
	return string(v.RawMessage)
}

// statsDump is the used part of /stats?format=json.
type statsDump struct {
	Stats []Stat `json:"stats"`
}

// Read reads the stats whose names match the filter, in Envoy's order. It does not read histograms.
func (s *Stats) Read(ctx context.Context, get Getter) error {
	page, err := decode[statsDump](ctx, get, "/stats?format=json&filter="+url.QueryEscape(s.Filter))
	if err != nil {
		return err
	}
	s.Stats = []Stat{}
	for _, stat := range page.Stats {
		if stat.Name != "" { // the element of the histograms lacks a name
			s.Stats = append(s.Stats, stat)
		}
	}
	return nil
}

// StatsTable returns a table with a row for each stat.
func StatsTable(reports []*Stats, wide bool) *output.Table {
	var list []Row[Stat]
	for _, r := range reports {
		list = rows(list, r.Metadata.Name, r.Stats)
	}
	return output.NewTable([]output.Column[Row[Stat]]{
		podColumn[Stat](),
		{Title: "NAME", Value: func(r Row[Stat]) string { return r.Part.Name }},
		{Title: "VALUE", Value: func(r Row[Stat]) string { return r.Part.Value.String() }},
	}, list, wide)
}
