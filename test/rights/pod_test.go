package rights_test

import (
	"context"
	"errors"
	"fmt"
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

	"github.com/densityops/oooi/test/lab"
)

// pod runs the containers of a Pod as a kubelet would, as far as their rights are concerned:
// the commands, the environment and the volumes are the Pod's, and so is the token. All pods
// are in the network of the test, each with an address of its own.
type pod struct {
	*corev1.Pod

	site *site
	ip   string
	dir  string // of the volumes
	run  map[string]*lab.Daemon

	status corev1.ConditionStatus // whether it is ready
}

// pods waits for the Pods that the controllers have made for a component.
func (s *site) pods(namespace, component string, n int) []corev1.Pod {
	s.Helper()
	var found []corev1.Pod
	await(s.T, fmt.Sprintf("%d pods of %s", n, component), func() string {
		list, err := s.kube.CoreV1().Pods(namespace).List(s.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=oooi,app.kubernetes.io/component=" + component})
		if err != nil {
			s.Fatal(err)
		}
		found = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
		if len(found) != n {
			return fmt.Sprintf("there are %d", len(found))
		}
		return ""
	})
	return found
}

// start runs a Pod at an address.
func (s *site) start(of *corev1.Pod, ip string) *pod {
	s.Helper()
	p := &pod{Pod: of, site: s, ip: ip, dir: lab.TempDir(s.T), run: map[string]*lab.Daemon{}}
	for _, c := range of.Spec.Containers {
		p.run[c.Name] = lab.NewDaemon(s.T, of.Name+"/"+c.Name, func() *exec.Cmd { return p.command(&c) })
	}
	if err := p.fill(false); err != nil {
		s.Fatal(err)
	}
	for _, c := range of.Spec.InitContainers {
		if out, err := p.command(&c).CombinedOutput(); err != nil {
			s.Fatalf("%s/%s: %v\n%s", of.Name, c.Name, err, out)
		}
	}
	for _, d := range p.run {
		d.Start(s.T)
	}
	p.ready(s.T, corev1.ConditionTrue)
	return p
}

// kill ends the containers.
func (p *pod) kill(t *testing.T) {
	t.Helper()
	for _, d := range p.run {
		d.Kill(t)
	}
}

// resume starts a container that has ended anew, as that of another pod: nothing is remembered.
func (p *pod) resume(t *testing.T, container string) {
	t.Helper()
	if err := p.fill(true); err != nil {
		t.Fatal(err)
	}
	p.run[container].Start(t)
}

// ready has the Pod's status say whether it is, as its node would.
func (p *pod) ready(t *testing.T, status corev1.ConditionStatus) {
	t.Helper()
	err := p.site.management.ApplyStatusYAML(t.Context(), fmt.Appendf(nil, `
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s}
status: {phase: Running, podIP: %[3]s, podIPs: [{ip: %[3]s}], conditions: [{type: Ready, status: %[4]q}]}
`, p.Name, p.Namespace, p.ip, status))
	if err != nil {
		t.Fatal(err)
	}
	p.status = status
}

// turn has it say the opposite.
func (p *pod) turn(t *testing.T) {
	t.Helper()
	if p.status == corev1.ConditionTrue {
		p.ready(t, corev1.ConditionFalse)
	} else {
		p.ready(t, corev1.ConditionTrue)
	}
}

func (p *pod) volume(name string) string { return filepath.Join(p.dir, name) }

// fill writes into the volumes what belongs there. With state, what containers have written
// about the cluster goes; the sockets in memory stay, since others have them open.
func (p *pod) fill(state bool) error {
	var errs []error
	for _, v := range p.Spec.Volumes {
		dir := p.volume(v.Name)
		if state && v.EmptyDir != nil && v.EmptyDir.Medium != corev1.StorageMediumMemory {
			errs = append(errs, os.RemoveAll(dir))
		}
		errs = append(errs, os.MkdirAll(dir, 0o755))
		switch {
		case v.ConfigMap != nil:
			errs = append(errs, p.configMap(dir, v.ConfigMap.Name))
		case v.Projected != nil:
			errs = append(errs, p.projected(dir, v.Projected.Sources))
		case v.EmptyDir == nil:
			errs = append(errs, fmt.Errorf("volume %s of pod %s is of a kind that this test does not know", v.Name, p.Name))
		}
	}
	return errors.Join(errs...)
}

func (p *pod) configMap(dir, name string) error {
	config, err := p.site.kube.CoreV1().ConfigMaps(p.Namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for key, text := range config.Data {
		errs = append(errs, os.WriteFile(filepath.Join(dir, key), []byte(text), 0o644))
	}
	return errors.Join(errs...)
}

// projected writes the token of the pod's ServiceAccount, with what else is in its volume.
func (p *pod) projected(dir string, sources []corev1.VolumeProjection) error {
	var errs []error
	for _, s := range sources {
		switch {
		case s.ServiceAccountToken != nil:
			errs = append(errs, p.token(filepath.Join(dir, s.ServiceAccountToken.Path), s.ServiceAccountToken))
		case s.ConfigMap != nil:
			errs = append(errs, p.configMap(dir, s.ConfigMap.Name))
		case s.DownwardAPI != nil:
			errs = append(errs, os.WriteFile(filepath.Join(dir, "namespace"), []byte(p.Namespace), 0o644))
		}
	}
	return errors.Join(errs...)
}

func (p *pod) token(path string, of *corev1.ServiceAccountTokenProjection) error {
	request, err := p.site.kube.CoreV1().ServiceAccounts(p.Namespace).CreateToken(context.Background(), p.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: of.ExpirationSeconds,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
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

// command runs a container.
func (p *pod) command(c *corev1.Container) *exec.Cmd {
	root := p.volume("root of " + c.Name)
	if err := os.MkdirAll(root, 0o755); err != nil {
		p.site.Error(err)
	}
	args := []string{"--mount", "--propagation", "private", "sh", "-c", containerScript, "sh", root}
	for path, program := range p.site.image {
		args = append(args, program, path)
	}
	for _, m := range c.VolumeMounts {
		args = append(args, p.volume(m.Name), m.MountPath)
	}
	args = append(args, "--")
	fields := strings.NewReplacer("$(POD_IP)", p.ip, "$(POD_NAME)", p.Name)
	for _, word := range slices.Concat(c.Command, c.Args) {
		args = append(args, fields.Replace(word))
	}
	cmd := exec.Command("unshare", args...)
	cmd.Env = []string{"PATH=/:/usr/sbin:/usr/bin:/sbin:/bin"}
	if server, err := url.Parse(p.site.management.ServerURL()); err == nil {
		cmd.Env = append(cmd.Env, "KUBERNETES_SERVICE_HOST="+server.Hostname(), "KUBERNETES_SERVICE_PORT="+server.Port())
	}
	for _, e := range c.Env {
		value := e.Value
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
			value = map[string]string{"status.podIP": p.ip, "metadata.name": p.Name}[e.ValueFrom.FieldRef.FieldPath]
		}
		cmd.Env = append(cmd.Env, e.Name+"="+value)
	}
	return cmd
}
