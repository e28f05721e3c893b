// Command mutant prints what doctor finds in bundles with its checks disabled one at a time.
package main

import (
	"fmt"
	"os"

	"github.com/densityops/oooi/kubectl-oooi/internal/mutate"
)

func main() {
	data, err := mutate.Bundles(os.Args[1:])
	if err == nil {
		_, err = os.Stdout.Write(data)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutant:", err)
		os.Exit(1)
	}
}
