package lab

import "context"

// BuildMultus returns the path of the CNI plugin Multus, after building it if it is missing or
// older than its source, as Build does for the control plane.
func BuildMultus(ctx context.Context, logf Logf) (string, error) {
	return program{
		name:  "multus",
		what:  "Multus",
		takes: "some seconds after the control plane, whose packages it shares",
		args: func(string) ([]string, error) {
			return append(buildArgs("-s -w"), "gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus"), nil
		},
	}.build(ctx, logf)
}
