package lab

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
)

// OooiImage returns the image that 'make image' builds from manifests/Containerfile, for this host's
// architecture. binaries maps the names of the binaries in the image to local paths.
func OooiImage(name string, binaries map[string]string) (Image, error) {
	root, err := Root()
	if err != nil {
		return Image{}, err
	}
	containerfile, err := os.ReadFile(filepath.Join(root, "manifests", "Containerfile"))
	if err != nil {
		return Image{}, fmt.Errorf("reading the Containerfile: %w", err)
	}
	files := map[string]string{"ca-certificates.crt": "/etc/ssl/certs/ca-certificates.crt"}
	for program, path := range binaries {
		files[runtime.GOARCH+"/"+program] = path
	}
	return Image{Name: name, Containerfile: string(containerfile), Files: files}, nil
}

// ProgramsImage returns an image with programs of this host and their libraries. The programs are in its
// folder bin; the first is the entrypoint.
func ProgramsImage(ctx context.Context, name string, programs ...string) (Image, error) {
	image := Image{Name: name, Files: map[string]string{}}
	for _, program := range programs {
		files, err := Linked(ctx, program)
		if err != nil {
			return Image{}, fmt.Errorf("finding the files of image %s: %w", name, err)
		}
		maps.Copy(image.Files, files)
	}
	image.Containerfile = fmt.Sprintf("FROM scratch\nCOPY . /\nUSER 65532:65532\nENTRYPOINT [\"/bin/%s\"]\n", filepath.Base(programs[0]))
	return image, nil
}
