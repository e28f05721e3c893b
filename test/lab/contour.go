package lab

import "context"

// BuildContour returns the path of the ingress controller Contour, after building it if it is
// missing or older than its source, as Build does for the control plane.
func BuildContour(ctx context.Context, logf Logf) (string, error) {
	return program{
		name:  "contour",
		what:  "Contour",
		takes: "about 3 minutes on two cores with cold caches, 10 seconds with warm ones",
		args: func(string) ([]string, error) {
			return append(buildArgs("-s -w"), contourModule+"/cmd/contour"), nil
		},
	}.build(ctx, logf)
}
