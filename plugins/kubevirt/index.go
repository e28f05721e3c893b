package kubevirt

import (
	"cmp"
	"slices"

	"github.com/densityops/oooi/plugins/internal/vm"
)

// claim is an interface that has a MAC address.
type claim struct {
	client   vm.Client
	instance *instance
}

// order puts the claim first that counts: of the machine that runs, and of those of the
// oldest.
func order(a, b claim) int {
	final := func(c claim) int {
		if c.instance.Final {
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

// index finds claims by the bytes of their MAC address, or of an address that is reserved for them. A list has more than
// one only where an address was given twice.
type index map[string][]claim

func (x index) add(key string, c claim) {
	list := append(slices.Clone(x[key]), c) // readers may hold the old one
	slices.SortFunc(list, order)
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
