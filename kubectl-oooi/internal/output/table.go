package output

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"k8s.io/cli-runtime/pkg/printers"
)

// None stands in a table for what there is not.
const None = "<none>"

// Table is rows under titles, aligned as kubectl aligns them.
type Table struct {
	// Titles are in capitals. A table without them has none.
	Titles []string
	Rows   [][]string
	// Indent stands before every line.
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

// Write writes the table. One without rows is nothing.
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
		// A cell of several lines would begin rows of its own.
		line := strings.ReplaceAll(strings.Join(row, "\t"), "\n", " ")
		if _, err := fmt.Fprintln(tabs, line); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
	}
	if err := tabs.Flush(); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(w, t.Indent+strings.TrimRight(line, " \n")); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
	}
	return nil
}
