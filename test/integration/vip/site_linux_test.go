package vip_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/test/lab"
)

// The addresses that float, and where the proxy is at them.
var (
	floating  = netip.MustParseAddr("192.0.2.4")
	floating6 = netip.MustParseAddr("2001:db8::4")
	gateway   = netip.MustParseAddr("192.0.2.1")
)

const (
	port = 6443
)

var sites atomic.Int32

// A site is a VLAN with instances of a proxy, and a management network with an API server.
type site struct {
	*client

	kind      kind
	cp        *lab.ControlPlane
	number    int32 // of the site, which the addresses of its management network have
	namespace string
	config    string // a kubeconfig with the rights that an instance has
	instances []*instance
}

// An instance is a pod: a proxy, which says its name, and what holds the address beside it.
type instance struct {
	*lab.Namespace
	*lab.Daemon

	name, mac string
	own       []string // its addresses on the VLAN, with the lengths of their prefixes
	port      string   // its cable's end at the bridge
	uplink    string   // its cable's end in the management network
	dir       string   // of its files
	notReady  atomic.Bool
}

// A kind is what holds the address: ours, or its peer.
type kind struct {
	name string
	// bare instances get no address on the VLAN from the network.
	bare    bool
	command func(tb testing.TB, s *site, i *instance) *exec.Cmd
	end     func(tb testing.TB, i *instance)
}

// newSite has so many instances on a VLAN, the last one on the far side of a trunk.
func newSite(t *testing.T, k kind, instances int) *site {
	t.Helper()
	network.Need(t)
	s := &site{kind: k, cp: management.Get(t), number: sites.Add(1)}
	s.namespace = s.cp.Namespace(t)
	s.allow(t)
	id := strings.ToLower(s.namespace[len(s.namespace)-6:])
	near, far, trunk := "near-"+id, "far-"+id, "trunk-"+id
	if err := lab.Cable(lab.End{Device: trunk, Bridge: near}, lab.End{Bridge: far}); err != nil {
		t.Fatal(err)
	}
	for n := range instances {
		bridge := near
		if n == instances-1 {
			bridge = far
		}
		s.instances = append(s.instances, s.newInstance(t, n, bridge))
	}
	s.client = newClient(t, trunk, near, far)
	for _, i := range s.instances {
		i.Start(t)
	}
	s.start(t)
	return s
}

