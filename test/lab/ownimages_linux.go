package lab

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
)

// OooiImage is what 'make image' makes, for this machine's architecture: an image by
// manifests/Containerfile, of binaries by their names in it.
func OooiImage(name string, binaries map[string]string) (Image, error) {
	root, err := Root()
	if err != nil {
		return Image{}, err
	}
	containerfile, err := os.ReadFile(filepath.Join(root, "manifests", "Containerfile"))
	if err != nil {
		return Image{}, fmt.Errorf("reading how our image is made: %w", err)
	}
	files := map[string]string{"ca-certificates.crt": "/etc/ssl/certs/ca-certificates.crt"}
	for program, path := range binaries {
		files[runtime.GOARCH+"/"+program] = path
	}
	return Image{Name: name, Containerfile: string(containerfile), Files: files}, nil
}

// ProgramsImage is an image of programs of this machine, with the libraries that they take.
// They are in its folder bin, and the first of them is its entrypoint.
func ProgramsImage(ctx context.Context, name string, programs ...string) (Image, error) {
	image := Image{Name: name, Files: map[string]string{}}
	for _, program := range programs {
		files, err := Linked(ctx, program)
		if err != nil {
			return Image{}, fmt.Errorf("finding what image %s takes: %w", name, err)
		}
		maps.Copy(image.Files, files)
	}
	image.Containerfile = fmt.Sprintf("FROM scratch\nCOPY . /\nUSER 65532:65532\nENTRYPOINT [\"/bin/%s\"]\n", filepath.Base(programs[0]))
	return image, nil
}
