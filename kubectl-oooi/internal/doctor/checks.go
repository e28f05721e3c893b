package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// registered has all checks, in any order.
var registered []Check

// register adds checks. The file of a code's prefix, such as dns.go, calls it for its checks when the program starts.
func register(checks ...Check) { registered = append(registered, checks...) }

// Checks returns all checks in the order in which they run and are shown, see order.
func Checks() ([]Check, error) { return order(registered) }

// order sorts checks topologically: a check comes after those in its Needs and After. Of the checks that can come
// next, the one with the lowest code does, so the result does not depend on the order of the argument. order returns
// an error if a code is used twice or unknown, or if checks depend on each other in a cycle.
func order(checks []Check) ([]Check, error) {
	pending := map[string]*Check{}
	for i := range checks {
		c := &checks[i]
		if pending[c.Code] != nil {
			return nil, fmt.Errorf("ordering the checks: two checks have code %s", c.Code)
		}
		pending[c.Code] = c
	}
	codes := slices.Sorted(maps.Keys(pending))
	for _, code := range codes {
		for _, need := range pending[code].dependencies() {
			if pending[need] == nil {
				return nil, fmt.Errorf("ordering the checks: %s depends on %s, which does not exist", code, need)
			}
		}
	}
	var ordered []Check
	for len(codes) > 0 {
		next := slices.IndexFunc(codes, func(code string) bool { return pendingDependency(pending, code) == "" })
		if next < 0 {
			return nil, fmt.Errorf("ordering the checks: their dependencies form a cycle: %s", strings.Join(cycle(pending, codes[0]), ", "))
		}
		ordered = append(ordered, *pending[codes[next]])
		delete(pending, codes[next])
		codes = slices.Delete(codes, next, next+1)
	}
	return ordered, nil
}

// pendingDependency returns the first dependency of a check that is pending, empty if none is.
func pendingDependency(pending map[string]*Check, code string) string {
	for _, need := range pending[code].dependencies() {
		if pending[need] != nil {
			return need
		}
	}
	return ""
}

// cycle returns the codes of a cycle to which the dependencies of a check lead. Each pending check must have a pending
// dependency.
func cycle(pending map[string]*Check, code string) []string {
	var path []string
	for !slices.Contains(path, code) {
		path = append(path, code)
		code = pendingDependency(pending, code)
	}
	return path[slices.Index(path, code):]
}
