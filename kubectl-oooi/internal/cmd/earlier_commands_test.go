package cmd

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/test/lab"
)

// earlierCommands runs the commands in docs/how-to/troubleshoot.md that replace the commands in the earlier operator's guide. kubectl
// commands are compared with the objects, since a test has no kubelet.
func earlierCommands(t *testing.T, cp *lab.ControlPlane) {
	recordedPages(t)
	page, err := os.ReadFile("../../../docs/how-to/migrate.md")
	lab.Must(t, err)
	_, section, _ := strings.Cut(string(page), "\n## From the earlier operator's commands\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, typed := range []string{
		"kubectl get proxyservers", "kubectl get pods -l app=proxy-server", "kubectl get pods -l app=proxy", "kubectl logs deployment/proxy-server-NAME -c manager",
		"kubectl port-forward deployment/proxy-server-NAME 9901:9901", "curl localhost:9901/stats/prometheus", "curl localhost:9901/clusters", "curl localhost:9901/config_dump", "curl localhost:9901/stats",
		"kubectl edit proxyserver NAME", "kubectl scale deployment proxy-server-NAME --replicas=3", "kubectl get proxyserver NAME -o yaml",
		"openssl s_client -connect ADDRESS:6443 -servername NAME", "curl -k --resolve",
	} {
		if !strings.Contains(section, "`"+typed+"`") {
			t.Errorf("docs/how-to/migrate.md does not name %q", typed)
		}
	}
	ran := 0
	for line := range strings.Lines(section) {
		cells := strings.Split(line, " | ")
		if len(cells) != 2 {
			continue
		}
		for _, span := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			command := span[1]
			words := strings.Fields(command)
			switch {
			case words[0] != "kubectl" || command == "kubectl oooi setup" || strings.Contains(command, "NAME") || strings.Contains(command, "--probe"): // without an object
			case words[1] == "oooi":
				ran++
				if out, stderr, code := runMain(t, append([]string{"kubectl-oooi", "--kubeconfig", cp.Kubeconfig()}, words[2:]...)...); code != 0 || out == "" {
					t.Errorf("%s exited with %d: %s", command, code, stderr)
				}
			default:
				ran++
				if err := kubectlFinds(t, cp, words[1:]); err != nil {
					t.Errorf("%s: %v", command, err)
				}
			}
		}
	}
	if ran < 15 {
		t.Errorf("the table has only %d commands", ran)
	}
}

// kubectlFinds returns an error if the objects that a command of kubectl reads do not exist.
func kubectlFinds(t *testing.T, cp *lab.ControlPlane, words []string) error {
	t.Helper()
	flags := pflag.NewFlagSet(words[0], pflag.ContinueOnError)
	namespace, container := flags.StringP("namespace", "n", "", ""), flags.StringP("container", "c", "", "")
	selector, raw := flags.StringP("selector", "l", "", ""), flags.String("raw", "", "")
	if err := flags.Parse(words[1:]); err != nil {
		return err
	}
	if page := regexp.MustCompile(`^/api/v1/namespaces/([^/]+)/pods/([^/:]+):9901/proxy/stats/prometheus$`).FindStringSubmatch(*raw); page != nil {
		return cp.Client(t).Get(t.Context(), client.ObjectKey{Namespace: page[1], Name: page[2]}, &corev1.Pod{})
	}
	if words[0] == "logs" {
		pod := &corev1.Pod{}
		err := cp.Client(t).Get(t.Context(), client.ObjectKey{Namespace: *namespace, Name: flags.Arg(0)}, pod)
		if err == nil && !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == *container }) {
			err = fmt.Errorf("the pod has no container %s", *container)
		}
		return err
	}
	kinds := map[string]schema.GroupVersionKind{
		"proxyservers": read.ProxyServerKind, "pods": corev1.SchemeGroupVersion.WithKind("Pod"),
		"statefulsets": appsv1.SchemeGroupVersion.WithKind("StatefulSet"), "configmaps": corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	}
	labelled, err := labels.Parse(*selector)
	if err != nil {
		return err
	}
	kind, known := kinds[flags.Arg(0)]
	if !known || words[0] != "get" || *namespace == "" {
		return errors.New("the test does not know the command")
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	err = cp.Client(t).List(t.Context(), list, client.InNamespace(*namespace), client.MatchingLabelsSelector{Selector: labelled})
	if err == nil && len(list.Items) == 0 && slices.Contains([]string{"Pod", "ProxyServer"}, kind.Kind) { // the site has no others
		err = errors.New("it finds no object")
	}
	return err
}
