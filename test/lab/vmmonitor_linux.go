package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// A monitor is a connection to QEMU's monitor (QMP) or to the guest agent of a VM. Both protocols send a
// command and its response as one line of JSON each.
type monitor struct {
	net.Conn

	lines *bufio.Scanner
}

// openMonitor connects to a Unix socket of QEMU, with the deadline of ctx.
func openMonitor(ctx context.Context, socket string) (*monitor, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	m := &monitor{Conn: conn}
	err = m.waitUntil(deadline(ctx))
	return m, err
}

// deadline returns the context's deadline, or the zero time if it has none.
func deadline(ctx context.Context) time.Time {
	end, _ := ctx.Deadline()
	return end
}

// waitUntil sets the deadline of later reads and writes, and discards lines that were read partly.
func (m *monitor) waitUntil(end time.Time) error {
	m.lines = bufio.NewScanner(m.Conn)
	m.lines.Buffer(nil, 64<<20)
	return m.SetDeadline(end)
}

// openQEMU connects to QEMU's monitor and negotiates capabilities, which must be the first command.
func openQEMU(ctx context.Context, socket string) (*monitor, error) {
	m, err := openMonitor(ctx, socket)
	if err != nil {
		return nil, fmt.Errorf("connecting to QEMU: %w", err)
	}
	if err := m.call("qmp_capabilities", nil, nil); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// openAgent connects to the guest agent, and waits until it responds. It sends guest-sync every 5 seconds,
// because requests are lost that are sent before the agent has opened the connection.
func openAgent(ctx context.Context, socket string) (*monitor, error) {
	m, err := openMonitor(ctx, socket)
	if err != nil {
		return nil, fmt.Errorf("connecting to the guest agent: %w", err)
	}
	for {
		if err = m.waitUntil(time.Now().Add(5 * time.Second)); err == nil {
			err = m.sync()
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil {
			break
		}
	}
	if err == nil {
		err = m.waitUntil(deadline(ctx))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("waiting for the guest agent: %w", err), m.Close())
	}
	return m, nil
}

// sync sends guest-sync and skips responses to earlier requests.
func (m *monitor) sync() error {
	id := time.Now().UnixNano()
	if err := m.send("guest-sync", map[string]any{"id": id}); err != nil {
		return err
	}
	for {
		var answer int64
		err := m.receive(&answer)
		var other *json.UnmarshalTypeError
		var truncated *json.SyntaxError
		switch {
		case errors.As(err, &other), errors.As(err, &truncated), errors.Is(err, errMonitor):
		case err != nil || answer == id:
			return err
		}
	}
}

// errMonitor is an error response.
var errMonitor = errors.New("refused")

// call executes a command, and decodes its response into result unless that is nil.
func (m *monitor) call(command string, arguments, result any) error {
	err := m.send(command, arguments)
	if err == nil {
		err = m.receive(result)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	return nil
}

func (m *monitor) send(command string, arguments any) error {
	line := map[string]any{"execute": command}
	if arguments != nil {
		line["arguments"] = arguments
	}
	return json.NewEncoder(m).Encode(line)
}

// receive reads the response to a command, and skips QEMU's greeting and events.
func (m *monitor) receive(result any) error {
	for m.lines.Scan() {
		var answer struct {
			Return json.RawMessage `json:"return"`
			Error  *struct {
				Desc string `json:"desc"`
			} `json:"error"`
		}
		if err := json.Unmarshal(m.lines.Bytes(), &answer); err != nil {
			return err
		}
		switch {
		case answer.Error != nil:
			return fmt.Errorf("%w: %s", errMonitor, answer.Error.Desc)
		case answer.Return == nil:
		case result == nil:
			return nil
		default:
			return json.Unmarshal(answer.Return, result)
		}
	}
	if err := m.lines.Err(); err != nil {
		return err
	}
	return net.ErrClosed
}
