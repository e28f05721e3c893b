package lab

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// An Image is a container image that is built from local files.
type Image struct {
	// Name is the image's name and tag, such as localhost/pause:1.
	Name string
	// Containerfile has the instructions. It must start FROM scratch, because builds cannot pull images.
	Containerfile string
	// Files are the files that Containerfile copies: from paths in the build context to local paths. All are
	// installed with mode 0755.
	Files map[string]string
}

// Build builds the image with Buildah, unless it was built from the same files. ImageArchive returns its
// path.
func (i Image) Build(ctx context.Context, logf Logf) error {
	archive, err := ImageArchive(i.Name)
	if err != nil {
		return err
	}
	sum, err := i.sum()
	if err != nil {
		return fmt.Errorf("building image %s: %w", i.Name, err)
	}
	return buildOnce(ctx, archive, sum, 10*time.Minute, logf, func(ctx context.Context) error {
		logf.printf("building image %s", i.Name)
		if err := i.build(ctx, archive); err != nil {
			return fmt.Errorf("building image %s: %w", i.Name, err)
		}
		return nil
	})
}

// ImageArchive returns the path of the OCI archive of a built image.
func ImageArchive(name string) (string, error) {
	dir, err := labDir()
	return filepath.Join(dir, "image-"+strings.NewReplacer("/", "-", ":", "-").Replace(name)+".tar"), err
}

func (i Image) build(ctx context.Context, archive string) (err error) {
	scratch, err := os.MkdirTemp(filepath.Dir(archive), "image-") // on a file system with enough space
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	containerfile, files := filepath.Join(scratch, "Containerfile"), filepath.Join(scratch, "files")
	if err := os.WriteFile(containerfile, []byte(i.Containerfile), 0o600); err != nil {
		return err
	}
	for to, from := range i.Files {
		if err := install(from, filepath.Join(files, to)); err != nil {
			return err
		}
	}
	archived := filepath.Join(scratch, "image.tar")
	cmd := exec.CommandContext(ctx, "buildah", "--storage-driver=vfs", "--root="+filepath.Join(scratch, "storage"), "--runroot="+filepath.Join(scratch, "run"),
		"bud", "--isolation=chroot", "--file="+containerfile, "--tag=oci-archive:"+archived+":"+i.Name, files)
	if err := runCommand(cmd); err != nil {
		return err
	}
	return os.Rename(archived, archive)
}

// sum returns a hash of the Containerfile and the files.
func (i Image) sum() (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%q\n", i.Containerfile)
	for _, to := range slices.Sorted(maps.Keys(i.Files)) {
		file, err := os.Open(i.Files[to])
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%q\n", to)
		_, err = io.Copy(h, file)
		if err := errors.Join(err, file.Close()); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// install copies a file to a path, with mode 0755, and creates the directories above it.
func install(from, to string) error {
	content, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, content, 0o755)
	}
	return err
}

// BuildStatic builds a main package of this repository for an image or a benchmark, and returns the binary's
// path. As the Makefile does, it disables cgo, and with it the race detector.
func BuildStatic(ctx context.Context, pkg string) (string, error) {
	dir, err := labDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "static-"+filepath.Base(pkg))
	return path, goCommand(ctx, []string{"CGO_ENABLED=0"}, buildFlags("-ldflags=-s -w", "-o", path, pkg)...)
}

// Linked returns a program and the shared libraries that it is linked to, as the Files of an image with the
// program in its directory bin.
func Linked(ctx context.Context, program string) (map[string]string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, err
	}
	files := map[string]string{"bin/" + filepath.Base(path): path}
	cmd := exec.CommandContext(ctx, "ldd", path)
	libraries, err := cmd.CombinedOutput()
	if err != nil && !strings.Contains(string(libraries), "not a dynamic executable") {
		return nil, fmt.Errorf("%s: %w: %s", cmd, err, libraries)
	}
	for word := range strings.FieldsSeq(string(libraries)) {
		if filepath.IsAbs(word) { // the other words are names and addresses
			files[word] = word
		}
	}
	return files, nil
}

// pauseImage is the sandbox image of Pods.
const pauseImage = "localhost/pause:1"

func buildPause(ctx context.Context, logf Logf) error {
	pause, err := BuildStatic(ctx, "./test/cmd/pause")
	if err != nil {
		return err
	}
	return Image{
		Name:          pauseImage,
		Containerfile: "FROM scratch\nCOPY pause /\nENTRYPOINT [\"/pause\"]\n",
		Files:         map[string]string{"pause": pause},
	}.Build(ctx, logf)
}
