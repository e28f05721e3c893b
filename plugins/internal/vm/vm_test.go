package vm

import "testing"

func TestProvidedWithoutAPlugin(t *testing.T) {
	if d := Provided(); d != nil {
		t.Errorf("got %v, want nil", d)
	}
}
