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

// A PodRunner runs the containers of Pods as a kubelet would, as far as their commands, their
// environment, their volumes and their rights are concerned: what is in them is the Pod's, and so is
// the token.
type PodRunner struct {
	ControlPlane *ControlPlane
	Client       kubernetes.Interface
	// Network is the pod's. Where it is nil, all pods are in the network that the test is in, each with
	// an address of its own there. A pod with its own network gets its sysctls as well, and its
	// containers run with their capabilities alone, but as root: files belong to the test.
	Network *Namespace
	// Programs are the files of images, by their paths in them.
	Programs map[string]string
}

// A Pod is one that a PodRunner runs.
type Pod struct {
	*corev1.Pod

	// IP is its address in the pod network.
	IP string
	// Run are its containers by name.
	Run map[string]*Daemon
	// Env is added to the environment of each container that is started from now on.
	Env map[string]string

	runner *PodRunner
	dir    string // of the volumes
}

// SharedInterfaces makes those that all Pods of a PodRunner share, in the network that the test is
// in: bridges with addresses, by their names.
func SharedInterfaces(tb testing.TB, addresses map[string][]string) {
	tb.Helper()
	for device, list := range addresses {
		steps := [][]string{
			{"link", "add", device, "type", "bridge"},
			{"link", "set", device, "addrgenmode", "none"}, // an address that is being tried cannot be listened on
			{"link", "set", device, "up"},
		}
		for _, a := range list {
			steps = append(steps, []string{"address", "add", a + "/24", "dev", device})
		}
		for _, step := range steps {
			if err := ip(step...); err != nil {
				tb.Fatal(err)
			}
		}
	}
}

// Start runs a Pod at an address, and says in its status that it is ready.
func (r *PodRunner) Start(tb testing.TB, of *corev1.Pod, ip string) *Pod {
	tb.Helper()
	p := &Pod{Pod: of, IP: ip, Run: map[string]*Daemon{}, Env: map[string]string{}, runner: r, dir: TempDir(tb)}
	for i := range of.Spec.Containers {
		c := &of.Spec.Containers[i]
		p.Run[c.Name] = NewDaemon(tb, of.Name+"/"+c.Name, func() *exec.Cmd { return p.command(tb, c) })
	}
	if err := p.fill(tb.Context(), false); err != nil {
		tb.Fatal(err)
	}
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
	for _, d := range p.Run {
		d.Start(tb)
	}
	p.SetReady(tb, corev1.ConditionTrue)
	return p
}

// Kill ends the containers.
func (p *Pod) Kill(tb testing.TB) {
	tb.Helper()
	for _, d := range p.Run {
		d.Kill(tb)
	}
}

// Resume starts a container that has ended anew. With forget it is that of another pod: nothing is
// remembered of before.
func (p *Pod) Resume(tb testing.TB, container string, forget bool) {
	tb.Helper()
	if err := p.fill(tb.Context(), forget); err != nil {
		tb.Fatal(err)
	}
	p.Run[container].Start(tb)
}

// SetReady has the Pod's status say whether it is, as its node would.
func (p *Pod) SetReady(tb testing.TB, status corev1.ConditionStatus) {
	tb.Helper()
	err := p.runner.ControlPlane.ApplyStatusYAML(tb.Context(), fmt.Appendf(nil, `
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s}
status: {phase: Running, podIP: %[3]s, podIPs: [{ip: %[3]s}], conditions: [{type: Ready, status: %[4]q}]}
`, p.Name, p.Namespace, p.IP, status))
	if err != nil {
		tb.Fatal(err)
	}
}

// Volume is the folder that a volume is.
func (p *Pod) Volume(name string) string { return filepath.Join(p.dir, name) }

// fill writes into the volumes what belongs there. With forget, what containers have written about
// the cluster goes; the sockets in memory stay, since others have them open.
func (p *Pod) fill(ctx context.Context, forget bool) error {
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
			errs = append(errs, fmt.Errorf("volume %s of pod %s is of a kind that the lab does not know", v.Name, p.Name))
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

// projected writes the token of the pod's ServiceAccount, with what else is in its volume.
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
		return fmt.Errorf("a token of ServiceAccount %s: %w", p.Spec.ServiceAccountName, err)
	}
	return os.WriteFile(path, []byte(request.Status.Token), 0o600)
}

// containerScript makes a file system in folder $1 of what a program needs of the machine and of
// mounts, as pairs up to "--", and runs a command in it. What is mounted is a folder or a file.
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

// confine is what runs a command with the capabilities of a container alone.
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

// command runs a container.
func (p *Pod) command(tb testing.TB, c *corev1.Container) *exec.Cmd {
	tb.Helper()
	root := p.Volume("root of " + c.Name)
	if err := os.MkdirAll(root, 0o755); err != nil {
		tb.Error(err)
	}
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
	fields := strings.NewReplacer("$(POD_IP)", p.IP, "$(POD_NAME)", p.Name, "$(POD_UID)", p.Name)
	for _, word := range slices.Concat(c.Command, c.Args) {
		args = append(args, fields.Replace(word))
	}
	cmd := p.runner.Network.Command(context.Background(), append([]string{"unshare"}, args...)...) // a Daemon ends it
	env := map[string]string{"PATH": "/:/usr/sbin:/usr/bin:/sbin:/bin"}
	if server, err := url.Parse(p.runner.ControlPlane.ServerURL()); err == nil {
		env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"] = server.Hostname(), server.Port()
	}
	for _, e := range c.Env {
		env[e.Name] = e.Value
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
			env[e.Name] = map[string]string{"status.podIP": p.IP, "metadata.name": p.Name, "metadata.uid": p.Name}[e.ValueFrom.FieldRef.FieldPath]
		}
	}
	maps.Copy(env, p.Env)
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}
