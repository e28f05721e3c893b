package serve

import (
	"crypto/sha256"
	"encoding/hex"
)

// ReplicaManager returns the field manager of one replica's entry in ProxyServer.status.replicas. Applying an empty
// status with this field manager removes the entry.
func ReplicaManager(pod string) string {
	const maxLength = 128 // of a field manager, enforced by the API server
	name := "xdsd-serve-" + pod
	if len(name) <= maxLength {
		return name
	}
	sum := sha256.Sum256([]byte(pod))
	return name[:maxLength-9] + "-" + hex.EncodeToString(sum[:4])
}
