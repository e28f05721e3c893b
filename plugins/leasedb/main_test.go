package leasedb

import (
	"os"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

var plane = lab.Shared{Config: lab.Config{Name: "leasedb"}}

func TestMain(m *testing.M) {
	look = nil
	if file := os.Getenv(childFile); file != "" {
		child(file)
		return
	}
	lab.Main(m, &plane)
}
