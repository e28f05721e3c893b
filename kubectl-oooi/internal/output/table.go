package output

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
)

// None is the text of an empty cell.
const None = "<none>"

// A Column is a column of a table with a row for each T.
type Column[T any] struct {
	// Title is the column header, in capitals.
	Title string
	// Value returns the text of a cell.
	Value func(T) string
	// Wide means that only wide tables have the column. Hide means that no table has it.
	Wide, Hide bool
}

// NewTable returns a table with a row for each item.
func NewTable[T any](columns []Column[T], items []T, wide bool) *Table {
	t := &Table{Rows: make([][]string, len(items))}
	for _, c := range columns {
		if c.Hide || c.Wide && !wide {
			continue
		}
		t.Titles = append(t.Titles, c.Title)
		for i, item := range items {
			t.Rows[i] = append(t.Rows[i], c.Value(item))
		}
	}
	return t
}

// A Table is written in aligned columns, as kubectl prints tables.
type Table struct {
	// Titles are the column headers, in capitals; nil for a table without headers.
	Titles []string
	// Rows have the same number of cells. Empty cells are written as None.
	Rows [][]string
	// Indent is written before every line.
	Indent string
}

// Add adds a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Write writes the table. It writes nothing, not even the titles, if there are no rows.
func (t *Table) Write(w io.Writer) error {
	if len(t.Rows) == 0 {
		return nil
	}
	table := &metav1.Table{ColumnDefinitions: make([]metav1.TableColumnDefinition, len(t.Rows[0]))}
	for i, title := range t.Titles {
		table.ColumnDefinitions[i].Name = title
	}
	for _, row := range t.Rows {
		cells := make([]any, len(row))
		for i, cell := range row {
			cells[i] = cmp.Or(strings.ReplaceAll(cell, "\n", " "), None) // kubectl would print the first line only
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells})
	}
	var b bytes.Buffer
	if err := printers.NewTablePrinter(printers.PrintOptions{NoHeaders: t.Titles == nil}).PrintObj(table, &b); err != nil {
		return fmt.Errorf("printing a table: %w", err)
	}
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(w, t.Indent+strings.TrimRight(line, " \n")); err != nil {
			return fmt.Errorf("printing a table: %w", err)
		}
	}
	return nil
}
