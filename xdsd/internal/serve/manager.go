package serve

import (
	"crypto/sha256"
	"encoding/hex"
)

// ReplicaManager is the field manager of one replica's entry in ProxyServer.status.replicas.
// Whoever applies nothing in that name takes the entry away.
func ReplicaManager(pod string) string {
	const longest = 128 // in the API
	name := "xdsd-serve-" + pod
	if len(name) <= longest {
		return name
	}
	sum := sha256.Sum256([]byte(pod))
	return name[:longest-9] + "-" + hex.EncodeToString(sum[:4])
}
