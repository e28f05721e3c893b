package vip_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// The floating addresses, and the VLAN's gateway.
var (
	floating  = netip.MustParseAddr("192.0.2.4")
	floating6 = netip.MustParseAddr("2001:db8::4")
	gateway   = netip.MustParseAddr("192.0.2.1")
)

// port is the port of the proxy.
const port = 6443

var sites atomic.Int32

// A site is a VLAN with proxy replicas, and a management network with an API server.
type site struct {
	*client

	cp         *lab.ControlPlane
	number     int32  // unique number, which is part of the management network's addresses
	near       string // bridge of the client and of all replicas but the last
	trunk      string // cable between the near and the far side
	assigned   bool   // the network assigns the replicas' own addresses
	namespace  string
	kubeconfig string // path of a kubeconfig with the permissions of a replica
	replicas   []*replica
}

// A replica is a network namespace like a pod's, with a proxy that sends its name, and the process that
// holds the address.
type replica struct {
	*lab.Namespace
	*lab.Daemon

	name, mac string
	own       []string // its addresses on the VLAN with prefix lengths
	port      string   // interface of its cable at the bridge
	uplink    string   // interface of its cable in the management network
	dir       string   // directory for its files
	notReady  atomic.Bool
}

// newSite starts replicas on a VLAN, the last one on the far side of the trunk, and a client. If the network does not
// assign addresses, like OVN-Kubernetes for a pod that requests none, replicas add their addresses.
func newSite(t *testing.T, replicas int, assigned bool) *site {
	t.Helper()
	network.Need(t)
	s := &site{cp: management.Get(t), number: sites.Add(1), assigned: assigned}
	s.namespace = s.cp.Namespace(t)
	s.allow(t)
	id := strings.ToLower(s.namespace[len(s.namespace)-6:])
	s.near, s.trunk = "near-"+id, "trunk-"+id
	far := "far-" + id
	lab.Must(t, lab.Cable(lab.End{Device: s.trunk, Bridge: s.near}, lab.End{Bridge: far}))
	for n := range replicas {
		bridge := s.near
		if n == replicas-1 {
			bridge = far
		}
		s.replicas = append(s.replicas, s.newReplica(t, n, bridge))
	}
	s.client = newClient(t, s.near, far)
	for _, i := range s.replicas {
		i.Start(t)
	}
	s.start(t)
	return s
}

// allow creates a user with the permissions of a replica, and the Lease that setup creates.
func (s *site) allow(t *testing.T) {
	t.Helper()
	user := "hold-" + s.namespace
	s.cp.MustApply(t, lab.Role(s.namespace, "hold", user, "{apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [proxy], verbs: [get, watch, update]}"),
		"{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: proxy, namespace: "+s.namespace+"}}")
	var err error
	s.kubeconfig, err = s.cp.UserKubeconfig(user)
	lab.Must(t, err)
}

func (s *site) newReplica(t *testing.T, n int, bridge string) *replica {
	t.Helper()
	i := &replica{
		Namespace: lab.NewNamespace(t), dir: lab.TempDir(t), name: fmt.Sprintf("proxy-%c", 'a'+n), mac: fmt.Sprintf("02:00:00:00:00:%02x", 0x11+n),
	}
	id := bridge[strings.LastIndex(bridge, "-")+1:]
	i.port, i.uplink = fmt.Sprintf("p%d-%s", n, id), fmt.Sprintf("u%d-%s", n, id)
	i.own = []string{fmt.Sprintf("192.0.2.%d/24", 11+n), fmt.Sprintf("2001:db8::%d/64", 11+n)}
	uplink := fmt.Sprintf("10.%d.%d", s.number, n)
	var assigned []string
	if s.assigned {
		assigned = i.own
	}
	for _, cable := range [][2]lab.End{
		{{Device: i.port, Bridge: bridge}, {In: i.Namespace, Device: "net1", MAC: i.mac, Addresses: assigned}},
		{{Device: i.uplink, Addresses: []string{uplink + ".1/24"}}, {In: i.Namespace, Device: "eth0", Addresses: []string{uplink + ".2/24"}}},
	} {
		lab.Must(t, lab.Cable(cable[0], cable[1]))
	}
	i.Run(t, "ip", "route", "add", "198.18.0.0/24", "via", uplink+".1")
	err := i.Do(func() error {
		lab.TCPBackend(t, fmt.Sprintf("[::]:%d", port), i.name)
		lab.ServeHTTP(t, "127.0.0.1:9901", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { // Envoy's /ready
			if i.notReady.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		return nil
	})
	lab.Must(t, err)
	i.Daemon = lab.NewDaemon(t, i.name, func() *exec.Cmd { return s.hold(t, i) })
	return i
}

// hold returns the command of a replica: xdsd hold, as root with two capabilities.
func (s *site) hold(t *testing.T, i *replica) *exec.Cmd {
	t.Helper()
	args := []string{
		network.Binary(t, "xdsd"), "hold", "--kubeconfig", s.kubeconfig, "--lease", s.namespace + "/proxy", "--identity", i.name,
		"--address", floating.String() + "," + floating6.String(), "--ready", "http://127.0.0.1:9901/ready", "--state", filepath.Join(i.dir, "state.json"),
	}
	if !s.assigned {
		args = append(args, "--own", strings.Join(i.own, ","), "--gateway", gateway.String())
	}
	return i.Command(context.Background(), lab.HolderCommand(args...)...)
}

// broadcastAnswer is a host that answers probes of xdsd hold.
type broadcastAnswer struct {
	Address     netip.Addr
	MAC         string
	First, Last time.Time
}

// state returns the state of a replica of xdsd hold.
func (i *replica) state(t *testing.T) (state struct {
	Holding, Leased bool
	LeaseHolder     string
	Peers           map[string]string
	Conflicts       map[string]int
	Answers         []broadcastAnswer
}) {
	t.Helper()
	text := i.page(t, "state")
	if err := json.Unmarshal([]byte(text), &state); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return state
}

// page returns the response of a replica of xdsd hold, which may just be starting.
func (i *replica) page(t *testing.T, name string) (text string) {
	t.Helper()
	lab.Poll(t, i.name+" to answer", func() bool {
		got, err := i.Command(t.Context(), "curl", "-sS", "--max-time", "5", "http://127.0.0.1:9906/"+name).Output()
		text = string(got)
		return err == nil
	})
	return text
}

// holder waits until only one replica has answered the last ARP requests, and returns it.
func (s *site) holder(t *testing.T) (found *replica) {
	t.Helper()
	lab.Poll(t, "one replica to answer for the address", func() bool {
		macs := s.Holders(steadily)
		n := slices.IndexFunc(s.replicas, func(i *replica) bool { return slices.Equal(macs, []string{i.mac}) })
		if n >= 0 {
			found = s.replicas[n]
		}
		return n >= 0
	})
	return found
}

// others returns all replicas but one.
func (s *site) others(but *replica) []*replica {
	return slices.DeleteFunc(slices.Clone(s.replicas), func(i *replica) bool { return i == but })
}

// awaitPeers waits until each replica of xdsd hold knows all others.
func (s *site) awaitPeers(t *testing.T) {
	t.Helper()
	lab.Poll(t, "all replicas to know each other", func() bool {
		return !slices.ContainsFunc(s.replicas, func(i *replica) bool { return len(i.state(t).Peers) != len(s.replicas)-1 })
	})
}

// link sets an interface in the test's network up or down.
func link(t *testing.T, device, state string) {
	t.Helper()
	(*lab.Namespace)(nil).Run(t, "ip", "link", "set", device, state)
}
