package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// A PodRunner runs the containers of Pods like a kubelet, as regards commands, environment, volumes,
// capabilities and ServiceAccount tokens. It reads these from the Pods' specs.
type PodRunner struct {
	ControlPlane *ControlPlane
	Client       kubernetes.Interface
	// Network is the Pod's network namespace. If it is nil, all Pods share the network of the test, where
	// each has a separate address. A Pod with its own network also gets its sysctls, and its containers
	// run with only their own capabilities, but as root, because the files belong to the test's user.
	Network *Namespace
	// Programs are the files of the images: from paths in a container to local paths.
	Programs map[string]string
}

// A Pod is a Pod that a PodRunner runs.
type Pod struct {
	*corev1.Pod

	// IP is the Pod's address in the pod network.
	IP string
	// Containers are the containers' processes by name.
	Containers map[string]*Daemon
	// Env is added to the environment of every container that is started from then on.
	Env map[string]string

	runner *PodRunner
	dir    string // directory of the volumes
}

// SharedInterfaces creates bridges, for a PodRunner without Network, that all Pods share. addresses has the
// IPv4 addresses of each bridge by its name.
func SharedInterfaces(tb testing.TB, addresses map[string][]string) {
	tb.Helper()
	for device, list := range addresses {
		steps := [][]string{
			{"link", "add", device, "type", "bridge"},
			{"link", "set", device, "addrgenmode", "none"}, // IPv6 addresses in duplicate address detection cannot be listened on
			{"link", "set", device, "up"},
			// A bridge has a carrier if one of its ports has.
			{"link", "add", device + "-port", "type", "veth", "peer", "name", device + "-peer"},
			{"link", "set", device + "-port", "master", device, "up"},
			{"link", "set", device + "-peer", "up"},
		}
		for _, a := range list {
			steps = append(steps, []string{"address", "add", a + "/24", "dev", device})
		}
		for _, step := range steps {
			Must(tb, ip(step...))
		}
	}
}

// Start runs a Pod at an IP address and sets its status to Ready.
func (r *PodRunner) Start(tb testing.TB, of *corev1.Pod, ip string) *Pod {
	tb.Helper()
	p := &Pod{Pod: of, IP: ip, Containers: map[string]*Daemon{}, Env: map[string]string{}, runner: r, dir: TempDir(tb)}
	for i := range of.Spec.Containers {
		c := &of.Spec.Containers[i]
		p.Containers[c.Name] = NewDaemon(tb, of.Name+"/"+c.Name, func() *exec.Cmd { return p.command(tb, c) })
	}
	Must(tb, p.writeVolumes(tb.Context(), false))
	if r.Network != nil && of.Spec.SecurityContext != nil {
		for _, s := range of.Spec.SecurityContext.Sysctls {
			r.Network.Run(tb, "sh", "-c", `echo "$1" >"$0"`, "/proc/sys/"+strings.ReplaceAll(s.Name, ".", "/"), s.Value)
		}
	}
	for _, c := range of.Spec.InitContainers {
		if out, err := p.command(tb, &c).CombinedOutput(); err != nil {
			tb.Fatalf("%s/%s: %v\n%s", of.Name, c.Name, err, out)
		}
	}
	for _, d := range p.Containers {
		d.Start(tb)
	}
	p.SetReady(tb, corev1.ConditionTrue)
	return p
}

// Kill kills all containers.
func (p *Pod) Kill(tb testing.TB) {
	tb.Helper()
	for _, d := range p.Containers {
		d.Kill(tb)
	}
}

// RestartContainer starts a container that has ended. If forget is set, it starts without the state of its
// predecessor, as in a new Pod.
func (p *Pod) RestartContainer(tb testing.TB, container string, forget bool) {
	tb.Helper()
	Must(tb, p.writeVolumes(tb.Context(), forget))
	p.Containers[container].Start(tb)
}

// SetReady sets the Pod's condition Ready, as its node would.
func (p *Pod) SetReady(tb testing.TB, status corev1.ConditionStatus) {
	tb.Helper()
	err := p.runner.ControlPlane.ApplyStatusYAML(tb.Context(), fmt.Appendf(nil, `
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s}
status: {phase: Running, podIP: %[3]s, podIPs: [{ip: %[3]s}], conditions: [{type: Ready, status: %[4]q}]}
`, p.Name, p.Namespace, p.IP, status))
	Must(tb, err)
}

// Volume returns the directory of a volume.
func (p *Pod) Volume(name string) string { return filepath.Join(p.dir, name) }

// writeVolumes writes the content of all volumes. If forget is set, it first empties emptyDir volumes, except
// those in memory: their sockets are open in other containers.
func (p *Pod) writeVolumes(ctx context.Context, forget bool) error {
	var errs []error
	for _, v := range p.Spec.Volumes {
		dir := p.Volume(v.Name)
		if forget && v.EmptyDir != nil && v.EmptyDir.Medium != corev1.StorageMediumMemory {
			errs = append(errs, os.RemoveAll(dir))
		}
		errs = append(errs, os.MkdirAll(dir, 0o755))
		switch {
		case v.ConfigMap != nil:
			errs = append(errs, p.configMap(ctx, dir, v.ConfigMap.Name))
		case v.Projected != nil:
			errs = append(errs, p.projected(ctx, dir, v.Projected.Sources))
		case v.EmptyDir == nil:
			errs = append(errs, fmt.Errorf("volume %s of pod %s has an unsupported type", v.Name, p.Name))
		}
	}
	return errors.Join(errs...)
}

