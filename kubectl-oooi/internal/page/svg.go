package page

import (
	"fmt"
	"slices"
	"strings"
)

// Sizes in a drawing.
const (
	boxWidth   = 300
	lineHeight = 17
	padding    = 10
	gapAcross  = 170
	gapDown    = 26
	margin     = 12
	// maxCharacters fit into a box, and maxLabel into the gap between two boxes. A character is 7.8 wide.
	maxCharacters = 35
	maxLabel      = 20
)

// A Drawing is a graph with the positions of its elements.
type Drawing struct {
	Title         string
	Width, Height int
	Boxes         []Box
	Lines         []Line
}

// A Box is a node.
type Box struct {
	// ID is that of the node.
	ID                  string
	X, Y, Width, Height int
	State               State
	Text                []Text
}

// Text is one line in a box.
type Text struct {
	X, Y  int
	Bold  bool
	Value string
}

// A Line is an edge, a curve between two boxes. Its label ends at LabelX.
type Line struct {
	Path           string
	State          State
	LabelX, LabelY int
	Label          string
}

// Draw places the nodes of a graph in columns, and the edges between them.
func (g *Graph) Draw() *Drawing {
	d := &Drawing{Title: g.Title, Width: 2*margin + columns*boxWidth + (columns-1)*gapAcross}
	at := map[string]*Box{}
	bottom := [columns]int{}
	d.Boxes = make([]Box, 0, len(g.Nodes))
	for _, n := range g.Nodes {
		lines := n.Lines
		b := Box{
			ID: n.ID, X: margin + n.column*(boxWidth+gapAcross), Y: margin + bottom[n.column], Width: boxWidth,
			Height: 2*padding + len(lines)*lineHeight, State: n.State,
		}
		for i, line := range lines {
			b.Text = append(b.Text, Text{X: b.X + padding, Y: b.Y + padding + (i+1)*lineHeight - 4, Bold: i == 0, Value: shortened(line, maxCharacters)})
		}
		bottom[n.column] += b.Height + gapDown
		d.Boxes = append(d.Boxes, b)
		at[n.ID] = &d.Boxes[len(d.Boxes)-1]
	}
	d.Height = 2*margin + slices.Max(bottom[:])
	ends := map[string]int{}
	for _, e := range g.Edges {
		from, to := at[e.From], at[e.To]
		d.Lines = append(d.Lines, line(e, from, to, ends))
	}
	return d
}

// line returns the curve of an edge. ends counts the edges at each side of a box, so that they do not overlap.
func line(e Edge, from, to *Box, ends map[string]int) Line {
	port := func(id string, b *Box, side string) int {
		ends[id+side]++
		return b.Y + min(b.Height-4, 12+(ends[id+side]-1)*16)
	}
	l := Line{State: e.State, Label: shortened(e.Label, maxLabel)}
	if from.X == to.X { // above each other
		x, y1, y2 := from.X+from.Width/2, from.Y+from.Height, to.Y
		if y2 < y1 {
			y1, y2 = from.Y, to.Y+to.Height
		}
		l.Path, l.LabelX, l.LabelY = path(x, y1, x, y1, x, y2, x, y2), x-6, (y1+y2)/2+4
		return l
	}
	x1, y1, x2, y2 := from.X+from.Width, port(e.From, from, " right"), to.X, port(e.To, to, " left")
	middle := (x1 + x2) / 2
	l.Path, l.LabelX, l.LabelY = path(x1, y1, middle, y1, middle, y2, x2, y2), x2-6, y2-4
	return l
}

func shortened(text string, length int) string {
	if runes := []rune(text); len(runes) > length {
		return strings.TrimSpace(string(runes[:length-1])) + "…"
	}
	return text
}

// path returns a cubic curve in the syntax of SVG.
func path(x1, y1, cx1, cy1, cx2, cy2, x2, y2 int) string {
	return fmt.Sprintf("M%d %d C%d %d %d %d %d %d", x1, y1, cx1, cy1, cx2, cy2, x2, y2)
}
