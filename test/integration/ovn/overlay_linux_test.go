package ovn_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// An overlay simulates the network of OVN-Kubernetes without Kubernetes. Each node is a network namespace with
// Open vSwitch and a separate OVN zone; a fabric that carries VLANs connects the nodes. Open vSwitch uses
// its userspace datapath, which needs no kernel module, unless OOOI_LAB_OVS_DATAPATH is "system". The ports
// of access carry VLAN 100 untagged.
type overlay struct {
	root, dir string
	fabric    *ovsNode
	nodes     map[string]*ovnNode
	accesses  int // number of ports that access has created
}

// ovsNode is a network namespace with Open vSwitch.
type ovsNode struct {
	*lab.Namespace

	ovn  *overlay
	name string
	dir  string
	dbs  []string
}

// An ovnNode is a node of an overlay.
type ovnNode struct {
	*ovsNode

	switches []string
	ports    int
}

const ovnVLAN = 100

// kernelDatapath is Open vSwitch's name for the datapath of the kernel module openvswitch.
const kernelDatapath = "system"

// ovsDatapath returns the datapath type of all bridges.
func ovsDatapath() string { return cmp.Or(os.Getenv("OOOI_LAB_OVS_DATAPATH"), "netdev") }

// newOverlay starts nodes that end with the test. It needs root.
func newOverlay(tb testing.TB, names ...string) *overlay {
	tb.Helper()
	root, err := lab.FindOVN(tb.Context(), tb.Logf)
	lab.Must(tb, err)
	o := &overlay{root: root, dir: lab.TempDir(tb), nodes: map[string]*ovnNode{}}
	o.fabric = o.start(tb, "fabric")
	for _, name := range names {
		n := &ovnNode{ovsNode: o.start(tb, name, "ovn-nb", "ovn-sb")}
		n.startOVN(tb)
		o.nodes[name] = n
		o.plug(tb, o.fabric, "to-"+name, lab.End{In: n.Namespace, Device: "uplink"})
		o.fabric.vsctl(tb, "add-port", "br-ex", "to-"+name)
		n.vsctl(tb, "add-port", "br-ex", "uplink")
	}
	return o
}

// node returns the node with a name.
func (o *overlay) node(name string) *ovnNode { return o.nodes[name] }

// access connects a namespace, such as a router's, to the VLAN by an untagged interface net1.
func (o *overlay) access(tb testing.TB, n *lab.Namespace) {
	tb.Helper()
	o.accesses++
	port := "access" + strconv.Itoa(o.accesses)
	o.plug(tb, o.fabric, port, lab.End{In: n, Device: "net1"})
	o.fabric.vsctl(tb, "add-port", "br-ex", port, "tag="+strconv.Itoa(ovnVLAN))
}

// plug connects an interface of n to another one. Checksum offload is disabled, because Open vSwitch reads
// frames from packet sockets, where offloaded checksums are missing.
func (o *overlay) plug(tb testing.TB, n *ovsNode, device string, to lab.End) {
	tb.Helper()
	lab.Must(tb, lab.Cable(lab.End{In: n.Namespace, Device: device}, to))
	n.run(tb, n.Namespace, "ethtool", "-K", device, "tx", "off")
	n.run(tb, to.In, "ethtool", "-K", to.Device, "tx", "off")
}

// start starts Open vSwitch, and an ovsdb-server with its database and OVN's databases in schemas.
func (o *overlay) start(tb testing.TB, name string, schemas ...string) *ovsNode {
	tb.Helper()
	n := &ovsNode{Namespace: lab.NewNamespace(tb), ovn: o, name: name, dir: filepath.Join(o.dir, name)}
	lab.Must(tb, os.Mkdir(n.dir, 0o700))
	create := func(db, schema string) {
		file := filepath.Join(n.dir, db+".db")
		n.run(tb, nil, "ovsdb-tool", "create", file, filepath.Join(o.root, "usr", "share", schema))
		n.dbs = append(n.dbs, file)
	}
	create("conf", "openvswitch/vswitch.ovsschema")
	for _, s := range schemas {
		create(s, "ovn/"+s+".ovsschema")
	}
	n.daemon(tb, "ovsdb", append([]string{"ovsdb-server", "--remote=p" + n.db(), "--unixctl=" + filepath.Join(n.dir, "ovsdb.ctl")}, n.dbs...)...)
	lab.Poll(tb, "the databases of node "+name, func() bool {
		_, err := os.Stat(filepath.Join(n.dir, "db.sock"))
		return err == nil
	})
	n.vsctl(tb, "--no-wait", "init")
	vswitchd := []string{"ovs-vswitchd", n.db(), "--unixctl=" + filepath.Join(n.dir, "vswitchd.ctl")}
	if ovsDatapath() != kernelDatapath {
		vswitchd = append(vswitchd, "--disable-system")
	}
	n.daemon(tb, "vswitchd", vswitchd...)
	n.vsctl(tb, "add-br", "br-ex", "--", "set", "bridge", "br-ex", "datapath_type="+ovsDatapath(), "fail-mode=standalone")
	return n
}