func (p *Pod) configMap(ctx context.Context, dir, name string) error {
	config, err := p.runner.Client.CoreV1().ConfigMaps(p.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading ConfigMap %s: %w", name, err)
	}
	var errs []error
	for key, text := range config.Data {
		errs = append(errs, os.WriteFile(filepath.Join(dir, key), []byte(text), 0o644))
	}
	return errors.Join(errs...)
}

// projected writes the files of a projected volume: the token of the Pod's ServiceAccount, ConfigMaps and the
// namespace.
func (p *Pod) projected(ctx context.Context, dir string, sources []corev1.VolumeProjection) error {
	var errs []error
	for _, s := range sources {
		switch {
		case s.ServiceAccountToken != nil:
			errs = append(errs, p.token(ctx, filepath.Join(dir, s.ServiceAccountToken.Path), s.ServiceAccountToken))
		case s.ConfigMap != nil:
			errs = append(errs, p.configMap(ctx, dir, s.ConfigMap.Name))
		case s.DownwardAPI != nil:
			errs = append(errs, os.WriteFile(filepath.Join(dir, "namespace"), []byte(p.Namespace), 0o644))
		}
	}
	return errors.Join(errs...)
}

func (p *Pod) token(ctx context.Context, path string, of *corev1.ServiceAccountTokenProjection) error {
	request, err := p.runner.Client.CoreV1().ServiceAccounts(p.Namespace).CreateToken(ctx, p.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: of.ExpirationSeconds,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("requesting a token of ServiceAccount %s: %w", p.Spec.ServiceAccountName, err)
	}
	return os.WriteFile(path, []byte(request.Status.Token), 0o600)
}

// containerScript builds a root file system in folder $1 and runs a command in it. It bind-mounts the host's
// programs and libraries, and files or directories that are given as pairs of source and target up to "--".
const containerScript = `
set -e
root=$1; shift
mount -t tmpfs none "$root"
for top in bin lib lib64 usr dev proc; do
	if [ -L "/$top" ]; then cp -P "/$top" "$root/$top"
	elif [ -d "/$top" ]; then mkdir "$root/$top"; mount --rbind "/$top" "$root/$top"; fi
done
while [ "$1" != -- ]; do
	if [ -d "$1" ]; then mkdir -p "$root$2"; else touch "$root$2"; fi
	mount --bind "$1" "$root$2"; shift 2
done
shift
exec chroot "$root" "$@"
`

// confine returns a command prefix that runs a command with only the capabilities of a container's
// securityContext.
func confine(c *corev1.SecurityContext) []string {
	list := []string{"-all"}
	if c != nil && c.Capabilities != nil {
		for _, name := range c.Capabilities.Add {
			list = append(list, "+"+strings.ToLower(string(name)))
		}
	}
	capabilities := strings.Join(list, ",")
	return []string{"setpriv", "--no-new-privs", "--bounding-set", capabilities, "--inh-caps", capabilities, "--ambient-caps", "-all"}
}

// HolderCommand returns a command line that runs args, which start xdsd hold, with only the capabilities of
// its container.
func HolderCommand(args ...string) []string {
	return append(confine(&corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN", "NET_RAW"}}}), args...)
}

// nodeMemory is the memory of the node for pods in bytes, which a container without a limit has.
const nodeMemory = "8589934592"

// command returns the command of a container.
func (p *Pod) command(tb testing.TB, c *corev1.Container) *exec.Cmd {
	tb.Helper()
	root := p.Volume("root of " + c.Name)
	Report(tb, os.MkdirAll(root, 0o755))
	args := []string{"--mount", "--propagation", "private", "sh", "-c", containerScript, "sh", root}
	for path, program := range p.runner.Programs {
		args = append(args, program, path)
	}
	for _, m := range c.VolumeMounts {
		args = append(args, p.Volume(m.Name), m.MountPath)
	}
	args = append(args, "--")
	if p.runner.Network != nil {
		args = append(args, confine(c.SecurityContext)...)
	}
	fields := strings.NewReplacer("$(POD_IP)", p.IP, "$(POD_NAME)", p.Name, "$(POD_UID)", p.Name, "$(HOST_IP)", p.IP, "$(ENVOY_MEMORY)", nodeMemory)
	for _, word := range slices.Concat(c.Command, c.Args) {
		args = append(args, fields.Replace(word))
	}
	cmd := p.runner.Network.Command(context.Background(), append([]string{"unshare"}, args...)...) // its Daemon kills it
	env := map[string]string{"PATH": "/:/usr/sbin:/usr/bin:/sbin:/bin"}
	if server, err := url.Parse(p.runner.ControlPlane.ServerURL()); err == nil {
		env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"] = server.Hostname(), server.Port()
	}
	for _, e := range c.Env {
		env[e.Name] = e.Value
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
			env[e.Name] = map[string]string{"status.podIP": p.IP, "status.hostIP": p.IP, "metadata.name": p.Name, "metadata.uid": p.Name}[e.ValueFrom.FieldRef.FieldPath]
		}
	}
	maps.Copy(env, p.Env)
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}
