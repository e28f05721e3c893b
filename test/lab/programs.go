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

// programsDir has the modules that pin all programs of other projects that the lab compiles. They require the
// product's versions of shared dependencies, and are compiled with the same flags, so that the build cache
// contains each package once.
var programsDir = filepath.Join("test", "programs")

// A program is a main package that the lab builds, in a module below programsDir or in one of its
// requirements.
type program struct {
	name string // name of the binary in the lab's directory
	what string // description in progress lines
	pkg  string // import path, or ./folder in the module

	module string // directory of the module in programsDir; if empty, programsDir itself
	// prepare changes the source before a build, and returns additional arguments of go build.
	prepare func(ctx context.Context, source string) ([]string, error)
}

// These functions return the path of a binary. They build the binary if it is missing or out of date; concurrent calls,
// including calls of other processes, build it once.
var (
	// Build builds the binary that contains etcd and all Kubernetes components.
	Build = program{name: "controlplane", what: "etcd and the components of Kubernetes", pkg: "./controlplane"}.build
	// BuildMetalLB builds MetalLB's controller.
	BuildMetalLB = metallbProgram("metallb", "controller").build
	// BuildMetalLBSpeaker builds MetalLB's speaker, which announces the addresses of Services. It must run in a Pod with
	// hostNetwork.
	BuildMetalLBSpeaker = metallbProgram("metallb-speaker", "speaker").build
	// BuildMultus builds the CNI plugin Multus.
	BuildMultus = program{name: "multus", what: "Multus", pkg: "gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus"}.build
	// BuildHelm builds helm.
	BuildHelm = program{name: "helm", what: "Helm", pkg: "helm.sh/helm/v3/cmd/helm"}.build
	// BuildKubectl builds kubectl.
	BuildKubectl = program{name: "kubectl", what: "kubectl", pkg: "k8s.io/kubernetes/cmd/kubectl"}.build
	// BuildContour builds the ingress controller Contour. The release does not compile with the product's client-go, so its
	// module has another version, which takes minutes to compile.
	BuildContour = program{name: "contour", what: "Contour", module: "contour", pkg: contourModule + "/cmd/contour"}.build
	// BuildCertManager builds test/programs/certmanager: cert-manager's controller with the parts that self-signed
	// certificates need.
	BuildCertManager = program{name: "certmanager", what: "cert-manager's controller", module: "certmanager", pkg: "./"}.build
	// BuildKubeVirt builds test/programs/kubevirt: KubeVirt's virt-controller, and what it prints for tests.
	BuildKubeVirt = program{name: "kubevirt", what: "KubeVirt's virt-controller", module: "kubevirt", pkg: "./"}.build
)

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
	return binary, buildOnce(ctx, binary, sum, 30*time.Minute, logf, func(ctx context.Context) error {
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

// sourceSum returns a hash of the files and arguments that a package, the last of args, is built from.
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

// kubernetesVersion matches the requirement of Kubernetes in go.mod.
var kubernetesVersion = regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)$`)

// versionStamp returns the linker flags that set the version of Kubernetes.
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