// startOVN makes the node an OVN zone, as in OVN-Kubernetes' interconnect mode.
func (n *ovnNode) startOVN(tb testing.TB) {
	tb.Helper()
	n.vsctl(tb, "add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type="+ovsDatapath(), "fail-mode=secure", "--",
		"set", "open", ".", "external_ids:system-id="+n.name, "external_ids:ovn-remote="+n.db(), "external_ids:ovn-encap-type=geneve",
		"external_ids:ovn-encap-ip=127.0.0.1", "external_ids:ovn-bridge-mappings=physnet:br-ex", "external_ids:ovn-monitor-all=true",
		"external_ids:ovn-bridge-datapath-type="+ovsDatapath())
	if ovsDatapath() != kernelDatapath {
		// With this feature, the userspace datapath of Open vSwitch 3.1.0, the version of Debian 12, ends at a failed assertion
		// in conn_update_state when the reply of a tracked connection arrives.
		n.vsctl(tb, "--", "--id=@dp", "create", "datapath", "datapath_version=lab", "--", "set", "open_vswitch", ".", "datapaths:"+ovsDatapath()+"=@dp")
		id := strings.TrimSpace(n.vsctl(tb, "get", "open_vswitch", ".", "datapaths:"+ovsDatapath()))
		lab.Poll(tb, "the capabilities of Open vSwitch", func() bool {
			return strings.Contains(n.vsctl(tb, "get", "datapath", id, "capabilities"), "ct_zero_snat")
		})
		n.vsctl(tb, "set", "datapath", id, "capabilities:ct_zero_snat=false")
	}
	n.nbctl(tb, "init")
	n.run(tb, nil, "ovn-sbctl", "--timeout=20", "--db="+n.db(), "init")
	n.nbctl(tb, "set", "nb_global", ".", "name="+n.name)
	n.daemon(tb, "northd", "ovn-northd", "--ovnnb-db="+n.db(), "--ovnsb-db="+n.db(), "--unixctl="+filepath.Join(n.dir, "northd.ctl"))
	n.daemon(tb, "controller", "ovn-controller", n.db())
}

// attach adds the interface net1 to a namespace, and connects it to a logical port as OVN-Kubernetes does for
// a pod (base_network_controller_pods.go: addLogicalPortToNetwork, cni.ConfigureOVS).
func (n *ovnNode) attach(tb testing.TB, to *lab.Namespace, p lab.OVNPort) {
	tb.Helper()
	if p.Physnet != "physnet" || p.VLAN != ovnVLAN {
		tb.Fatalf("the fabric only supports physnet with VLAN %d: %+v", ovnVLAN, p)
	}
	n.addSwitch(tb, p)
	n.ports++
	name := fmt.Sprintf("%s-%d", n.name, n.ports)
	words, pod := []string{p.MAC}, lab.End{In: to, Device: "net1", MAC: p.MAC}
	for _, ip := range p.IPs {
		words, pod.Addresses = append(words, ip.Addr().String()), append(pod.Addresses, ip.String())
	}
	addresses := strings.Join(words, " ")
	n.nbctl(tb, "--", "lsp-add", p.Switch, name, "--", "lsp-set-addresses", name, addresses, "--", "lsp-set-port-security", name, addresses,
		"--", "set", "logical_switch_port", name, "options:requested-chassis="+n.name, "options:iface-id-ver="+name)
	n.ovn.plug(tb, n.ovsNode, name, pod)
	n.vsctl(tb, "add-port", "br-int", name, "--", "set", "interface", name, "external_ids:iface-id="+name, "external_ids:iface-id-ver="+name, "external_ids:attached_mac="+p.MAC)
	lab.Poll(tb, "the flows of port "+name, func() bool {
		return strings.Contains(n.vsctl(tb, "--if-exists", "get", "interface", name, "external_ids:ovn-installed"), "true")
	})
	n.allowAdvertisements(tb)
}