// allow makes a user with the rights of an instance.
func (s *site) allow(t *testing.T) {
	t.Helper()
	user := "hold-" + s.namespace
	err := s.cp.Apply(t.Context(),
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "hold"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{"proxy"}, Verbs: []string{"get", "watch", "update"}},
		}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "hold"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "hold"}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
		},
		lease(s.namespace),
	)
	if err == nil {
		s.config, err = s.cp.UserKubeconfig(user)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (s *site) newInstance(t *testing.T, n int, bridge string) *instance {
	t.Helper()
	i := &instance{
		Namespace: lab.NewNamespace(t), dir: lab.TempDir(t), name: fmt.Sprintf("proxy-%c", 'a'+n), mac: fmt.Sprintf("02:00:00:00:00:%02x", 0x11+n),
	}
	id := bridge[strings.LastIndex(bridge, "-")+1:]
	i.port, i.uplink = fmt.Sprintf("p%d-%s", n, id), fmt.Sprintf("u%d-%s", n, id)
	i.own = []string{fmt.Sprintf("192.0.2.%d/24", 11+n), fmt.Sprintf("2001:db8::%d/64", 11+n)}
	uplink := fmt.Sprintf("10.%d.%d", s.number, n)
	given := i.own
	if s.kind.bare {
		given = nil
	}
	for _, cable := range [][2]lab.End{
		{{Device: i.port, Bridge: bridge}, {In: i.Namespace, Device: "net1", MAC: i.mac, Addresses: given}},
		{{Device: i.uplink, Addresses: []string{uplink + ".1/24"}}, {In: i.Namespace, Device: "eth0", Addresses: []string{uplink + ".2/24"}}},
	} {
		if err := lab.Cable(cable[0], cable[1]); err != nil {
			t.Fatal(err)
		}
	}
	i.Run(t, "ip", "route", "add", "198.18.0.0/24", "via", uplink+".1")
	err := i.Do(func() error {
		lab.TCPBackend(t, fmt.Sprintf("[::]:%d", port), i.name)
		return lab.ServeReady(t, "127.0.0.1:9901", func() bool { return !i.notReady.Load() })
	})
	if err != nil {
		t.Fatal(err)
	}
	i.Daemon = lab.NewDaemon(t, i.name, func() *exec.Cmd { return s.kind.command(t, s, i) })
	return i
}

// ours is xdsd hold, as root with two capabilities.
var ours = kind{name: "xdsd hold", command: func(tb testing.TB, s *site, i *instance) *exec.Cmd {
	tb.Helper()
	return hold(tb, s, i)
}, end: terminate}

// oursOnOVN is the same where the network gives instances no addresses, as OVN-Kubernetes does.
var oursOnOVN = kind{name: "xdsd hold --own", bare: true, command: func(tb testing.TB, s *site, i *instance) *exec.Cmd {
	tb.Helper()
	return hold(tb, s, i, "--own", strings.Join(i.own, ","), "--gateway", gateway.String())
}, end: terminate}

func hold(tb testing.TB, s *site, i *instance, args ...string) *exec.Cmd {
	tb.Helper()
	return i.Command(context.Background(), lab.HolderCommand(append([]string{
		network.Binary(tb, "xdsd"), "hold", "--kubeconfig", s.config, "--lease", s.namespace + "/proxy", "--identity", i.name,
		"--address", floating.String() + "," + floating6.String(), "--ready", "http://127.0.0.1:9901/ready", "--state", filepath.Join(i.dir, "state.json"),
	}, args...)...)...)
}

func terminate(tb testing.TB, i *instance) { tb.Helper(); i.Terminate(tb) }

// state asks an instance of ours what it thinks.
func (i *instance) state(t *testing.T) (state struct {
	Holding, Leased bool
	LeaseHolder     string
	Peers           map[string]string
	Conflicts       map[string]int
}) {
	t.Helper()
	text := i.page(t, "state")
	if err := json.Unmarshal([]byte(text), &state); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return state
}

// page reads one of an instance of ours, which may have been started this moment.
func (i *instance) page(t *testing.T, name string) (text string) {
	t.Helper()
	lab.Poll(t, i.name+" to answer", func() bool {
		got, err := i.Command(t.Context(), "curl", "-sS", "--max-time", "5", "http://127.0.0.1:9906/"+name).Output()
		text = string(got)
		return err == nil
	})
	return text
}

// holder is whose the address is by what the network says, when one instance has had it for a
// moment.
func (s *site) holder(t *testing.T) *instance {
	t.Helper()
	var found *instance
	lab.Poll(t, "one instance to answer for the address", func() bool {
		macs := s.answering(20)
		if len(macs) != 1 {
			return false
		}
		n := slices.IndexFunc(s.instances, func(i *instance) bool { return i.mac == macs[0] })
		if n < 0 {
			return false
		}
		found = s.instances[n]
		return true
	})
	return found
}

// others are all instances but one.
func (s *site) others(but *instance) []*instance {
	return slices.DeleteFunc(slices.Clone(s.instances), func(i *instance) bool { return i == but })
}

// known waits until each instance of ours knows all others.
func (s *site) known(t *testing.T) {
	t.Helper()
	lab.Poll(t, "all to know each other", func() bool {
		return !slices.ContainsFunc(s.instances, func(i *instance) bool { return len(i.state(t).Peers) != len(s.instances)-1 })
	})
}

// link sets a cable's end in the test's network up or down.
func link(t *testing.T, device, state string) {
	t.Helper()
	(*lab.Namespace)(nil).Run(t, "ip", "link", "set", device, state)
}
