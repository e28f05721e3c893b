package output

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"k8s.io/cli-runtime/pkg/printers"
)

// None is the text of an empty cell.
const None = "<none>"

// A Table is written in aligned columns, as kubectl prints tables.
type Table struct {
	// Titles are the column headers, in capitals; nil for a table without headers.
	Titles []string
	Rows   [][]string
	// Indent is written before every line.
	Indent string
}

// Add adds a row; empty cells become None.
func (t *Table) Add(cells ...string) {
	for i, cell := range cells {
		if cell == "" {
			cells[i] = None
		}
	}
	t.Rows = append(t.Rows, cells)
}

// Write writes the table. It writes nothing, not even the titles, if there are no rows.
func (t *Table) Write(w io.Writer) error {
	if len(t.Rows) == 0 {
		return nil
	}
	var b bytes.Buffer
	tabs := printers.GetNewTabWriter(&b)
	rows := t.Rows
	if t.Titles != nil {
		rows = append([][]string{t.Titles}, rows...)
	}
	for _, row := range rows {
		// A line break in a cell would start a new row.
		line := strings.ReplaceAll(strings.Join(row, "\t"), "\n", " ")
		if _, err := fmt.Fprintln(tabs, line); err != nil {
			return fmt.Errorf("printing a table: %w", err)
		}
	}
	if err := tabs.Flush(); err != nil {
		return fmt.Errorf("printing a table: %w", err)
	}
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(w, t.Indent+strings.TrimRight(line, " \n")); err != nil {
			return fmt.Errorf("printing a table: %w", err)
		}
	}
	return nil
}
