//go:build vm

package vm_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// The node's VLAN, and the network between it and the control plane.
const (
	nodeVLAN   = "vlan60"
	uplink     = "uplink"
	uplinkHost = "100.65.0.1"
	uplinkNode = "100.65.0.2"
)

// nodeDemo names the objects of the VLAN on the node, and nodeVMs the objects of its VMs.
var (
	nodeDemo = lab.Site{BaseDomain: "lab.example.com", VLAN: "198.18.60", Network: nodeVLAN}
	nodeVMs  = lab.Site{Network: "clusters-demo/" + nodeVLAN}
)

// TestNodeWithCgroupsV2 runs the lab's node in a VM with systemd and cgroups v2. setup deploys a VLAN's
// services to the node, and a machine on the VLAN uses them. The control plane and the machine are outside of
// the VM.
func TestNodeWithCgroupsV2(t *testing.T) {
	image := image(t)
	cp := lab.New(t, lab.Config{
		Name: "management", Address: "198.18.0.2", ControllerManager: true, Scheduler: true,
		// Emulated nodes update their status late.
		ControllerManagerFlags: []string{"--node-monitor-grace-period=15m"},
	})
	lab.Must(t, cp.InstallCRDs(t.Context(), lab.HyperShift, lab.OpenShiftRoute, lab.KubeVirt, lab.KubeVirtMachines, lab.NetworkAttachmentDefinition))
	ca := lab.NewCA(t)
	const backend = "198.18.0.13:8443"
	serveIgnition(t, ca, backend)
	cp.MustApply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: clusters, labels: {pod-security.kubernetes.io/enforce: restricted}}}",
		lab.Namespaces("clusters-demo"), lab.BridgeNetwork("clusters", nodeVLAN, nodeVLAN), lab.BridgeNetwork("clusters-demo", nodeVLAN, nodeVLAN),
		nodeVMs.VirtualMachineInstance("demo-worker-6k8d2", "02:00:c6:12:3c:01"), hostedCluster.YAML(),
		hostedCluster.Backend("ignition-server-proxy", 443, netip.MustParseAddrPort(backend), ""))
	vm := startNode(t, image, cp)

	infra := lab.WriteFile(t, nodeDemo.Infra(`spec:
  networkConfig: {dnsServers: [198.18.0.53]}
  infraComponents: {dhcp: {rangeStart: 198.18.60.100, rangeEnd: 198.18.60.199}}
  appsIngress: {enabled: true, source: Static, addresses: [198.18.60.200]}`), t.TempDir(), "infra.yaml")
	// --wait=false, because an emulated node is too slow for the deadlines of a rollout.
	setup := lab.Execute(t, lab.VMTimeout, network.Binary(t, "kubectl-oooi"), "--kubeconfig", cp.Kubeconfig(), "setup", "-f", infra,
		"--image", oooiImage, "--envoy-image", envoyImage, "--wait=false")
	if setup.Code != 0 {
		t.Fatalf("setup: exit code %d\n%s%s", setup.Code, setup.Stdout, setup.Stderr)
	}
	daemons := []string{"coredns", "coredhcp", "envoy"}
	for _, daemon := range daemons {
		vm.Await(t, "pgrep --exact --oldest "+daemon, func(string) bool { return true })
	}

	machine := lab.NewMachine(t, nodeVLAN, "02:00:c6:12:3c:01")
	lease := machine.DHCP(t)
	if !strings.HasPrefix(lease["ip_address"], "198.18.60.1") || lease["host_name"] != "demo-worker-6k8d2" || lease["domain_name_servers"] != "198.18.60.3" {
		t.Errorf("lease of the machine: %v", lease)
	}
	lab.Await(t, "the DNS server to resolve the ignition server", func() string {
		got := machine.Run(t, "sh", "-c", "dig +short +tries=1 +timeout=5 @198.18.60.3 "+ignitionName+" || true")
		if got != "198.18.60.4\n" {
			return got
		}
		return ""
	})
	roots := filepath.Join(machine.Dir, "ca.crt")
	lab.Must(t, os.WriteFile(roots, ca.PEM(), 0o600))
	lab.Await(t, "the proxy to lead to the ignition server", func() string {
		got := machine.Run(t, "sh", "-c", "curl --silent --show-error --max-time 20 --cacert "+roots+
			" --resolve "+ignitionName+":443:198.18.60.4 https://"+ignitionName+"/ignition 2>&1 || true")
		if got != ignition {
			return got
		}
		return ""
	})

	for _, daemon := range daemons {
		got := vm.Run(t, "cut -d: -f3 /proc/$(pgrep --exact --oldest "+daemon+")/cgroup")
		if !strings.HasPrefix(got, "/oooi-node1-") || !strings.Contains(got, "/kubepods/") {
			t.Errorf("%s is in cgroup %q", daemon, got)
		}
		if memory := vm.Run(t, "cat /sys/fs/cgroup"+strings.TrimSpace(got)+"/memory.current"); memory == "0\n" {
			t.Errorf("the cgroup of %s uses no memory", daemon)
		}
	}
	vm.Run(t, "systemctl stop node")
	if remaining := vm.Run(t, "ls -d /sys/fs/cgroup/oooi-* /tmp/oooi-* 2>/dev/null || true"); remaining != "" {
		t.Errorf("not removed: %s", remaining)
	}
}

