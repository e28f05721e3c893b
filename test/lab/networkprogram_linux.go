package lab

// InsideNetwork returns the entry of a program's environment that says that it is in a Network:
// for one that was started with NetworkNamespace and calls SetUpNetwork, and no test binary,
// which has Network.Main for that. StartNode asks for it.
func InsideNetwork() string { return insideNetwork + "=yes" }
