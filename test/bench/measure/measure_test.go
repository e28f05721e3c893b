package measure

import (
	"slices"
	"testing"
)

func TestEstimate(t *testing.T) {
	var values []float64
	for i := range 12 {
		values = append(values, float64((i*5)%12)) // 0 to 11, mixed
	}
	for _, tc := range []struct {
		values            []float64
		median, low, high float64
		confidence        float64
	}{
		{values[:1], 0, 0, 0, 0},
		{[]float64{3, 1}, 2, 1, 3, 0.5},
		{[]float64{3, 1, 2}, 2, 1, 3, 0.75},
		{values, 5.5, 2, 9, 0.9614}, // the third lowest and the third highest value
	} {
		e := EstimateOf(tc.values)
		if e.Median != tc.median || e.Low != tc.low || e.High != tc.high || e.Confidence < tc.confidence || e.Confidence > tc.confidence+0.001 {
			t.Errorf("of %v: %+v, want %+v", tc.values, e, tc)
		}
	}
}

func TestQuantile(t *testing.T) {
	values := []int{50, 10, 30, 20, 40}
	for q, want := range map[float64]int{0: 10, 0.2: 10, 0.5: 30, 0.8: 40, 0.99: 50, 1: 50} {
		if got := Quantile(values, q); got != want {
			t.Errorf("%v: %d, want %d", q, got, want)
		}
	}
}

func TestParseCPUs(t *testing.T) {
	got, err := parseCPUs("0-2,5")
	if err != nil || !slices.Equal(got, []int{0, 1, 2, 5}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := parseCPUs("all"); err == nil {
		t.Error("no error for an invalid list")
	}
}