// allowAdvertisements adds flows that are missing in OVN 23.03.1, the version of Debian 12. With port
// security it accepts neighbour advertisements with hop limit 225 instead of 255, and drops all others, so
// that neither ports nor the router resolve any port's IPv6 address. Fixed in OVN 23.03.2 and 23.06.2 (ovn
// bb7157467, "Use correct nw_ttl=255 to match against legit NAs").
func (n *ovnNode) allowAdvertisements(tb testing.TB) {
	tb.Helper()
	var flows []string
	for line := range strings.Lines(n.run(tb, nil, "ovs-ofctl", "--no-stats", "dump-flows", "br-int")) {
		if _, flow, ok := strings.Cut(line, "table="); ok && strings.Contains(flow, "nw_ttl=225") {
			flows = append(flows, "table="+strings.ReplaceAll(flow, "nw_ttl=225", "nw_ttl=255"))
		}
	}
	file := filepath.Join(n.dir, "advertisements")
	lab.Must(tb, os.WriteFile(file, []byte(strings.Join(flows, "")), 0o600))
	n.run(tb, nil, "ovs-ofctl", "add-flows", "br-int", file)
}

// addSwitch creates the logical switch of a localnet, and its port to the physical network
// (localnet_user_defined_network_controller.go: initializeLogicalSwitch).
func (n *ovnNode) addSwitch(tb testing.TB, p lab.OVNPort) {
	tb.Helper()
	if slices.Contains(n.switches, p.Switch) {
		return
	}
	n.switches = append(n.switches, p.Switch)
	port := p.Switch + "_ovn_localnet_port"
	n.nbctl(tb, "--", "ls-add", p.Switch, "--", "lsp-add", p.Switch, port, "--", "lsp-set-type", port, "localnet", "--", "lsp-set-addresses", port, "unknown",
		"--", "lsp-set-options", port, "network_name="+p.Physnet, "--", "set", "logical_switch_port", port, "tag_request="+strconv.Itoa(p.VLAN))
}

func (n *ovsNode) db() string { return "unix:" + filepath.Join(n.dir, "db.sock") }

func (n *ovsNode) vsctl(tb testing.TB, args ...string) string {
	tb.Helper()
	return n.run(tb, nil, append([]string{"ovs-vsctl", "--timeout=20", "--db=" + n.db()}, args...)...)
}

func (n *ovnNode) nbctl(tb testing.TB, args ...string) {
	tb.Helper()
	n.run(tb, nil, append([]string{"ovn-nbctl", "--timeout=20", "--db=" + n.db()}, args...)...)
}

// environment returns the environment of OVN's programs, in which they find each other, their libraries and
// the files of this node.
func (n *ovsNode) environment() []string {
	var path []string
	for _, dir := range []string{"bin", "usr/lib/openvswitch-switch", "usr/lib/openvswitch-common", "usr/sbin", "usr/bin", "sbin"} {
		path = append(path, filepath.Join(n.ovn.root, dir))
	}
	var libraries []string
	for _, machine := range []string{"x86_64", "aarch64"} {
		libraries = append(libraries, filepath.Join(n.ovn.root, "usr", "lib", machine+"-linux-gnu"))
	}
	env := append(os.Environ(), "PATH="+strings.Join(path, ":")+":"+os.Getenv("PATH"), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
	for _, name := range []string{"OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR", "OVN_RUNDIR", "OVN_LOGDIR", "OVN_DBDIR"} {
		env = append(env, name+"="+n.dir)
	}
	return env
}

// command returns a command that runs a program of OVN in a namespace. It uses env to search the PATH of
// environment.
func (n *ovsNode) command(ctx context.Context, in *lab.Namespace, args ...string) *exec.Cmd {
	cmd := in.Command(ctx, append([]string{"env"}, args...)...)
	cmd.Env = n.environment()
	return cmd
}

// run runs a program of OVN in a namespace and returns its output. The test fails if the program does.
func (n *ovsNode) run(tb testing.TB, in *lab.Namespace, args ...string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), lab.WaitTimeout)
	defer cancel()
	output, err := n.command(ctx, in, args...).CombinedOutput()
	if err != nil {
		tb.Fatalf("%q: %v: %s", args, err, output)
	}
	return string(output)
}

// daemon starts a daemon of OVN that is killed when the test ends.
func (n *ovsNode) daemon(tb testing.TB, name string, args ...string) {
	tb.Helper()
	args = append(args, "--pidfile="+filepath.Join(n.dir, name+".pid"), "--log-file="+filepath.Join(n.dir, name+".log"), "-vconsole:off")
	d := lab.NewDaemon(tb, n.name+"'s "+name, func() *exec.Cmd { return n.command(context.Background(), n.Namespace, args...) })
	d.Start(tb)
}
