package doctor

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestCompare compares rendered objects with deployed ones.
func TestCompare(t *testing.T) {
	const set = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: demo-dns, labels: {a: b}}\n"
	const rendered = set + "spec: {replicas: 1, template: {spec: {containers: [{name: coredns, command: [/coredns], env: [{name: A, value: x}], resources: {requests: {cpu: 50m, memory: 1Gi}}, ports: [{containerPort: 53, protocol: UDP}, {containerPort: 53, protocol: TCP}]}], volumes: [{name: state, emptyDir: {}}]}}}\n"
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: demo-dns}\nspec: {ports: [{name: dns, port: 53, protocol: UDP, targetPort: dns}, {name: dns-tcp, port: 53, protocol: TCP, targetPort: 53}]}\n"
	const network = "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: demo-dns}\nspec: {config: '{}'}\n"
	long := strings.Repeat("x", 2*longestValue)
	for _, tc := range []struct {
		name, want, has string
		differ          []string
	}{
		{"same", rendered, rendered, nil},
		{"defaults, labels and annotations of others", rendered, `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: demo-dns, uid: x, labels: {a: b, app.kubernetes.io/instance: argo, kustomize.toolkit.fluxcd.io/name: flux}, annotations: {argocd.argoproj.io/tracking-id: x}}
spec:
  replicas: 1
  podManagementPolicy: OrderedReady
  template:
    metadata: {annotations: {kubectl.kubernetes.io/restartedAt: x}}
    spec:
      dnsPolicy: ClusterFirst
      containers:
      - {name: sidecar, image: x}
      - {name: coredns, image: x, command: [/coredns], terminationMessagePath: /x, env: [{name: B, value: x}, {name: A, value: x}], resources: {limits: {cpu: 1}, requests: {cpu: 50m, memory: 1Gi}}, ports: [{containerPort: 53, protocol: TCP}, {name: more, containerPort: 53, protocol: UDP}]}
      volumes: [{name: more, emptyDir: {}}, {name: state, emptyDir: {}}]
`, nil},
		{"quantities and numbers in another form", rendered, strings.NewReplacer("50m", "0.05", "1Gi", "1024Mi", "replicas: 1", "replicas: 1.0").Replace(rendered), nil},
		{"fields of a newer API server", rendered, strings.NewReplacer("{replicas", "{invented: {x: y}, replicas", "{name: coredns", "{invented: [x], name: coredns").Replace(rendered), nil},
		{"environment variable that exists twice", rendered, strings.Replace(rendered, "env: [", "env: [{name: B, value: x}, {name: B, value: z}, ", 1), nil},
		{"port of another protocol", service, strings.Replace(service, "protocol: UDP, targetPort: dns", "protocol: UDP, targetPort: 53", 1), []string{`.spec.ports[port=53,protocol="UDP"].targetPort: found 53, setup would render "dns"`}},
		{"missing port", service, "apiVersion: v1\nkind: Service\nmetadata: {name: demo-dns}\nspec: {ports: [{name: dns, port: 53, protocol: UDP, targetPort: dns}]}\n", []string{`.spec.ports[port=53,protocol="TCP"]: found nothing, setup would render {"name":"dns-tcp","port":53,"protocol":"TCP","targetPort":53}`}},
		{"missing parents", rendered, set + "spec: {replicas: 0, template: {spec: {containers: [{name: other}]}}}\n", []string{
			".spec.replicas: found 0, setup would render 1",
			`.spec.template.spec.volumes: found nothing, setup would render [{"emptyDir":{},"name":"state"}]`,
			`.spec.template.spec.containers[name="coredns"]: found nothing, setup would render {"command":["/coredns"],"env":[{"name":"A","value":"x"}],"name":"coredns","ports":[{"containerPort":53,"protocol":"UDP"},{"containerPort":53,"protocol":"TCP"}],...`,
		}},
		{"secrets", rendered, strings.NewReplacer("[/coredns]", "[/coredns, -token=SECRET]", "value: x", "value: SECRET").Replace(rendered), []string{
			`.spec.template.spec.containers[name="coredns"].command: found another value than setup would render`,
			`.spec.template.spec.containers[name="coredns"].env[name="A"].value: found another value than setup would render`,
		}},
		{"field of an older API server", rendered, strings.Replace(rendered, "emptyDir: {}", "hostPath: {path: /}", 1), []string{`.spec.template.spec.volumes[name="state"].emptyDir: found nothing, setup would render {}`}},
		{
			"long lines that begin alike", strings.Replace(network, "'{}'", `"{\"a\": \"`+long+`\", \"mtu\": 1500\n}"`, 1), strings.Replace(network, "'{}'", `"{\"a\": \"`+long+`\", \"mtu\": 9000\n}"`, 1),
			[]string{`.spec.config: line 1: found "...xxxxxxxxxxxxxxxxxxxx\", \"mtu\": 9000", setup would render "...xxxxxxxxxxxxxxxxxxxx\", \"mtu\": 1500"`},
		},
		{"line with other white space", strings.Replace(network, "'{}'", `"a\n b"`, 1), strings.Replace(network, "'{}'", `"a\n  b"`, 1), []string{`.spec.config: line 2: found "  b", setup would render " b"`}},
		{"line break at the end", strings.Replace(network, "'{}'", `"a\nb"`, 1), strings.Replace(network, "'{}'", `"a\nb\n"`, 1), []string{`.spec.config: end of the text: found 3 lines, setup would render 2 lines`}},
		{"network", network, strings.Replace(network, "'{}'", `'{"mtu": 9000}'`, 1), []string{`.spec.config: field mtu: found 9000, setup would render nothing`}},
		{"bridge of a network", strings.Replace(network, "'{}'", `'{"plugins": [{"type": "bridge", "bridge": "vlan50"}, {"type": "sbr"}]}'`, 1), strings.Replace(network, "'{}'", `'{"plugins": [{"type": "bridge", "bridge": "vlan05"}, {"type": "sbr"}]}'`, 1),
			[]string{`.spec.config: field plugins[0].bridge: found "vlan05", setup would render "vlan50"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			object := func(text string) *unstructured.Unstructured {
				u := &unstructured.Unstructured{}
				if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
					t.Fatal(err)
				}
				return u
			}
			d := &drift{}
			d.compare(object(tc.want), object(tc.has))
			var differ []string
			for _, one := range d.Differences {
				differ = append(differ, one.String())
			}
			if diff := cmp.Diff(tc.differ, differ); diff != "" || d.Error != "" {
				t.Errorf("%s (-want +got):\n%s", d.Error, diff)
			}
		})
	}
}
