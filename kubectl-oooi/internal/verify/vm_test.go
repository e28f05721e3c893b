package verify

import (
	"testing"

	"sigs.k8s.io/yaml"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestStartFailure reads conditions as KubeVirt's controller writes them.
func TestStartFailure(t *testing.T) {
	for _, tc := range []struct{ name, conditions, want string }{
		{"no conditions", "[]", ""},
		{"starting", `[{type: Ready, status: "False", reason: GuestNotRunning, message: virt-launcher pod has not yet been scheduled}]`, ""},
		{"running", `[{type: Ready, status: "True"}, {type: Synchronized, status: "True"}]`, ""},
		{
			"Pod Security", `[{type: Synchronized, status: "False", reason: FailedCreate, message: 'failed to create virtual machine pod: pods "virt-launcher-x" is forbidden: violates PodSecurity "restricted:latest"'}]`,
			`FailedCreate: failed to create virtual machine pod: pods "virt-launcher-x" is forbidden: violates PodSecurity "restricted:latest"`,
		},
		{"image", `[{type: Synchronized, status: "False", reason: ErrImagePull, message: "pull access denied"}]`, "ErrImagePull: pull access denied"},
		{"refused instance", `[{type: Failure, status: "True", reason: FailedCreate, message: admission webhook denied the request}]`, "FailedCreate: admission webhook denied the request"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte("{apiVersion: kubevirt.io/v1, kind: VirtualMachine, status: {conditions: "+tc.conditions+"}}"), &u.Object); err != nil {
				t.Fatal(err)
			}
			if got := startFailure(u); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
