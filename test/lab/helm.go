package lab

import "context"

// BuildHelm returns the path of the command helm, after building it if it is missing or older than
// its source, as Build does for the control plane.
func BuildHelm(ctx context.Context, logf Logf) (string, error) {
	return program{
		name:  "helm",
		what:  "Helm",
		takes: "about 3 minutes on two cores with cold caches, 10 seconds with warm ones",
		args: func(string) ([]string, error) {
			return append(buildArgs("-s -w"), "helm.sh/helm/v3/cmd/helm"), nil
		},
	}.build(ctx, logf)
}
