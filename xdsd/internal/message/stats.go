package message

import "fmt"

// RouteStats returns the prefix of the stats of the connections to a port whose server name matches one route, or of the
// sessions of a UDP port. name is the
// route's host, or what stands for other connections. StatsTags makes labels of its parts.
func RouteStats(port int32, tenant, name string) string {
	return fmt.Sprintf("%d;%s;%s", port, tenant, name)
}

// RouteTags are regular expressions for the parts of RouteStats in the name of a stat, by the name of their tag. Envoy
// removes the first group from the name; the second one is the tag's value.
var RouteTags = []struct{ Name, Regex string }{
	{"port", `^(?:tcp|udp)\.(([0-9]+);)`},
	{"tenant", `^(?:tcp|udp)\.[0-9]+;(([^;]*);)`},
	{"server_name", `^(?:tcp|udp)\.[0-9]+;[^;]*;((.+)\.)[a-z_]+$`},
}
