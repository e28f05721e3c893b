package main

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/lab"
)

// fenced matches the Corefiles in a Markdown page, which can be indented.
var fenced = regexp.MustCompile("(?ms)^ *[~`]{3} ?corefile\n(.*?)\n *[~`]{3}$")

// TestCorefilesInTheDocumentation parses every Corefile in the documentation.
func TestCorefilesInTheDocumentation(t *testing.T) {
	found := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != ".." {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, match := range fenced.FindAllSubmatch(text, -1) {
			found++
			instance := &caddy.Instance{Storage: map[any]any{}}
			if err := caddy.ValidateAndExecuteDirectives(input(string(match[1])), instance, true); err != nil {
				t.Errorf("%s: %v in\n%s", path, err, match[1])
			}
		}
		return nil
	})
	lab.Must(t, err)
	if found == 0 {
		t.Error("found no Corefile")
	}
}

// TestBuildInTheDocumentation builds the program in docs/how-to/plugins.md, with the versions of this module, and runs it with the
// objects and the Corefile of the page.
func TestBuildInTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../docs/how-to/plugins.md")
	lab.Must(t, err)
	block := func(language string) string {
		match := regexp.MustCompile("(?ms)^   ```" + language + "\n(.*?)^   ```$").FindSubmatch(text)
		if match == nil {
			t.Fatalf("found no block of %s", language)
		}
		return regexp.MustCompile("(?m)^   ").ReplaceAllString(string(match[1]), "")
	}
	ports, err := lab.ReservePorts(t.Context(), "127.0.0.1", 1)
	lab.Must(t, err)
	t.Cleanup(ports.Release)
	port := strconv.Itoa(ports.Numbers[0])
	server := net.JoinHostPort("127.0.0.1", port)

	dir := t.TempDir()
	lab.Must(t, os.Mkdir(filepath.Join(dir, "cluster"), 0o700))
	lab.WriteFile(t, block("yaml"), dir, "cluster", "demo.yaml")
	lab.WriteFile(t, strings.Replace(block("corefile"), ":1053", ":"+port, 1), dir, "Corefile")
	lab.WriteFile(t, block("go"), dir, "documented-dns.go")
	program, err := lab.BuildStatic(t.Context(), filepath.Join(dir, "documented-dns.go"))
	lab.Must(t, err)
	if out, err := exec.CommandContext(t.Context(), program, "-plugins").CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "\nhcpapps\nhcpviews\n") {
		t.Errorf("the build has the plugins %s %v", out, err)
	}

	cmd := exec.CommandContext(t.Context(), program, "-conf", "Corefile")
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	lab.Must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // the context has ended it
	client := dns.Client{Timeout: time.Second}
	query := new(dns.Msg).SetQuestion("api.demo.example.com.", dns.TypeA)
	for deadline := time.Now().Add(30 * time.Second); ; {
		reply, _, err := client.ExchangeContext(t.Context(), query, server)
		if err == nil && reply.Response { // not the query itself, if the client has got the server's port
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	for source, want := range map[string]string{"127.50.0.10": "127.50.0.4", pod: "10.96.0.4"} {
		expect(t, server, source, "api.demo.example.com.", want)
		if !strings.Contains(string(text), fmt.Sprintf("`%s`", want)) {
			t.Errorf("the page does not say that the answer is %s", want)
		}
	}
}
