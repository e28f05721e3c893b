package lab

import (
	"runtime"
	"testing"
)

func TestReservedPortsAreExclusive(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("ports are reserved on Linux only")
	}
	p, err := ReservePorts(t.Context(), "127.0.0.1", 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range p.Numbers {
		if other, ok := reserve(t.Context(), port); ok {
			_ = other.Close()
			t.Errorf("port %d is reserved twice", port)
		}
	}
	p.Release()
	p.Release()
	for _, port := range p.Numbers {
		reservation, ok := reserve(t.Context(), port)
		if !ok {
			t.Errorf("port %d stays reserved", port)
			continue
		}
		_ = reservation.Close()
	}
}
