package page

import (
	"crypto/sha256"
	_ "embed" // the style sheet
	"encoding/base64"
	"fmt"
	"html"
	"strings"

	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

//go:embed page.css
var css string

// policy is the Content-Security-Policy of pages: they load nothing, run no script, and have no other style than css.
var policy = func() string {
	sum := sha256.Sum256([]byte(css))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}()

// A part is an element, an attribute or a text. What a site contains can only be the value of an attribute or a text, which are
// escaped. html/template would also do that, but its use of reflection keeps the linker from removing unused methods.
type part interface{ write(b *strings.Builder) }

type (
	// A name is the name of an element or an attribute, and a constant.
	name      string
	attribute struct {
		name  name
		value string
	}
	text       string
	styleSheet struct{}
	// parts are written without their attributes.
	parts   []part
	element struct {
		name  name
		parts parts
	}
)

// el returns an element with attributes and content. Nil parts are omitted.
func el(n name, p ...part) part { return element{n, p} }

func attr(n name, value string) part        { return attribute{n, value} }
func class(value string) part               { return attribute{"class", value} }
func textf(format string, args ...any) part { return text(fmt.Sprintf(format, args...)) }

// escaped returns a text in the syntax of HTML, and of XML: without other control characters than line breaks and tabs.
func escaped(text string) string {
	return html.EscapeString(strings.ToValidUTF8(output.EscapedText(text), "\ufffd"))
}

func (a attribute) write(b *strings.Builder) { fmt.Fprintf(b, ` %s="%s"`, a.name, escaped(a.value)) }
func (t text) write(b *strings.Builder)      { b.WriteString(escaped(string(t))) }
func (styleSheet) write(b *strings.Builder)  { b.WriteString(css) }

func (p parts) write(b *strings.Builder) {
	for _, one := range p {
		if _, ok := one.(attribute); !ok && one != nil {
			one.write(b)
		}
	}
}

func (e element) write(b *strings.Builder) {
	b.WriteString("<" + string(e.name))
	for _, one := range e.parts {
		if a, ok := one.(attribute); ok {
			a.write(b)
		}
	}
	b.WriteString(">")
	if e.name != "meta" { // which has no end tag
		e.parts.write(b)
		fmt.Fprintf(b, "</%s>", e.name)
	}
	switch e.name {
	case "meta", "style", "section", "div", "p", "li", "details", "g", "path": // where a line break has no effect
		b.WriteString("\n")
	}
}

// fold returns content that is shown when its summary is opened, or from the start.
func fold(open bool, summary part, content ...part) part {
	list := parts{el("summary", summary)}
	if open {
		list = append(list, attr("open", ""))
	}
	return element{"details", append(list, content...)}
}
