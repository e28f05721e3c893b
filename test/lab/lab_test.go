package lab

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m) }

// helperProcess is an environment variable that makes this test binary a helper process, which is killed.
const helperProcess = "LAB_TEST_HELPER"

// asHelper runs this test again in a helper process. There, run starts something and returns a line, and asHelper does not
// return. In the test itself, asHelper kills the helper process after that line, and returns it.
func asHelper(t *testing.T, run func() string) string {
	t.Helper()
	const prefix = "started "
	if os.Getenv(helperProcess) != "" {
		fmt.Println(prefix + run())
		time.Sleep(time.Minute)
		t.FailNow()
	}
	helper := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	helper.Env = append(os.Environ(), helperProcess+"=yes")
	helper.Stderr = os.Stderr
	stdout, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	line, found := "", false
	for lines := bufio.NewScanner(stdout); !found && lines.Scan(); {
		line, found = strings.CutPrefix(lines.Text(), prefix)
	}
	if err := helper.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = helper.Wait() // killed
	if !found {
		t.Fatal("the helper process failed")
	}
	return line
}
