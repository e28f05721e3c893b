package page

import (
	"fmt"
	"io"
	"strings"
)

// Colours of states, which contrast with both black and white text around them. The line style shows the state as well.
var dotStyles = map[State]string{Good: `color="#1a7f37"`, Warn: `color="#8a5a00"`, Bad: `color="#cf222e", style=dashed`, Unknown: `color="#57606a"`}

// Dot writes graphs in the language of Graphviz, as one digraph with a cluster for each.
func Dot(w io.Writer, graphs []*Graph) error {
	quote := func(lines ...string) string {
		text := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(strings.Join(lines, "\n"))
		return `"` + strings.ReplaceAll(text, "\n", `\n`) + `"`
	}
	var b strings.Builder
	b.WriteString("digraph oooi {\n  rankdir=LR\n  node [shape=box]\n")
	for i, g := range graphs {
		id := func(node string) string { return quote(fmt.Sprintf("%d-%s", i, node)) }
		fmt.Fprintf(&b, "  subgraph cluster_%d {\n    label=%s\n", i, quote(g.Title))
		for _, n := range g.Nodes {
			fmt.Fprintf(&b, "    %s [label=%s, %s]\n", id(n.ID), quote(n.text()...), dotStyles[n.State])
		}
		b.WriteString("  }\n")
		for _, e := range g.Edges {
			fmt.Fprintf(&b, "  %s -> %s [label=%s, %s]\n", id(e.From), id(e.To), quote(e.Label), dotStyles[e.State])
		}
	}
	b.WriteString("}\n")
	return write(w, b.String())
}

// Mermaid writes graphs as one flowchart in the language of Mermaid, with a subgraph for each.
func Mermaid(w io.Writer, graphs []*Graph) error {
	quote := func(lines ...string) string {
		return `"` + strings.NewReplacer(`&`, "&amp;", `"`, "&quot;", "<", "&lt;", ">", "&gt;", "\n", "<br/>").Replace(strings.Join(lines, "\n")) + `"`
	}
	var b strings.Builder
	b.WriteString("flowchart LR\n  classDef good stroke:#1a7f37\n  classDef warn stroke:#8a5a00\n" +
		"  classDef bad stroke:#cf222e,stroke-dasharray:4\n  classDef unknown stroke:#57606a\n")
	for i, g := range graphs {
		id := func(node string) string { return fmt.Sprintf("s%d-%s", i, node) }
		fmt.Fprintf(&b, "  subgraph s%d[%s]\n", i, quote(g.Title))
		for _, n := range g.Nodes {
			fmt.Fprintf(&b, "    %s[%s]:::%s\n", id(n.ID), quote(n.text()...), n.State)
		}
		b.WriteString("  end\n")
		for _, e := range g.Edges {
			arrow := map[State]string{Good: "-->", Warn: "-->", Bad: "-.->", Unknown: "---"}[e.State]
			if e.Label != "" {
				arrow += "|" + quote(e.Label) + "|"
			}
			fmt.Fprintf(&b, "  %s %s %s\n", id(e.From), arrow, id(e.To))
		}
	}
	return write(w, b.String())
}

func write(w io.Writer, text string) error {
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("printing the drawing: %w", err)
	}
	return nil
}
