// Command pause does nothing until it is told to end: it keeps the namespaces of a Pod of the
// test lab's node.
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
