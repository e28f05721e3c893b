// Command pause waits for SIGINT or SIGTERM. It is the sandbox container of pods on the lab's node, which holds their
// namespaces.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	<-end
}
