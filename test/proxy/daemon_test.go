package proxy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/densityops/oooi/internal/model"
)

// deadline is for everything that happens at once on an idle machine.
const deadline = 60 * time.Second

// daemon is an xdsd serve. It can be killed and started again.
type daemon struct {
	args  []string
	http  string // host:port of its state
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended
	log   *output       // of the process, the present or the last one
}

// newDaemon ends with the test.
func newDaemon(t *testing.T, http string, args ...string) *daemon {
	t.Helper()
	d := &daemon{args: append([]string{"serve", "--http", http}, args...), http: http}
	t.Cleanup(func() {
		if t.Failed() && d.log != nil {
			t.Logf("the end of what xdsd said:\n%s", d.log.tail())
		}
		d.kill(t)
	})
	return d
}

func (d *daemon) start(t *testing.T) {
	t.Helper()
	d.log, d.ended = &output{}, make(chan struct{})
	d.cmd = exec.Command(os.Getenv(binaryPath), d.args...)
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	d.cmd.SysProcAttr = dieWithTest()
	if err := launch(d.cmd); err != nil {
		t.Fatal(err)
	}
	go func(cmd *exec.Cmd, ended chan<- struct{}, log io.Writer) {
		defer close(ended)
		if err := cmd.Wait(); err != nil {
			fmt.Fprintln(log, "ended:", err)
		}
	}(d.cmd, d.ended, d.log)
}

// kill ends the process as a crash would, and looks for what it must never say.
func (d *daemon) kill(t *testing.T) {
	t.Helper()
	if d.cmd == nil {
		return
	}
	select {
	case <-d.ended:
		t.Errorf("xdsd ended by itself:\n%s", d.log.tail())
	default:
		if err := d.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		<-d.ended
	}
	d.cmd = nil
	for _, fault := range []string{"DATA RACE", "panic:"} {
		if at := strings.Index(d.log.String(), fault); at >= 0 {
			t.Errorf("xdsd says:\n%.4000s", d.log.String()[at:])
		}
	}
}

// state is what of /state matters here.
type state struct {
	Store struct {
		At    time.Time `json:"at"`
		Since time.Time `json:"since"`
	} `json:"store"`
	ProxyServers []*model.ProxyServer `json:"proxyServers"`
	Served       []struct {
		Name   string `json:"name"`
		Envoys []struct {
			ID      string `json:"id"`
			Current bool   `json:"current"`
			Nack    any    `json:"lastNACK"`
		} `json:"envoys"`
	} `json:"served"`
	Problems []model.Problem `json:"problems"`
}

// follows reports whether the API server is followed without a gap until now.
func (s state) follows() bool { return !s.Store.Since.IsZero() && !s.Store.Since.Before(s.Store.At) }

// state returns the state, and as what it was written. Before the daemon answers at all
// there is none.
func (d *daemon) state(t *testing.T) (s state, text string) {
	t.Helper()
	_, text, err := d.get(t, "/state")
	if err != nil {
		return s, ""
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatalf("%v in the state: %s", err, text)
	}
	return s, text
}

// get reads a page of the daemon.
func (d *daemon) get(t *testing.T, path string) (status int, body string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.http+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true // the daemon may be gone the next time
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, string(data), err
}

// current waits until an Envoy has acknowledged everything.
func (d *daemon) current(t *testing.T) {
	t.Helper()
	poll(t, "Envoy to acknowledge everything", func() bool {
		s, _ := d.state(t)
		return len(s.Served) == 1 && len(s.Served[0].Envoys) == 1 && s.Served[0].Envoys[0].Current
	})
}

// poll waits for what is to happen soon.
func poll(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > deadline {
			t.Fatalf("timed out waiting for: %s", what)
		}
	}
}

// output keeps what a process writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func (o *output) tail() string {
	const size = 8 << 10
	text := o.String()
	return text[max(0, len(text)-size):]
}

// count returns how many lines have all of these words.
func (o *output) count(words ...string) int {
	n := 0
lines:
	for line := range strings.Lines(o.String()) {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue lines
			}
		}
		n++
	}
	return n
}
