package kubevirt

import (
	"cmp"
	"slices"

	"github.com/densityops/oooi/plugins/internal/vm"
)

// A claim is an interface that has a MAC address or a reserved address.
type claim struct {
	client   vm.Client
	instance *instance
}

// compareClaims orders claims by precedence: running instances, ended instances, then test clients, each from the
// oldest.
func compareClaims(a, b claim) int {
	final := func(c claim) int {
		switch {
		case c.instance.test:
			return 2
		case c.instance.Final:
			return 1
		}
		return 0
	}
	return cmp.Or(
		final(a)-final(b),
		a.instance.Created.Compare(b.instance.Created.Time),
		cmp.Compare(a.instance.Namespace, b.instance.Namespace),
		cmp.Compare(a.instance.Name, b.instance.Name),
		cmp.Compare(a.client.Name, b.client.Name),
	)
}

// current reports whether the instance of a claim has not ended, is not being deleted and is not a test client.
func (c claim) current() bool { return !c.instance.Final && !c.instance.Deleted && !c.instance.test }

// An index maps the bytes of a MAC address or a reserved address to the claims on it, in order of precedence.
// If there are several claims, the address is a duplicate.
type index map[string][]claim

func (x index) add(key string, c claim) {
	list := append(slices.Clone(x[key]), c) // readers may use the old slice
	slices.SortFunc(list, compareClaims)
	x[key] = list
}

func (x index) remove(key string, i *instance) {
	list := slices.DeleteFunc(slices.Clone(x[key]), func(c claim) bool { return c.instance == i })
	if len(list) == 0 {
		delete(x, key)
		return
	}
	x[key] = list
}
