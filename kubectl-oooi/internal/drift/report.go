package drift

import (
	"encoding/json"
	"errors"
	"fmt"
)

// File is the name of the file in a bundle with a Report for each site.
const File = "drift.json"

// Report is the result of Read for one site.
type Report struct {
	Differences []Difference `json:"differences,omitempty"`
	// Refused is why setup would reject the site, and Unread why the site was not compared; empty otherwise.
	Refused string `json:"refused,omitempty"`
	Unread  string `json:"unread,omitempty"`
}

// ReportOf returns the report of a result of Read.
func ReportOf(differences []Difference, err error) Report {
	if err == nil {
		return Report{Differences: differences}
	}
	if errors.As(err, new(*RefusedError)) {
		return Report{Refused: err.Error()}
	}
	return Report{Unread: err.Error()}
}

// Encode encodes reports by site, as site.Site.Key returns it.
func Encode(reports map[string]Report) ([]byte, error) {
	data, err := json.MarshalIndent(reports, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", File, err)
	}
	return data, nil
}

// Decode decodes the result of Encode.
func Decode(data []byte) (map[string]Report, error) {
	var reports map[string]Report
	if err := json.Unmarshal(data, &reports); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", File, err)
	}
	return reports, nil
}
