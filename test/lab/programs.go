package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// programsDir has the modules that pin everything that the lab compiles of other projects. They
// require the product's versions of the packages that both use, and are compiled with the same
// flags, so that the build cache has each of these packages once.
var programsDir = filepath.Join("test", "programs")

// A program is a main package that the lab builds: of a module in programsDir or one that it
// requires.
type program struct {
	name string // of the binary in the lab's folder
	what string // for progress lines
	pkg  string // import path, or ./folder in the module

	module string // the module's folder in programsDir; empty: programsDir itself
	// prepare changes the source before a build; it returns further arguments of go build.
	prepare func(ctx context.Context, source string) ([]string, error)
}

// Build returns the path of the binary that is etcd and all Kubernetes components, after building
// it if it is missing or older than its source. Concurrent calls, also of other processes, build it
// once.
func Build(ctx context.Context, logf Logf) (string, error) {
	return program{name: "controlplane", what: "etcd and the components of Kubernetes", pkg: "./controlplane"}.build(ctx, logf)
}

// BuildMetalLB returns the path of MetalLB's controller and builds it like Build.
func BuildMetalLB(ctx context.Context, logf Logf) (string, error) {
	return metallbProgram("metallb", "controller").build(ctx, logf)
}

// BuildMetalLBSpeaker returns the path of MetalLB's speaker, which announces the addresses of
// Services from a node, and builds it like Build. It is for a Pod in the node's network.
func BuildMetalLBSpeaker(ctx context.Context, logf Logf) (string, error) {
	return metallbProgram("metallb-speaker", "speaker").build(ctx, logf)
}

// BuildMultus returns the path of the CNI plugin Multus and builds it like Build.
func BuildMultus(ctx context.Context, logf Logf) (string, error) {
	return program{name: "multus", what: "Multus", pkg: "gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus"}.build(ctx, logf)
}

// BuildHelm returns the path of the command helm and builds it like Build.
func BuildHelm(ctx context.Context, logf Logf) (string, error) {
	return program{name: "helm", what: "Helm", pkg: "helm.sh/helm/v3/cmd/helm"}.build(ctx, logf)
}

// BuildContour returns the path of the ingress controller Contour and builds it like Build. Its release
// does not compile with the product's client-go, so it has its own, which takes minutes to compile.
func BuildContour(ctx context.Context, logf Logf) (string, error) {
	return program{name: "contour", what: "Contour", module: "contour", pkg: contourModule + "/cmd/contour"}.build(ctx, logf)
}

// BuildCertManager returns the path of test/programs/certmanager, cert-manager's controller as far
// as self-signed certificates need it, and builds it like Build.
func BuildCertManager(ctx context.Context, logf Logf) (string, error) {
	return program{name: "certmanager", what: "cert-manager's controller", module: "certmanager", pkg: "./"}.build(ctx, logf)
}

// build builds the binary if it is not up to date, and returns its path.
func (p program) build(ctx context.Context, logf Logf) (string, error) {
	dir, err := labDir()
	if err != nil {
		return "", err
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	source := filepath.Join(root, programsDir, p.module)
	stamp, err := versionStamp(filepath.Join(root, programsDir))
	if err != nil {
		return "", err
	}
	args := []string{"-ldflags=-s -w " + stamp, p.pkg}
	sum, err := sourceSum(source, args)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, p.name)
	return binary, once(ctx, binary, sum, 30*time.Minute, logf, func(ctx context.Context) error {
		logf.printf("building %s", p.what)
		if p.prepare != nil {
			more, err := p.prepare(ctx, source)
			if err != nil {
				return fmt.Errorf("preparing the source of %s: %w", p.what, err)
			}
			args = append(more, args...)
		}
		return goBuild(ctx, source, binary, logf, args...)
	})
}

// sourceSum identifies what a package, the last of args, is built from, and how.
func sourceSum(source string, args []string) (string, error) {
	files := []string{filepath.Join(source, "go.mod"), filepath.Join(source, "go.sum")}
	if pkg := args[len(args)-1]; strings.HasPrefix(pkg, "./") {
		own, err := filepath.Glob(filepath.Join(source, pkg, "*.go"))
		if err != nil {
			return "", err
		}
		files = append(files, own...)
	}
	slices.Sort(files)
	h := sha256.New()
	h.Write(fmt.Appendf(nil, "%s %s/%s %q\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, args))
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("reading the source of a program: %w", err)
		}
		h.Write(fmt.Appendf(nil, "%s %d\n", filepath.Base(file), len(data)))
		h.Write(data)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// kubernetesVersion is the line of go.mod that says what is built.
var kubernetesVersion = regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)$`)

// versionStamp returns the linker flags that give Kubernetes its version.
func versionStamp(source string) (string, error) {
	gomod, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("reading the version of Kubernetes: %w", err)
	}
	version := kubernetesVersion.FindSubmatch(gomod)
	if version == nil {
		return "", fmt.Errorf("%s: no version of k8s.io/kubernetes in go.mod", source)
	}
	const stamp = "-X k8s.io/component-base/version."
	return fmt.Sprintf("%[1]sgitVersion=%[2]s %[1]sgitMajor=%[3]s %[1]sgitMinor=%[4]s", stamp, version[1], version[2], version[3]), nil
}
