package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"
)

// runCommand runs a command. An error has the end of its output.
func runCommand(cmd *exec.Cmd) error {
	cmd.WaitDelay = 10 * time.Second
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, lastLines(string(bytes.TrimSpace(output)), 20))
	}
	return nil
}

// runTool runs a program of this host, which may be one that only root has in its PATH.
func runTool(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = slices.Concat(os.Environ(), []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin"})
	return runCommand(cmd)
}