// startNode starts a VM with a node, and waits until the node is ready.
func startNode(t *testing.T, image lab.VMImage, cp *lab.ControlPlane) *lab.VM {
	t.Helper()
	err := errors.Join(
		lab.Cable(lab.End{Bridge: uplink}, lab.End{Device: "to-" + uplink, Addresses: []string{uplinkHost + "/24"}}),
		exec.Command("ip", "route", "add", "100.64.0.0/24", "via", uplinkNode).Run(),
		exec.Command("ip", "route", "add", "10.244.0.0/16", "via", uplinkNode).Run())
	lab.Must(t, err)
	vm := lab.StartVM(t, lab.VMConfig{
		Image: image, Memory: 4096, Folder: nodeFolder(t, cp),
		NICs: []lab.NIC{{Bridge: uplink, MAC: "02:00:64:41:00:02"}, {Bridge: nodeVLAN, MAC: "02:00:64:41:00:03"}},
	})
	if got := vm.Run(t, "stat --file-system --format %T /sys/fs/cgroup; cat /proc/1/comm"); got != "cgroup2fs\nsystemd\n" {
		t.Fatalf("cgroup file system and init process are %q", got)
	}
	vm.Run(t, fmt.Sprintf(`set -e
touch /etc/resolv.conf # containerd copies it
ip link set eth0 up
ip address add %s/24 dev eth0
ip route add default via %s
ip link add %[3]s type bridge
ip link set eth1 master %[3]s up
ip link set %[3]s up
systemd-run --quiet --unit=node --property=TimeoutStopSec=300 --property=KillMode=mixed --working-directory=/folder/source --setenv=OOOI_LAB_DIR=/folder/lab --setenv=OOOI_LAB_EMULATED=yes \
	/folder/node -control-plane /folder/management -name node1 -bridge %[3]s %[4]s %[5]s`, uplinkNode, uplinkHost, nodeVLAN, oooiImage, envoyImage))
	vm.Await(t, "journalctl --unit node --output cat; systemctl is-active node", func(out string) bool {
		if strings.HasSuffix(out, "failed\n") || strings.HasSuffix(out, "inactive\n") {
			t.Fatalf("the node's process has ended:\n%s", out)
		}
		return strings.Contains(out, "ready\n")
	})
	return vm
}

// copyInto copies files and directories into subdirectories of folder. copied has the sources by subfolder.
func copyInto(t *testing.T, folder string, copied map[string][]string) {
	t.Helper()
	for dir, paths := range copied {
		to := filepath.Join(folder, dir)
		err := os.MkdirAll(to, 0o755)
		if err == nil {
			err = exec.CommandContext(t.Context(), "cp", append([]string{"--archive", "--reflink=auto", "--target-directory=" + to}, paths...)...).Run()
		}
		lab.Must(t, err)
	}
}

// nodeFolder returns a directory with everything that the node needs: binaries, images, the sources by which
// these are considered up to date, and the credentials of the control plane.
func nodeFolder(t *testing.T, cp *lab.ControlPlane) string {
	t.Helper()
	root, err := lab.Root()
	lab.Must(t, err)
	archive, err := lab.ImageArchive(oooiImage)
	lab.Must(t, err)
	folder, built := lab.TempDir(t), filepath.Dir(archive)
	copied := map[string][]string{
		"source":               {filepath.Join(root, "go.mod")},
		"source/test/programs": {filepath.Join(root, "test/programs/go.mod"), filepath.Join(root, "test/programs/go.sum"), filepath.Join(root, "test/programs/controlplane")},
		"management":           {cp.Kubeconfig()},
	}
	for _, name := range []string{"controlplane", "controlplane.sum", "multus", "multus.sum"} {
		copied["lab"] = append(copied["lab"], filepath.Join(built, name))
	}
	for _, name := range []string{oooiImage, envoyImage, "localhost/pause:1"} {
		archive, err := lab.ImageArchive(name)
		lab.Must(t, err)
		copied["lab"] = append(copied["lab"], archive)
	}
	for _, name := range []string{"ca.crt", "ca.key", "admin.crt", "admin.key"} {
		copied["management"] = append(copied["management"], filepath.Join(cp.Dir(), name))
	}
	node, err := lab.BuildStatic(t.Context(), "./test/cmd/node")
	lab.Must(t, err)
	copied["."] = []string{node}
	copyInto(t, folder, copied)
	lab.Must(t, os.Rename(filepath.Join(folder, filepath.Base(node)), filepath.Join(folder, "node")))
	return folder
}
