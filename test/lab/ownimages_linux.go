package lab

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
)

// OooiImage returns an image with the same files and user as a release's image, for this host's architecture. binaries
// maps the names of the binaries in the image to local paths.
func OooiImage(name string, binaries map[string]string) Image {
	files := map[string]string{"etc/ssl/certs/ca-certificates.crt": "/etc/ssl/certs/ca-certificates.crt"}
	maps.Copy(files, binaries)
	return Image{Name: name, Containerfile: "FROM scratch\nCOPY . /\nUSER 65532:65532\n", Files: files}
}

// ProgramsImage returns an image with programs of this host and their libraries. The programs are in its
// directory bin; the first is the entrypoint.
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
