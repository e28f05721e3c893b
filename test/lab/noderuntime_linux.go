package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// containerdConfig uses the standard paths, which are the node's own.
const containerdConfig = `
version = 2
disabled_plugins = ["io.containerd.internal.v1.opt"] # it makes /opt/containerd
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + pauseImage + `"
  netns_mounts_under_state_dir = true
  disable_apparmor = true
  disable_hugetlb_controller = true
  restrict_oom_score_adj = true # we may lack the right to lower it
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "/var/lib/containerd/certs.d"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/var/lib/cni/bin"
    conf_dir = "/var/lib/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
`

// multusConfig makes Multus create eth0 and then the interfaces that a Pod requests. The Pod network uses
// ptp, so that every packet is routed: a bridge would forward packets between Pods of a node without the
// rules for Services. It is a delegate and not a clusterNetwork, because Multus 4.2.2 loses half of a
// clusterNetwork before it deletes a Pod's interface. Namespaces are isolated as on OpenShift.
const multusConfig = `{
  "cniVersion": "0.3.1", "name": "multus", "type": "multus", "namespaceIsolation": true,
  "globalNamespaces": "default,openshift-multus,openshift-sriov-network-operator,openshift-cnv",
  "kubeconfig": "/var/lib/cni/multus.kubeconfig",
  "confDir": "/var/lib/cni/net.d", "binDir": "/var/lib/cni/bin", "cniDir": "/var/lib/cni/multus",
  "delegates": [{
    "cniVersion": "0.3.1", "name": "pods", "type": "ptp", "ipMasq": false,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}
  }]
}
`

func (n *Node) startContainerd(ctx context.Context) error {
	if err := n.setUpCNI(ctx); err != nil {
		return err
	}
	if err := n.writeFile("containerd/config.toml", []byte(containerdConfig)); err != nil {
		return err
	}
	for registry, ca := range n.config.RegistryCAs {
		if err := n.writeFile("containerd/certs.d/"+registry+"/ca.crt", ca); err != nil {
			return err
		}
	}
	if err := n.runContainerd(ctx); err != nil {
		return err
	}
	return n.ImportImage(ctx, pauseImage)
}

func (n *Node) runContainerd(ctx context.Context) error {
	if err := n.launch(&n.containerd, "containerd", "containerd", "--config=/var/lib/containerd/config.toml"); err != nil {
		return err
	}
	return n.await(ctx, "containerd to be ready", n.checkRuntime)
}

// checkRuntime sends the first request of a kubelet, which exits if the request fails. containerd rejects it
// while it recovers earlier containers, although it already serves other requests.
func (n *Node) checkRuntime(ctx context.Context) (err error) {
	conn, err := grpc.NewClient("unix:///proc/"+n.box.pid()+"/root/run/containerd/containerd.sock", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return conn.Invoke(ctx, "/runtime.v1.RuntimeService/Version", &emptypb.Empty{}, &emptypb.Empty{})
}

// setUpCNI installs the CNI plugins and the configuration of the Pod network on the node.
func (n *Node) setUpCNI(ctx context.Context) error {
	multus, err := BuildMultus(ctx, nil)
	if err != nil {
		return err
	}
	pair, err := n.cp.ca.client("multus", "system:masters")
	if err != nil {
		return err
	}
	config := fmt.Appendf(nil, multusConfig, podCIDR(n.number))
	if err := n.writeFile("cni/net.d/00-multus.conf", config); err != nil {
		return err
	}
	if err := n.publishMultusConfig(ctx, string(config)); err != nil {
		return err
	}
	if err := n.cp.writeKubeconfigFor(n.path("cni/multus.kubeconfig"), n.apiServer(), "multus", pair); err != nil {
		return err
	}
	if err := os.Mkdir(n.path("cni/bin"), 0o750); err != nil {
		return fmt.Errorf("creating the directory of CNI plugins: %w", err)
	}
	plugins := map[string]string{"multus": multus}
	for _, name := range cniPlugins {
		plugins[name] = filepath.Join(cniPluginDir(), name)
	}
	for name, path := range plugins {
		if err := os.Symlink(path, n.path("cni/bin", name)); err != nil {
			return fmt.Errorf("installing a CNI plugin: %w", err)
		}
	}
	return nil
}

// publishMultusConfig creates the ConfigMap from which Multus' DaemonSet takes its configuration.
func (n *Node) publishMultusConfig(ctx context.Context, config string) error {
	return n.cp.Apply(ctx, &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "multus-cni-config"},
		Data:       map[string]string{"cni-conf.json": config},
	})
}

// ImportImage imports a built image to the node. Pods must use it with imagePullPolicy IfNotPresent or Never.
func (n *Node) ImportImage(ctx context.Context, name string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("importing image %s to node %s: %w", name, n.config.Name, err)
		}
	}()
	archive, err := ImageArchive(name)
	if err != nil {
		return err
	}
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	cmd := n.box.command(ctx, "ctr", "--namespace=k8s.io", "images", "import", "--digests", "-")
	cmd.Stdin = io.Reader(file)
	return runCommand(cmd)
}

// TagImage adds another name to an image on the node.
func (n *Node) TagImage(ctx context.Context, name, other string) error {
	return n.box.run(ctx, "ctr", "--namespace=k8s.io", "images", "tag", "--force", name, other)
}

// path returns the host's path of a file in the node's /var/lib.
func (n *Node) path(elem ...string) string {
	return n.box.path(append([]string{"lib"}, elem...)...)
}

// writeFile writes a file below the node's /var/lib, and creates the directories above it.
func (n *Node) writeFile(name string, data []byte) error {
	path := n.path(name)
	err := os.MkdirAll(filepath.Dir(path), 0o750)
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing %s of node %s: %w", name, n.config.Name, err)
	}
	return nil
}
