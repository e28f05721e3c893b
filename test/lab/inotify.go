package lab

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// minWatches is the number of inotify instances that a user should be allowed: the processes of all labs and nodes on the machine
// share the limit, tests of several packages run at a time, and a developer may have another lab. The kernel's default is 128.
const minWatches = 1024

const watchLimit = "/proc/sys/fs/inotify/max_user_instances"

// watchLimitProblem raises the number of inotify instances that each user may have to minWatches if this process may do that, and
// otherwise says what to set. It returns "" if the limit is high enough, or if nothing limits the instances.
func watchLimitProblem() string {
	limit := readWatchLimit()
	if limit < minWatches && os.WriteFile(watchLimit, []byte(strconv.Itoa(minWatches)), 0o600) == nil { // the mode of an existing file stays
		limit = readWatchLimit()
	}
	if limit >= minWatches {
		return ""
	}
	return fmt.Sprintf("%d instances of inotify: the limit is %d; set it with 'sysctl fs.inotify.max_user_instances=%[1]d'", minWatches, limit)
}

// warnOfWatchLimit logs watchLimitProblem once.
var warnOfWatchLimit = sync.OnceFunc(func() {
	if problem := watchLimitProblem(); problem != "" {
		Logf(nil).printf("several labs at a time need %s", problem)
	}
})

func readWatchLimit() int {
	text, err := os.ReadFile(watchLimit)
	if err != nil {
		return minWatches
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return minWatches
	}
	return n
}
