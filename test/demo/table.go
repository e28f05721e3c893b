package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/densityops/oooi/test/lab"
)

// getTable returns the lines that 'kubectl get -L LABELS' prints: the table of the API server, with labels as columns.
func getTable(ctx context.Context, cp *lab.ControlPlane, path string, labels ...string) ([]string, error) {
	table, err := fetchTable(ctx, cp, path)
	if err != nil {
		return nil, fmt.Errorf("getting %s: %w", path, err)
	}
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	var shown []int
	for i, column := range table.ColumnDefinitions {
		if column.Priority == 0 { // others are only for -o wide
			shown = append(shown, i)
			fmt.Fprintf(w, "%s\t", strings.ToUpper(column.Name))
		}
	}
	for _, label := range labels {
		fmt.Fprintf(w, "%s\t", strings.ToUpper(label[strings.LastIndexByte(label, '/')+1:]))
	}
	for _, row := range table.Rows {
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal(row.Object.Raw, &object); err != nil {
			return nil, fmt.Errorf("reading an object of %s: %w", path, err)
		}
		fmt.Fprintln(w)
		for _, i := range shown {
			fmt.Fprintf(w, "%v\t", row.Cells[i])
		}
		for _, label := range labels {
			fmt.Fprintf(w, "%s\t", object.Labels[label])
		}
	}
	if err := w.Flush(); err != nil {
		return nil, fmt.Errorf("printing %s: %w", path, err)
	}
	var lines []string
	for line := range strings.Lines(text.String()) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines, nil
}

// fetchTable requests a list of objects as a table.
func fetchTable(ctx context.Context, cp *lab.ControlPlane, path string) (*metav1.Table, error) {
	client, err := rest.HTTPClientFor(cp.RESTConfig())
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	const timeout = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, cp.ServerURL()+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }() // read completely
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", response.Status, data)
	}
	table := &metav1.Table{}
	return table, json.Unmarshal(data, table)
}
