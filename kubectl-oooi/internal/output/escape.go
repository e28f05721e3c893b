package output

import (
	"fmt"
	"io"
	"strings"
	"unicode"
)

// Escaped returns a text without control characters: a newline is written as \n and ESC as \x1b. Names of certificates, host
// names of VMs and replies of servers are chosen by tenants, and could otherwise forge lines or control a terminal.
func Escaped(text string) string { return escape(text, "") }

// EscapedText returns a text of several lines without other control characters.
func EscapedText(text string) string { return escape(text, "\n\t") }

func escape(text, keep string) string {
	if strings.IndexFunc(text, unicode.IsControl) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if unicode.IsControl(r) && !strings.ContainsRune(keep, r) {
			quoted := fmt.Sprintf("%q", r) // '\n'
			b.WriteString(quoted[1 : len(quoted)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Terminal returns a writer that writes to w with EscapedText, like kubectl's printers. Characters that two writes share are
// not recognized.
func Terminal(w io.Writer) io.Writer { return terminal{w} }

type terminal struct{ io.Writer }

func (t terminal) Write(p []byte) (int, error) {
	if _, err := io.WriteString(t.Writer, EscapedText(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
