package egress

import (
	"net"
	"net/netip"
	"strings"
	"testing"
)

// TestAskTime asks servers that answer in different ways.
func TestAskTime(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(reply []byte) []byte // of a reply with stratum 2
		want   string                    // part of the error; "" for none
	}{
		"synchronized":      {func(b []byte) []byte { return b }, ""},
		"extension fields":  {func(b []byte) []byte { return append(b, make([]byte, 16)...) }, ""},
		"not synchronized":  {func(b []byte) []byte { b[0] |= ntpNotInSync << 6; return b }, "leap indicator 3"},
		"stratum 16":        {func(b []byte) []byte { b[1] = 16; return b }, "stratum 16"},
		"kiss of death":     {func(b []byte) []byte { b[1] = 0; copy(b[12:], "RATE"); return b }, `"RATE"`},
		"another request":   {func(b []byte) []byte { b[ntpOrigin]++; return b }, "does not answer: i/o timeout"},
		"a request":         {func(b []byte) []byte { b[0] = ntpRequest; return b }, "does not answer: i/o timeout"},
		"a truncated reply": {func(b []byte) []byte { return b[:ntpSize-1] }, "does not answer: i/o timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.ListenPacket("udp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			go func() {
				request := make([]byte, ntpSize)
				for {
					_, from, err := conn.ReadFrom(request)
					if err != nil {
						return
					}
					reply := make([]byte, ntpSize)
					reply[0], reply[1] = 4<<3|ntpModeServer, 2
					copy(reply[ntpOrigin:], request[ntpTransmit:])
					_, _ = conn.WriteTo(tc.change(reply), from)
				}
			}()
			err = askTime(t.Context(), netip.MustParseAddrPort(conn.LocalAddr().String()))
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
