package lab

import "context"

// BuildCertManager returns the path of cert-manager's controller, as far as test/certmanager has
// it, after building it if it is missing or older than its source, as Build does for the control
// plane.
func BuildCertManager(ctx context.Context, logf Logf) (string, error) {
	return program{
		name:  "certmanager",
		what:  "cert-manager's controller",
		takes: "about 3 minutes on two cores with cold caches, 10 seconds with warm ones",
		args:  func(string) ([]string, error) { return buildArgs("-s -w"), nil },
	}.build(ctx, logf)
}
