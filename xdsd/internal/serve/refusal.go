package serve

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/densityops/oooi/internal/model"
)

// listenerNames finds listeners in what Envoy says; see envoy.ListenerName.
var listenerNames = regexp.MustCompile(`\bport-(\d+)\b`)

// maxOwners bounds how many objects are named with one listener.
const maxOwners = 3

// refusal says what Envoy refused and why, in front of its own words with whose it is.
// Clusters and filter chains have their owners in their names; a listener is a port, and
// its owners are those who want something on it.
func refusal(p *model.ProxyServer, kind, said string) string {
	for _, found := range listenerNames.FindAllStringSubmatch(said, -1) {
		for _, l := range p.Listeners {
			if kind == "listener" && strconv.Itoa(int(l.Port)) == found[1] {
				return "listener " + found[0] + " of " + strings.Join(owners(l), ", ") + ": " + said
			}
		}
	}
	return kind + ": " + said
}

// owners are the objects that a listener is for.
func owners(l *model.Listener) []string {
	var list []string
	for _, r := range l.Routes {
		if owner := r.Owner.String() + " " + r.Source; !slices.Contains(list, owner) {
			list = append(list, owner)
		}
	}
	if more := len(list) - maxOwners; more > 0 {
		list = append(list[:maxOwners], strconv.Itoa(more)+" more")
	}
	return list
}
