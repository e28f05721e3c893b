package page

import (
	"fmt"
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

// A box is the place of a node in a drawing. edges counts those that end at its left, index 0, or right side, so that they do not
// overlap.
type box struct {
	x, y, height int
	edges        [2]int
}

// draw returns a drawing in SVG: the nodes in columns, each a link to its element on the page, and the edges between them. id is the
// prefix of the elements' IDs.
func (g *Graph) draw(id string) part {
	at := map[string]*box{}
	bottom := [columns]int{}
	var boxes, lines, labels parts
	for i := range g.Nodes {
		n := &g.Nodes[i]
		content := n.text()
		b := &box{x: margin + n.column*(boxWidth+gapAcross), y: margin + bottom[n.column], height: 2*padding + len(content)*lineHeight}
		link := parts{attr("href", "#"+id+n.ID), el("rect", class(string(n.State)), number("x", b.x), number("y", b.y), number("width", boxWidth),
			number("height", b.height), number("rx", 5))}
		for i, line := range content {
			link = append(link, el("text", class([]string{"title", ""}[min(i, 1)]), number("x", b.x+padding), number("y", b.y+padding+(i+1)*lineHeight-4),
				text(shortened(line, maxCharacters))))
		}
		boxes, at[n.ID] = append(boxes, element{"a", link}), b
		bottom[n.column] += b.height + gapDown
	}
	for _, e := range g.Edges {
		line, x, y := curve(at[e.From], at[e.To])
		lines = append(lines, el("path", class(string(e.State)), attr("d", line)))
		if e.Label != "" {
			labels = append(labels, el("text", class("label "+string(e.State)), number("x", x), number("y", y), text(shortened(e.Label, maxLabel))))
		}
	}
	width, height := 2*margin+columns*boxWidth+(columns-1)*gapAcross, 2*margin-gapDown+max(bottom[0], bottom[1], bottom[2])
	return el("div", class("drawing"), el("svg", attr("viewBox", fmt.Sprintf("0 0 %d %d", width, height)), number("width", width), number("height", height),
		attr("role", "group"), attr("aria-label", "Drawing; each box links to its objects"), el("g", lines...), el("g", boxes...), el("g", labels...)))
}

// curve returns the path of an edge between two boxes, and where its label ends.
func curve(from, to *box) (path string, labelX, labelY int) {
	port := func(b *box, side int) int {
		b.edges[side]++
		return b.y + min(b.height-4, 12+(b.edges[side]-1)*16)
	}
	if from.x == to.x { // above each other
		x, y1, y2 := from.x+boxWidth/2, from.y+from.height, to.y
		if y2 < y1 {
			y1, y2 = from.y, to.y+to.height
		}
		return fmt.Sprintf("M%d %d V%d", x, y1, y2), x - 6, (y1+y2)/2 + 4
	}
	x1, y1, x2, y2 := from.x+boxWidth, port(from, 1), to.x, port(to, 0)
	middle := (x1 + x2) / 2
	return fmt.Sprintf("M%d %d C%d %d %d %d %d %d", x1, y1, middle, y1, middle, y2, x2, y2), x2 - 6, y2 - 4
}

func number(n name, value int) part { return attribute{n, fmt.Sprint(value)} }

func shortened(text string, length int) string {
	if runes := []rune(text); len(runes) > length {
		return strings.TrimSpace(string(runes[:length-1])) + "…"
	}
	return text
}
