package serve

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/densityops/oooi/internal/model"
)

// listenerNames matches names of listeners in Envoy's messages; see message.ListenerName and message.UDPListenerName.
var listenerNames = regexp.MustCompile(`\b(port|udp)-(\d+)\b`)

// maxOwners is the maximum number of owners that are named for one listener.
const maxOwners = 3

// nackMessage returns the message of a NACK, prefixed with the resource type and, for a listener of p, its owners. The
// names of clusters and filter chains contain their owners; a listener's name contains only its port.
func nackMessage(p *model.ProxyServer, kind, message string) string {
	for _, match := range listenerNames.FindAllStringSubmatch(message, -1) {
		for _, l := range p.Listeners {
			if kind == "listener" && strconv.Itoa(int(l.Port)) == match[2] && l.UDP == (match[1] == "udp") {
				return "listener " + match[0] + " of " + strings.Join(owners(l), ", ") + ": " + message
			}
		}
	}
	return kind + ": " + message
}

// owners returns the objects that have a route on a listener, each with the field that the route comes from. At most
// maxOwners are named; the others are counted.
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
