package ads

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// refusedEvery is how often, at most, a refused peer is logged: it may come back at once.
const refusedEvery = time.Second

// handshakes are TLS credentials that log whom they refuse. In TLS 1.3 the peer, for which
// the handshake was over by then, just sees its connection end.
type handshakes struct {
	credentials.TransportCredentials
	log *slog.Logger

	mu   sync.Mutex
	last time.Time
}

// ServerHandshake is credentials.TransportCredentials'.
func (h *handshakes) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ServerHandshake(raw)
	if err != nil && !errors.Is(err, io.EOF) { // which is but a probe of the port
		h.note(raw.RemoteAddr(), err)
	}
	return conn, info, err
}

func (h *handshakes) note(from net.Addr, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); now.Sub(h.last) >= refusedEvery {
		h.last = now
		h.log.Warn("refused a connection", "from", from.String(), "err", err)
	}
}
