package vm

import "testing"

func TestParseInterface(t *testing.T) {
	i := Interface{Namespace: "clusters-demo", VM: "worker-1", Name: "vlan"}
	if got, err := ParseInterface(i.String()); err != nil || got != i {
		t.Errorf("%q is parsed as %v, %v", i, got, err)
	}
	for _, text := range []string{"", "a", "a/b", "a/b/", "/b/c", "a//c", "a/b/c/d"} {
		if got, err := ParseInterface(text); err == nil {
			t.Errorf("%q is parsed as %v", text, got)
		}
	}
}

func TestProvidedWithoutAPlugin(t *testing.T) {
	if d := Provided(); d != nil {
		t.Errorf("got %v, want nil", d)
	}
}
