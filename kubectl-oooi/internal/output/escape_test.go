package output

import (
	"bytes"
	"testing"
)

// TestControlCharactersAreEscaped writes texts that tenants may have chosen.
func TestControlCharactersAreEscaped(t *testing.T) {
	const text = "a\tcert\x1b[2J\r\nwith \u009b and \x7f, Ü and \xff"
	if got, want := Escaped(text), `a\tcert\x1b[2J\r\nwith \u009b and \x7f, Ü and `+"\ufffd"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var b bytes.Buffer
	n, err := Terminal(&b).Write([]byte(text))
	if want := "a\tcert\\x1b[2J\\r\nwith \\u009b and \\x7f, Ü and \ufffd"; b.String() != want || n != len(text) || err != nil {
		t.Errorf("wrote %q, %d, %v; want %q", b.String(), n, err, want)
	}
}
