package leasedb

import (
	"os"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

var plane = lab.Shared{Config: lab.Config{Name: "leasedb"}}

func TestMain(m *testing.M) {
	probe = nil
	if file := os.Getenv(childFile); file != "" {
		runServer(file)
		return
	}
	lab.Main(m, &plane)
}
