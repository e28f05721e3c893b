package lab

// InsideNetwork returns an environment entry that marks a process as running in a Network, which StartNode
// requires. It is for programs that are started with NetworkNamespace and call SetUpNetwork; test binaries
// use Network.Main.
func InsideNetwork() string { return insideNetwork + "=yes" }
